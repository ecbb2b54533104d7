package config

import (
	"cmp"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
)

// CheckBetween reports a value below least or above most.
func CheckBetween[T cmp.Ordered](report Report, key string, value, least, most T) {
	bound := fmt.Sprintf("must be %s to %s", Show(least), Show(most))
	switch {
	case value < least:
		report(key, value, bound, "raise it to "+Show(least))
	case value > most:
		report(key, value, bound, "lower it to "+Show(most))
	}
}

// NameBound is what IsName asks for, in words.
const NameBound = "must be 1 to 63 of a-z, 0-9, '_', '.' and '-', a letter or a digit first"

// IsName reports whether a store, a fallback, a workload or an action may be called that: [a-z0-9][a-z0-9_.-]{0,62}. A name is a word in
// tables, a label of figures and a part of file names, and a store's is the first part of every block's id.
func IsName(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9':
		case i > 0 && (c == '_' || c == '.' || c == '-'):
		default:
			return false
		}
	}
	return 1 <= len(s) && len(s) <= 63
}

// Differs names the keys at which two sections differ, but for those left out.
func Differs[T any](one, other T, except ...string) (keys []string) {
	b := reflect.ValueOf(other)
	for field, a := range reflect.ValueOf(one).Fields() {
		key := field.Tag.Get("yaml")
		if !slices.Contains(except, key) && !reflect.DeepEqual(a.Interface(), b.FieldByIndex(field.Index).Interface()) {
			keys = append(keys, key)
		}
	}
	return keys
}

// longestSocket is how long a socket's path may be: sun_path of unix(7) has 108 bytes, one of them for the end.
const longestSocket = 107

// CheckSocket reports a path at which no daemon can have its socket.
func CheckSocket(report Report, key, path string) {
	if CheckDir(report, key, path) && len(path) > longestSocket {
		report(key, path, fmt.Sprintf("must be at most %d bytes, is %d", longestSocket, len(path)), "choose a shorter path")
	}
}

// CheckDir reports a path that cannot be a daemon's own directory, and returns whether it can. A relative path says nothing, because nobody
// knows a daemon's working directory. An unclean path could pass as another directory than its clean spelling.
func CheckDir(report Report, key, dir string) bool {
	switch {
	case !filepath.IsAbs(dir):
		report(key, dir, "must be an absolute path", "start it with /")
	case filepath.Clean(dir) != dir:
		report(key, dir, "must be spelled plainly", "write "+filepath.Clean(dir))
	case dir == "/":
		report(key, dir, "must not be the whole machine", "give it a directory of its own")
	default:
		return true
	}
	return false
}
