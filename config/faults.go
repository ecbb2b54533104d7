package config

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Fault is one thing wrong with the settings: the place, the value there, its bound, and the remedy.
type Fault struct {
	File   string `json:"file"`
	Line   int    `json:"line"` // 0: of the file as a whole, such as for a missing key
	Key    string `json:"key"`
	Value  string `json:"value"`
	Bound  string `json:"bound"`
	Remedy string `json:"remedy"`
}

// String is the fault on one line, with the parts that it has.
func (f Fault) String() string {
	var parts []string
	switch {
	case f.File != "" && f.Line > 0:
		parts = append(parts, f.File+":"+strconv.Itoa(f.Line))
	case f.File != "":
		parts = append(parts, f.File)
	}
	for _, s := range []string{f.Key, f.Value, f.Bound, f.Remedy} {
		if s != "" {
			parts = append(parts, s)
		}
	}
	return strings.Join(parts, ": ")
}

// Faults is everything wrong with the settings, in the order of files and lines.
type Faults []Fault

// Error is one line for each fault.
func (f *Faults) Error() string {
	lines := make([]string, len(*f))
	for i, fault := range *f {
		lines[i] = fault.String()
	}
	return strings.Join(lines, "\n")
}

// sorted returns the faults as an error, or nil when there are none.
func (f Faults) sorted(files []string) error {
	if len(f) == 0 {
		return nil
	}
	slices.SortStableFunc(f, func(a, b Fault) int {
		return cmp.Or(
			cmp.Compare(slices.Index(files, a.File), slices.Index(files, b.File)),
			cmp.Compare(a.Line, b.Line),
		)
	})
	return &f
}

// maxShown keeps a pasted private key from filling the terminal. Paths are shown up to maxPath, because people copy them.
const (
	maxShown = 80
	maxPath  = 4096 // PATH_MAX, of linux/limits.h
)

// Show renders a value for a message that must stay on one line.
func Show(value any) string {
	if value == nil {
		return ""
	}
	s := fmt.Sprint(value)
	if _, ok := value.(time.Duration); ok { // as people write it: 1h, not 1h0m0s
		for _, zero := range []string{"0s", "0m"} {
			if rest, ok := strings.CutSuffix(s, zero); ok && strings.ContainsAny(rest[max(0, len(rest)-1):], "mh") {
				s = rest
			}
		}
	}
	if len(s) > maxShown && (!filepath.IsAbs(s) || len(s) > maxPath) {
		s = strings.ToValidUTF8(s[:maxShown], "") + "..."
	}
	if quoted := strconv.Quote(s); s == "" || quoted != `"`+s+`"` {
		return quoted
	}
	return s
}

// child is the key of a map's entry.
func child(parent, key string) string {
	if parent == "" {
		return Show(key)
	}
	return parent + "." + Show(key)
}

// item is the key of a list's item.
func item(parent string, i int) string { return parent + "[" + strconv.Itoa(i) + "]" }

// within reports whether key is outer or inside of it.
func within(key, outer string) bool {
	rest, ok := strings.CutPrefix(key, outer)
	return ok && outer != "" && (rest == "" || rest[0] == '.' || rest[0] == '[')
}
