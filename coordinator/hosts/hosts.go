// Package hosts reads the files that say which nodes may join a fleet and which must leave it, and says what they mean for one node. The
// files are those that YARN's and HDFS's operators keep: plain lists, XML with a timeout for each host, and HDFS's JSON that has
// everything in one file. A file that may have been cut short is refused whole.
//
// It watches no file and orders no node away. The coordinator does both, and keeps what it read in its log.
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

// Files are the paths of the include file (which nodes may join) and the exclude file (which must leave); an empty path: there is none.
type Files struct {
	Include string `yaml:"include"`
	Exclude string `yaml:"exclude"`
}

// Lists say which nodes may join and which must leave, as of the last time when the host files were read whole. They are a
// decision like any other and kept in the log, so a restart reads no file to know them. Lists are never changed once made.
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
	// MaxTimeout is the longest timeout that a file may set.
	MaxTimeout = 30 * 24 * time.Hour
)

// Equal reports whether both say the same.
func (h *Lists) Equal(o *Lists) bool {
	if h == nil || o == nil {
		return h == o
	}
	return h.IncludeFile == o.IncludeFile && h.ExcludeFile == o.ExcludeFile &&
		(h.Include == nil) == (o.Include == nil) && maps.Equal(h.Include, o.Include) &&
		maps.EqualFunc(h.Exclude, o.Exclude, Exclusion.equal) &&
		maps.EqualFunc(h.Maintenance, o.Maintenance, time.Time.Equal)
}

// Welcomes reports whether the lists are without effect: they exclude no node, and have none under maintenance.
func (h *Lists) Welcomes() bool {
	return h.Include == nil && len(h.Exclude) == 0 && len(h.Maintenance) == 0
}

func (e Exclusion) equal(o Exclusion) bool {
	return e.ByInclude == o.ByInclude && (e.Timeout == nil) == (o.Timeout == nil) && (e.Timeout == nil || *e.Timeout == *o.Timeout)
}

// Judgement is what the lists say of one node.
type Judgement struct {
	Why       string         // why the node may not stay; empty: it may
	Untracked bool           // it is in neither list
	Timeout   *time.Duration // the exclude file's timeout for this node; nil: none
	Down      bool           // no list excludes it: the maintenance schedule has its machine DOWN
}

// Excluded reports whether the node must go.
func (j Judgement) Excluded() bool { return j.Why != "" }

// Judge looks a node up by its name and by the host of its peer address, for files name machines by either. A node is
// excluded when it is on the exclude list, or when there is an include list without it.
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

// Maintained reports whether a node is under maintenance at an instant. Maintenance ends by itself, at the instant that the file gives.
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

// Keys are the keys under which the lists may have a node, its name first.
func Keys(name, peerAddress string) []string {
	keys := []string{Key(name)}
	if i := strings.LastIndexByte(peerAddress, ':'); i > 0 {
		if host := Key(strings.Trim(peerAddress[:i], "[]")); host != keys[0] {
			keys = append(keys, host)
		}
	}
	return keys
}

// Key is the canonical spelling of a host. Case does not count in host names (RFC 4343), and ::ffff:10.0.0.1 is 10.0.0.1.
func Key(host string) string {
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().String()
	}
	return strings.TrimRight(strings.ToLower(host), ".")
}

// Paths are the files that the lists were read from.
func (h *Lists) Paths() []string { return Files{h.IncludeFile, h.ExcludeFile}.Paths() }

// Paths are the paths that are not empty.
func (h Files) Paths() []string {
	return slices.DeleteFunc([]string{h.Include, h.Exclude}, func(p string) bool { return p == "" })
}
