package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func TestManHasAPageForEveryVerbAndIsReproducible(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1795310876")
	once, again := manual(t), manual(t)
	for _, name := range []string{"lifeboat.1", "lifeboat-agent.1", "lifeboat-tls-init.1", "lifeboat-service-install.1"} {
		if len(once[name]) == 0 {
			t.Errorf("got no page %s", name)
		}
	}
	if _, there := once["lifeboat-man.1"]; there {
		t.Error("got a page for the hidden verb that writes the pages")
	}
	for name, page := range once {
		if !bytes.Equal(page, again[name]) {
			t.Errorf("%s differs from one run to the next", name)
		}
		if !strings.Contains(string(page), " 1 2026-11-22 ") {
			t.Errorf("%s does not bear the date of SOURCE_DATE_EPOCH", name)
		}
	}
}

// --help, the manual and the shell's completion all have the verbs' own texts.
func TestEveryVerbShowsHowItIsUsed(t *testing.T) {
	var look func(cmd *cobra.Command)
	look = func(cmd *cobra.Command) {
		if cmd.HasParent() && !cmd.Hidden && (cmd.Short == "" || cmd.Example == "") {
			t.Errorf("%s: got the summary %q and the example %q, want both", cmd.CommandPath(), cmd.Short, cmd.Example)
		}
		for _, c := range cmd.Commands() {
			look(c)
		}
	}
	look(rootCommand())
}

func TestManIsRoffWithoutWarnings(t *testing.T) {
	groff, err := exec.LookPath("groff")
	if err != nil {
		t.Skipf("no groff to read the pages: %v", err)
	}
	dir := t.TempDir()
	if code, _, stderr := runVerb(t, "man", dir); code != exitDone {
		t.Fatalf("got exit code %d: %s", code, stderr)
	}
	pages, err := filepath.Glob(filepath.Join(dir, "*.1"))
	if err != nil || len(pages) == 0 {
		t.Fatalf("got %d pages (%v)", len(pages), err)
	}
	for _, page := range pages {
		if out, err := exec.Command(groff, "-man", "-Tascii", "-ww", "-z", page).CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%s: %v\n%s", filepath.Base(page), err, out)
		}
	}
}

func TestRoffTakesTextAsItIs(t *testing.T) {
	got := lines(".hidden\n'quoted\na\\b --flag")
	if want := "\\&.hidden\n\\&'quoted\na\\eb \\-\\-flag\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestManRefusesADateThatIsNone(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "yesterday")
	if code, _, stderr := runVerb(t, "man", t.TempDir()); code != exitUsage || !strings.Contains(stderr, "yesterday") {
		t.Errorf("got exit code %d, %q, want %d and the value", code, stderr, exitUsage)
	}
}

// manual is every page by its name.
func manual(t *testing.T) map[string][]byte {
	t.Helper()
	dir := t.TempDir()
	if code, _, stderr := runVerb(t, "man", dir); code != exitDone {
		t.Fatalf("got exit code %d: %s", code, stderr)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	pages := map[string][]byte{}
	for _, e := range entries {
		if pages[e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return pages
}

func runVerb(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), args, &out, &errs)
	return code, out.String(), errs.String()
}
