package blockmap

// MaxSources bounds from how many nodes one node is said to have got blocks within that time. The rest are counted
// together, from nobody in particular: an honest node has few.
const MaxSources = 256

// Arrival counts blocks that landed.
type Arrival struct{ Blocks, Bytes int64 }

// Arrivals are by the node that blocks came from.
type Arrivals map[string]Arrival

func (a *Arrivals) count(from string, bytes int64) { a.Add(from, Arrival{1, bytes}) }

// Add counts those from one node.
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
