package coordinator

import (
	"maps"
	"net/netip"
	"strings"
	"time"
)

// hostLists say who may join and who must leave, as the host files said when they were last read whole. They are a
// decision like any other, kept in the log: a restart reads no file to know them. Never changed once made.
//
// A key is a host's name in small letters, or its IP address in the plain form of netip.
type hostLists struct {
	IncludeFile string               `json:"include_file,omitempty"`
	ExcludeFile string               `json:"exclude_file,omitempty"`
	Include     map[string]bool      `json:"include"` // nil: everybody
	Exclude     map[string]exclusion `json:"exclude"`
	Maintenance map[string]time.Time `json:"maintenance,omitempty"` // until when
}

// exclusion is one excluded host.
type exclusion struct {
	Timeout   *time.Duration `json:"timeout,omitempty"`    // of a graceful decommission; nil: what the request says
	ByInclude bool           `json:"by_include,omitempty"` // HDFS's file of all hosts says who is decommissioned as well
}

// forever is how the log says "without limit".
const forever = time.Duration(-1)

func (h *hostLists) equal(o *hostLists) bool {
	if h == nil || o == nil {
		return h == o
	}
	return h.IncludeFile == o.IncludeFile && h.ExcludeFile == o.ExcludeFile &&
		(h.Include == nil) == (o.Include == nil) && maps.Equal(h.Include, o.Include) &&
		maps.EqualFunc(h.Exclude, o.Exclude, exclusion.equal) &&
		maps.EqualFunc(h.Maintenance, o.Maintenance, time.Time.Equal)
}

// welcomes says whether they keep nobody out, and nobody's blocks away.
func (h *hostLists) welcomes() bool {
	return h.Include == nil && len(h.Exclude) == 0 && len(h.Maintenance) == 0
}

func (e exclusion) equal(o exclusion) bool {
	return e.ByInclude == o.ByInclude && (e.Timeout == nil) == (o.Timeout == nil) && (e.Timeout == nil || *e.Timeout == *o.Timeout)
}

// judgement is what the lists say of one node.
type judgement struct {
	why       string         // it may not stay; empty: it may
	untracked bool           // it is in neither list
	timeout   *time.Duration // its own
	down      bool           // it is no list that says so: its machine is worked on
}

func (j judgement) excluded() bool { return j.why != "" }

// judge looks a node up by its name and by the host of its peer address: files name machines by either. A node is
// excluded when the exclude list has it, or when there is an include list that does not.
func (h *hostLists) judge(name, peerAddress string) (j judgement) {
	if h == nil {
		return j
	}
	included := h.Include == nil
	for _, key := range hostKeys(name, peerAddress) {
		included = included || h.Include[key]
		e, ok := h.Exclude[key]
		if !ok {
			continue
		}
		j.why = "excluded by " + h.ExcludeFile
		if e.ByInclude {
			j.why = "excluded by " + h.IncludeFile
		}
		if j.timeout == nil { // the name's own comes before the address's
			j.timeout = e.Timeout
		}
	}
	if !included && j.why == "" {
		j.why, j.untracked = "not included by "+h.IncludeFile, true
	}
	return j
}

// maintained says whether a node is under maintenance at an instant. It ends by itself.
func (h *hostLists) maintained(name, peerAddress string, at time.Time) bool {
	if h == nil {
		return false
	}
	for _, key := range hostKeys(name, peerAddress) {
		if at.Before(h.Maintenance[key]) {
			return true
		}
	}
	return false
}

// hostKeys are the keys that a node may be listed under, its name first.
func hostKeys(name, peerAddress string) []string {
	keys := []string{hostKey(name)}
	if i := strings.LastIndexByte(peerAddress, ':'); i > 0 {
		if host := hostKey(strings.Trim(peerAddress[:i], "[]")); host != keys[0] {
			keys = append(keys, host)
		}
	}
	return keys
}

// hostKey is the one spelling of a host. Names of hosts know no capitals (RFC 4343), and 10.0.0.1 is ::ffff:10.0.0.1.
func hostKey(host string) string {
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().String()
	}
	return strings.TrimRight(strings.ToLower(host), ".")
}
