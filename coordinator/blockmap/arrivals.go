package blockmap

// MaxSources bounds the sources that Arrivals tell apart. Blocks from further ones are counted together, under no name: an honest
// holder has few sources.
const MaxSources = 256

// Arrival counts blocks that landed.
type Arrival struct{ Blocks, Bytes int64 }

// Arrivals are counts of landed blocks by source.
type Arrivals map[string]Arrival

func (a *Arrivals) count(from string, bytes int64) { a.Add(from, Arrival{1, bytes}) }

// Add counts blocks from one source.
func (a *Arrivals) Add(from string, n Arrival) {
	if *a == nil {
		*a = Arrivals{}
	}
	if _, known := (*a)[from]; !known && len(*a) >= MaxSources {
		from = ""
	}
	was := (*a)[from]
	(*a)[from] = Arrival{was.Blocks + n.Blocks, was.Bytes + n.Bytes}
}
