package blockmap

import "strings"

// Holdings are the landed blocks of one app.
type Holdings struct{ Blocks, Bytes, Holders int64 }

// ByApp adds up the held blocks of each app. It leaves out scopes that only name a block manager's directory (blockmgr-...): nothing on
// the disk says which app they are of.
func (b *Map) ByApp() map[string]Holdings {
	b.mu.RLock()
	defer b.mu.RUnlock()
	all := map[string]Holdings{}
	for _, s := range b.shelves {
		if s == nil {
			continue
		}
		here := map[string]Holdings{}
		for _, p := range s.sheets {
			p.addUp(here)
		}
		for app, has := range here {
			sum := all[app]
			all[app] = Holdings{sum.Blocks + has.Blocks, sum.Bytes + has.Bytes, sum.Holders + 1}
		}
	}
	return all
}

func (p *sheet) addUp(sums map[string]Holdings) {
	if p == nil {
		return
	}
	of := make([]Holdings, len(p.kinds))
	for _, r := range p.rows {
		if !r.gone {
			of[r.kind].Blocks++
			of[r.kind].Bytes += r.bytes
		}
	}
	for i, has := range of {
		_, app, _ := strings.Cut(p.kinds[i].scope.Value(), "/")
		if has.Blocks > 0 && app != "-" && !strings.HasPrefix(app, "blockmgr-") {
			sum := sums[app]
			sums[app] = Holdings{Blocks: sum.Blocks + has.Blocks, Bytes: sum.Bytes + has.Bytes}
		}
	}
}
