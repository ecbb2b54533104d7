package coordinator

import (
	"cmp"
	"strings"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

// heedDisks excludes a node whose status says that all its disks are unwell, and readmits it once its status says otherwise. Nothing
// else does either: a new leader that has heard no status yet, or a silent node, changes nothing. So that the exclusion survives
// these, it is in the log, unlike what heartbeats carry; it changes as seldom as disks fail.
func (s *membership) heedDisks(n registry.Node, st *api.Status) (registry.Node, error) {
	disks := st.GetDisks()
	if len(disks) == 0 { // nothing is said about them
		return n, nil
	}
	c := registry.Command{Do: registry.DoExclude, Nodes: []string{n.Name}, Incarnation: n.Incarnation}
	excluded := true
	var why []string
	for _, d := range disks {
		excluded = excluded && d.GetUnwell()
		why = append(why, d.GetPath()+" "+cmp.Or(d.GetHealth(), "unwell"))
	}
	if excluded == n.Excluded {
		return n, nil
	}
	if excluded {
		all := strings.Join(why, ", ")
		c.Reason = strings.ToValidUTF8(all[:min(len(all), registry.MaxText)], "")
	} else {
		c.Do = registry.DoReadmit
	}
	if _, err := s.quotas.doFor(n.Name, c); err != nil {
		return n, unlessOften(err)
	}
	n, _ = s.ledger.node(n.Name)
	return n, nil
}
