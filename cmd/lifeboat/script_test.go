package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

var update = flag.Bool("update", false, "rewrite the golden parts of testdata/script")

func TestMain(m *testing.M) {
	for _, name := range []string{"LIFEBOAT_COORDINATOR", "LIFEBOAT_TLS_DIR", "LIFEBOAT_SOCKET", "LIFEBOAT_BIN"} {
		os.Unsetenv(name) // the developer's own cluster is none of a test's business
	}
	os.Exit(m.Run())
}

// TestScript runs the scripts in testdata/script. Beside testscript's own commands they have
//
//	lifeboat ARGS         runs a verb in this process; it must exit 0
//	exits CODE ARGS       the same, and it must exit with CODE
//
// and $COORD (flags to reach the pretend coordinator), $ADDR (where it is), $SOCK (flags to reach the pretend agent), $PEER (a peer's address),
// $TLS (its PKI) and $SCRIPTS (packaging/bin). In what a verb prints, a peer's address reads NODE.test.
func TestScript(t *testing.T) {
	scripts, err := filepath.Abs("../../packaging/bin")
	if err != nil {
		t.Fatal(err)
	}
	verb := func(ts *testscript.TestScript, want int, args []string) {
		f := ts.Value("fleet").(*fleet)
		var words []string
		for _, a := range args { // an expanded variable is one word to testscript
			if a == ts.Getenv("COORD") || a == ts.Getenv("SOCK") {
				words = append(words, strings.Fields(a)...)
			} else {
				words = append(words, a)
			}
		}
		var stdout, stderr bytes.Buffer
		got := run(t.Context(), words, &stdout, &stderr)
		plain := []string{ts.Getenv("WORK"), "$WORK", f.socket, "$SOCKET", f.coordinator, "c1.test"}
		for name, address := range f.peers {
			plain = append(plain, address, name+".test")
		}
		r := strings.NewReplacer(plain...)
		_, err := r.WriteString(ts.Stdout(), stdout.String())
		ts.Check(err)
		_, err = r.WriteString(ts.Stderr(), stderr.String())
		ts.Check(err)
		if got != want {
			ts.Fatalf("lifeboat %s: got exit code %d, want %d\n%s", strings.Join(words, " "), got, want, stderr.String())
		}
	}
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			f, err := startFleet(env.WorkDir, false, env.Defer)
			if err != nil {
				return err
			}
			env.Values["fleet"] = f
			env.Setenv("ADDR", f.coordinator)
			env.Setenv("COORD", "--coordinator "+f.coordinator+" --tls-dir "+f.tls)
			env.Setenv("SOCK", "--socket "+f.socket)
			env.Setenv("PEER", f.peers["host-b"])
			env.Setenv("TLS", f.tls)
			env.Setenv("SCRIPTS", scripts)
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"lifeboat": func(ts *testscript.TestScript, neg bool, args []string) {
				if neg {
					ts.Fatalf("say which code: exits CODE %s", strings.Join(args, " "))
				}
				verb(ts, exitDone, args)
			},
			"exits": func(ts *testscript.TestScript, neg bool, args []string) {
				if neg || len(args) == 0 {
					ts.Fatalf("usage: exits CODE ARGS")
				}
				code, err := strconv.Atoi(args[0])
				ts.Check(err)
				verb(ts, code, args[1:])
			},
		},
	})
}
