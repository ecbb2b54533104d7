// Package hosts reads the files that say who may join a fleet and who must leave it, as YARN's and HDFS's operators keep them (plain lists, XML
// with a timeout for each host, HDFS's JSON of all), and says what they mean for one node. A file that may have been cut short is refused whole.
//
// It watches no file and has nobody leave: the coordinator does, and keeps what it read in its log.
//
// The files, in an order to read them: hosts, read, json, xml.
package hosts

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Files are the files that say which nodes may join and which must leave; either may be empty, for none.
type Files struct {
	Include string `yaml:"include"`
	Exclude string `yaml:"exclude"`
}

// Lists say who may join and who must leave, as the host files said when they were last read whole. They are a
// decision like any other, kept in the log: a restart reads no file to know them. Never changed once made.
//
// A key is a host's name in small letters, or its IP address in the plain form of netip.
type Lists struct {
	IncludeFile string               `json:"include_file,omitempty"`
	ExcludeFile string               `json:"exclude_file,omitempty"`
	Include     map[string]bool      `json:"include"` // nil: everybody
	Exclude     map[string]Exclusion `json:"exclude"`
	Maintenance map[string]time.Time `json:"maintenance,omitempty"` // until when
}

// Exclusion is one excluded host.
type Exclusion struct {
	Timeout   *time.Duration `json:"timeout,omitempty"`    // of a graceful decommission; nil: what the request says
	ByInclude bool           `json:"by_include,omitempty"` // HDFS's file of all hosts says who is decommissioned as well
}

const (
	// Forever is how the log says "without limit".
	Forever = time.Duration(-1)
	// MaxTimeout is the longest limit that is one.
	MaxTimeout = 30 * 24 * time.Hour
)

// Equal says whether both say the same.
func (h *Lists) Equal(o *Lists) bool {
	if h == nil || o == nil {
		return h == o
	}
	return h.IncludeFile == o.IncludeFile && h.ExcludeFile == o.ExcludeFile &&
		(h.Include == nil) == (o.Include == nil) && maps.Equal(h.Include, o.Include) &&
		maps.EqualFunc(h.Exclude, o.Exclude, Exclusion.equal) &&
		maps.EqualFunc(h.Maintenance, o.Maintenance, time.Time.Equal)
}

// Welcomes says whether they keep nobody out, and nobody's blocks away.
func (h *Lists) Welcomes() bool {
	return h.Include == nil && len(h.Exclude) == 0 && len(h.Maintenance) == 0
}

func (e Exclusion) equal(o Exclusion) bool {
	return e.ByInclude == o.ByInclude && (e.Timeout == nil) == (o.Timeout == nil) && (e.Timeout == nil || *e.Timeout == *o.Timeout)
}

// Judgement is what the lists say of one node.
type Judgement struct {
	Why       string         // it may not stay; empty: it may
	Untracked bool           // it is in neither list
	Timeout   *time.Duration // its own
	Down      bool           // it is no list that says so: its machine is worked on
}

// Excluded says whether it must go.
func (j Judgement) Excluded() bool { return j.Why != "" }

// Judge looks a node up by its name and by the host of its peer address: files name machines by either. A node is
// excluded when the exclude list has it, or when there is an include list that does not.
func (h *Lists) Judge(name, peerAddress string) (j Judgement) {
	if h == nil {
		return j
	}
	included := h.Include == nil
	for _, key := range Keys(name, peerAddress) {
		included = included || h.Include[key]
		e, ok := h.Exclude[key]
		if !ok {
			continue
		}
		j.Why = "excluded by " + h.ExcludeFile
		if e.ByInclude {
			j.Why = "excluded by " + h.IncludeFile
		}
		if j.Timeout == nil { // the name's own comes before the address's
			j.Timeout = e.Timeout
		}
	}
	if !included && j.Why == "" {
		j.Why, j.Untracked = "not included by "+h.IncludeFile, true
	}
	return j
}

// Maintained says whether a node is under maintenance at an instant. It ends by itself.
func (h *Lists) Maintained(name, peerAddress string, at time.Time) bool {
	if h == nil {
		return false
	}
	for _, key := range Keys(name, peerAddress) {
		if at.Before(h.Maintenance[key]) {
			return true
		}
	}
	return false
}

// Keys are the keys that a node may be listed under, its name first.
func Keys(name, peerAddress string) []string {
	keys := []string{Key(name)}
	if i := strings.LastIndexByte(peerAddress, ':'); i > 0 {
		if host := Key(strings.Trim(peerAddress[:i], "[]")); host != keys[0] {
			keys = append(keys, host)
		}
	}
	return keys
}

// Key is the one spelling of a host. Names of hosts know no capitals (RFC 4343), and 10.0.0.1 is ::ffff:10.0.0.1.
func Key(host string) string {
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().String()
	}
	return strings.TrimRight(strings.ToLower(host), ".")
}

// Paths are the files that they were read from.
func (h *Lists) Paths() []string { return Files{h.IncludeFile, h.ExcludeFile}.Paths() }

// Paths are those of them that there are.
func (h Files) Paths() []string {
	return slices.DeleteFunc([]string{h.Include, h.Exclude}, func(p string) bool { return p == "" })
}
