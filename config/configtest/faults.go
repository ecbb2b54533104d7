// Package configtest compares what the loader of a daemon's settings says against faulty files with what it should say.
package configtest

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lifeboat/lifeboat/config"
)

var update = flag.Bool("update-config", false, "rewrite the expected faults")

// Faults loads each of the files, NAME.yaml, and compares its faults with NAME.want. Each must have a remedy.
func Faults(t *testing.T, load func(path string) error, files ...string) {
	t.Helper()
	for _, file := range files {
		err := load(file)
		faults, ok := errors.AsType[*config.Faults](err)
		if !ok {
			t.Fatalf("%s: got %T %v, want faults", file, err, err)
		}
		golden := strings.TrimSuffix(file, ".yaml") + ".want"
		got := strings.ReplaceAll(faults.Error(), filepath.Dir(file)+"/", "") + "\n"
		if *update {
			if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s: got:\n%swant:\n%s", file, got, want)
		}
		for _, f := range *faults {
			if f.Remedy == "" {
				t.Errorf("%s: no remedy in %q", file, f)
			}
		}
	}
}
