package house_test

import (
	"os"
	"path/filepath"
	"testing"
)

// The generated files in api are what the tools of tools/go.mod make from the .proto.
func TestGeneratedCodeIsUnchanged(t *testing.T) {
	dir := t.TempDir()
	run(t, filepath.Join(root, "tools"), "go", "run", "./protogen", filepath.Join(root, "api"), dir)
	made := names(t, dir)
	if len(made) == 0 {
		t.Fatal("nothing was generated")
	}
	for _, name := range made {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if read(t, "api/"+name) != string(got) {
			t.Errorf("api/%s is not what the .proto makes: make generate", name)
		}
	}
	for _, name := range names(t, filepath.Join(root, "api")) {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Errorf("api/%s is made of no .proto: remove it", name)
		}
	}
}

func names(t *testing.T, dir string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.pb.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		names = append(names, filepath.Base(f))
	}
	return names
}
