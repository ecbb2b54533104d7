package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

func settings(f *fleet) string {
	out, err := yaml.MarshalWithOptions(f, yaml.UseSingleQuote(false))
	if err != nil {
		panic(err)
	}
	return string(out)
}

// FuzzLoad checks that any file, alone and over another, is either loaded or refused with one line for each fault, and that the line numbers
// exist in the file.
func FuzzLoad(f *testing.F) {
	seeds, err := filepath.Glob("testdata/*/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	more, err := filepath.Glob("testdata/*/conf.d/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range append(seeds, more...) {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<10 {
			return // size alone finds nothing new, slowly
		}
		file := filepath.Join(dir, "main.yaml")
		if err := os.WriteFile(file, data, 0o644); err != nil {
			t.Fatal(err)
		}
		err := Load(file, defaults())
		if err == nil {
			return
		}
		faults, ok := errors.AsType[*Faults](err)
		if !ok {
			t.Fatalf("got %T %v, want *Faults", err, err)
		}
		lines := strings.Count(string(data), "\n") + strings.Count(string(data), "\r") + 1
		for _, fault := range *faults {
			if s := fault.String(); strings.ContainsAny(s, "\n\r") {
				t.Errorf("fault on several lines: %q", s)
			}
			if fault.File != file || fault.Line < 0 || fault.Line > lines {
				t.Errorf("got a fault at %s:%d of %d lines: %s", fault.File, fault.Line, lines, fault)
			}
			if fault.Bound == "" {
				t.Errorf("got a fault that does not say what would be right: %+v", fault)
			}
		}
	})
}
