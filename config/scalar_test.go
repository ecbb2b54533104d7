package config

import (
	"os"
	"path/filepath"
	"testing"
)

type named struct {
	Node struct {
		Name string `yaml:"name"`
		Dir  string `yaml:"dir"`
	} `yaml:"node"`
}

func (named) Validate(Report) {}

// Whatever the name of a host or a directory, a file that was written with it is read back with the same name.
func TestScalarIsReadBack(t *testing.T) {
	for _, s := range []string{
		"host-a", "/var/lib/lifeboat", "0x10", "0b11", "1_000", "617e29384756", "012345678901", "1e3", "true", "no", "null", "~", ".inf", "2026-11-27", "12:30",
		"/mnt/a, b", "/mnt/a: b", "/mnt/a #b", "/mnt/{a}", `/mnt/"a"`, "/mnt/'a'", `/mnt/a\b`, "/mnt/ a ", "/mnt/ä", "-", "- a", "&a", "*a", "!a", "%a", "@a", "`a`",
	} {
		file := filepath.Join(t.TempDir(), "settings.yaml")
		if err := os.WriteFile(file, []byte("node: {name: "+Scalar(s)+", dir: /x}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		var got named
		if err := Load(file, &got); err != nil || got.Node.Name != s || got.Node.Dir != "/x" {
			t.Errorf("%q, written %s: got %+v, %v", s, Scalar(s), got, err)
		}
	}
	for _, s := range []string{"host-a", "/var/lib/lifeboat", "/etc/lifeboat/tls/ca.pem"} {
		if got := Scalar(s); got != s {
			t.Errorf("%s is written %s, and needs no quotes", s, got)
		}
	}
}
