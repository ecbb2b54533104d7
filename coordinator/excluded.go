package coordinator

import (
	"cmp"
	"strings"

	"github.com/lifeboat/lifeboat/api"
)

// heedDisks excludes a node that says that all its disks are unwell, and takes it back once it says otherwise. Only the
// node's own words do either: a coordinator that has just started, or a node that is silent, changes nothing. So the fact
// is in the log, where heartbeats are not; it changes as seldom as disks fail.
func (s *membership) heedDisks(n node, st *api.Status) (node, error) {
	disks := st.GetDisks()
	if len(disks) == 0 { // nothing is said about them
		return n, nil
	}
	c := command{Do: doExclude, Nodes: []string{n.Name}, Incarnation: n.Incarnation}
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
		c.Reason = strings.ToValidUTF8(all[:min(len(all), maxText)], "")
	} else {
		c.Do = doReadmit
	}
	if _, err := s.doFor(n.Name, c); err != nil {
		return n, unlessOften(err)
	}
	n, _ = s.node(n.Name)
	return n, nil
}
