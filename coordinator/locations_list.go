package coordinator

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/coordinator/blockmap"
	"github.com/lifeboat/lifeboat/coordinator/registry"
	"github.com/lifeboat/lifeboat/migration/manifest"
)

func (l *locations) eachHeld(only string, send func(*api.BlockInfo) error) error {
	nodes := []string{only}
	if only == "" {
		nodes = l.blocks.Nodes()
	}
	spilled := once(l.accounts.spilled)
	for _, name := range nodes {
		for _, k := range l.blocks.Of(name) {
			said, what := l.blocks.Holders(k)
			if len(said) == 0 || only == "" && said[0] != name {
				continue // gone meanwhile, or listed with its first holder
			}
			b := &api.BlockInfo{Id: k.ID(), Bytes: what.Bytes, From: what.From.Value(), State: "lost"}
			for _, h := range l.reachable(said) {
				b.State = "held"
				b.Holders = append(b.Holders, h.Node)
			}
			if b.State == "lost" && l.accounts.lost(b.Id) == nil && l.keeps(b.From) {
				continue // its source is there and has it, so it is not lost
			}
			if b.State == "lost" {
				inFallback := func(node string) bool {
					at, is := spilled(node)[l.accounts.files.hash(b.Id)]
					return is && !l.accounts.lostAfter(b.Id, at)
				}
				if slices.ContainsFunc(said, inFallback) || inFallback(b.From) {
					continue // who had it left it there: Locate asks who reads the fallback
				}
			}
			if err := send(b); err != nil {
				return err
			}
		}
	}
	return nil
}

// keeps reports whether a source still has the blocks that it sent: it was about to leave, and is still there, or there again, as the same
// machine. A source that was never about to leave sent blocks from a disk that was dying.
func (l *locations) keeps(source string) bool {
	n, _ := l.ledger.node(source)
	return l.hasLeft(n) && !n.Namesake && len(l.reachable([]string{source})) > 0
}

// eachLost lists the blocks that manifests name as lost. unread says of which manifests it cannot: after a restore, the coordinators
// have the figures of the manifests that came before, and not the files.
func (l *locations) eachLost(only string, send func(*api.BlockInfo) error) (unread []string, err error) {
	var refs []*registry.ManifestRef
	l.ledger.view(func(m *registry.Registry) {
		for _, ref := range m.Manifests {
			if ref.Lost > 0 && (only == "" || ref.Node == only) && m.InForce(ref) {
				refs = append(refs, ref)
			}
		}
	})
	for _, ref := range refs {
		for e, err := range l.accounts.files.entries(ref) {
			if errors.Is(err, fs.ErrNotExist) {
				err = fmt.Errorf("the manifest of %s is not here", ref.Node)
			}
			if err != nil {
				unread = append(unread, fmt.Sprintf("%v: what it names as lost is not listed, %d in all", err, ref.Lost))
				break
			}
			if newest := l.accounts.files.namedLost(e.ID); e.Outcome != manifest.Lost || newest == nil || newest.File != ref.File {
				continue // not lost, or listed with the newest manifest that names it
			}
			if said, _ := l.blocks.Holders(blockmap.KeyOf(e.ID)); len(said) > 0 {
				continue
			}
			if err := send(&api.BlockInfo{Id: e.ID, Bytes: e.Bytes, From: ref.Node, State: "lost"}); err != nil {
				return nil, err
			}
		}
	}
	return unread, nil
}

// eachBroken lists lost blocks that no manifest names: they were moved, and broke afterwards.
func (l *locations) eachBroken(only string, send func(*api.BlockInfo) error) error {
	for k, at := range l.broken.all() {
		if only != "" && !slices.Contains(at.sources, only) || !l.isLost(at) || l.accounts.lost(k.ID()) != nil {
			continue
		}
		if said, _ := l.blocks.Holders(k); len(said) > 0 {
			continue
		}
		if err := send(&api.BlockInfo{Id: k.ID(), Bytes: at.bytes, From: at.from, State: "lost"}); err != nil {
			return err
		}
	}
	return nil
}
