package inventory

import (
	"errors"
	"strings"
	"testing"
)

func TestBlockIDsAccepted(t *testing.T) {
	for id, want := range map[string][3]string{
		"cache/-/x":                            {"cache", "-", "x"},
		"cache/-/a/b/c.parquet":                {"cache", "-", "a/b/c.parquet"},
		"s.1-x_y/app-20260101-0001/rdd_5_25":   {"s.1-x_y", "app-20260101-0001", "rdd_5_25"},
		"spark/blockmgr-1-2/shuffle_0_0_0":     {"spark", "blockmgr-1-2", "shuffle_0_0_0"},
		"cache/-/with space, 100%?#ümläut ...": {"cache", "-", "with space, 100%?#ümläut ..."},
		"cache/-/...":                          {"cache", "-", "..."},
		"cache/-/" + strings.Repeat("n", 255):  {"cache", "-", strings.Repeat("n", 255)},
	} {
		got, err := ParseBlockID(id)
		if err != nil {
			t.Error(err)
			continue
		}
		if parts := [3]string{got.Store(), got.Scope(), got.Name()}; string(got) != id || parts != want {
			t.Errorf("got %q in parts %q, want %q", got, parts, want)
		}
	}
}

func TestBlockIDsRefused(t *testing.T) {
	for id, why := range map[string]string{
		"":                                      "STORE/SCOPE/NAME",
		"cache":                                 "STORE/SCOPE/NAME",
		"cache/-":                               "STORE/SCOPE/NAME",
		"cache/-/":                              "empty component",
		"/-/x":                                  "empty component",
		"cache//x":                              "empty component",
		"cache/-//x":                            "empty component",
		"cache/-/..":                            `".."`,
		"cache/-/../../etc/shadow":              `".."`,
		"cache/../x":                            `".."`,
		"cache/-/./x":                           `"."`,
		"cache/-/a\x00b":                        "U+0000",
		"cache/-/a\nb":                          "U+000A",
		"cache/-/a\x7fb":                        "U+007F",
		"cache/-/a\u0085b":                      "U+0085",
		"cache/-/a\xffb":                        "UTF-8",
		"Cache/-/x":                             "store",
		".hidden/-/x":                           "store",
		strings.Repeat("s", 64) + "/-/x":        "store",
		"cache/-/" + strings.Repeat("n", 256):   "256 bytes, at most 255",
		"cache/-/" + strings.Repeat("n/", 2496): "5000 bytes long, at most 4096",
		"cache/-/" + strings.Repeat("ü\x00", 30): "control",
	} {
		got, err := ParseBlockID(id)
		if !errors.Is(err, errBadID) || !strings.Contains(err.Error(), why) {
			t.Errorf("%.100q: got %q, %v, want %q", id, got, err, why)
		}
		if err != nil && len(err.Error()) > 400 {
			t.Errorf("an error of %d bytes quotes what a stranger sent at length", len(err.Error()))
		}
	}
}

func FuzzParseBlockID(f *testing.F) {
	for _, s := range []string{"cache/-/x", "cache/-/../x", "a/b/c/d", "cache/-/\x00", "cache/-/\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, err := ParseBlockID(s)
		if err != nil {
			return
		}
		if string(id) != s || id.Store()+"/"+id.Scope()+"/"+id.Name() != s {
			t.Errorf("%q falls apart into %q, %q, %q", s, id.Store(), id.Scope(), id.Name())
		}
		for p := range strings.SplitSeq(s, "/") {
			if p == "" || p == "." || p == ".." || strings.ContainsRune(p, 0) {
				t.Errorf("%q has a component %q", s, p)
			}
		}
	})
}
