package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/disks/smalldisk"
	"github.com/lifeboat/lifeboat/enrol"
)

// A machine may join again under its own name, whatever is left of its certificate, and under any name while it has none.
func TestJoinAgain(t *testing.T) {
	j := &joiner{name: "vm", dir: t.TempDir(), dataDir: t.TempDir()}
	joins := func(what string, refused bool) {
		t.Helper()
		if err := j.sameNode(); (err != nil) != refused {
			t.Errorf("%s, to be %s: got error %v, want one: %t", what, j.name, err, refused)
		}
	}
	joins("nobody", false)
	pki := t.TempDir()
	if err := certs.InitCA(pki); err != nil {
		t.Fatal(err)
	}
	cert, _, err := certs.Issue(pki, certs.Name{Role: certs.RoleNode, Name: "vm"}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	there := enrol.In(j.dataDir).Cert
	if err := os.Mkdir(filepath.Dir(there), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(cert, there); err != nil { // its key is not there
		t.Fatal(err)
	}
	joins("vm", false)
	j.name = "other"
	joins("vm", true)
	if err := os.WriteFile(there, []byte("broken"), 0o600); err != nil {
		t.Fatal(err)
	}
	joins("a broken certificate", false)
}

// waitedFor ends the wait at the first message about it.
type waitedFor struct {
	bytes.Buffer
	end context.CancelFunc
}

func (w *waitedFor) Write(p []byte) (int, error) {
	w.end()
	return w.Buffer.Write(p)
}

// Messages about waiting go to stderr: a script may read stdout.
func TestJoinTellsOfItsWaitOnStderr(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var out bytes.Buffer
	errs := &waitedFor{end: cancel}
	j := &joiner{coordinator: "127.0.0.1:1", name: "vm", dir: t.TempDir(), dataDir: t.TempDir(), out: &out, errs: errs}
	if err := j.run(ctx, certs.Token{}); err == nil || out.Len() > 0 || !strings.HasPrefix(errs.String(), "not yet, trying for 2m0s more: ") {
		t.Errorf("got %v, %q, %q", err, out.String(), errs.String())
	}
}

// A machine whose disk was copied from another joins as itself: no message says to let the other machine leave, which still serves.
func TestJoinOfACopy(t *testing.T) {
	if id, _ := os.ReadFile("/etc/machine-id"); len(bytes.TrimSpace(id)) == 0 {
		t.Skip("this machine has nothing to be told by")
	}
	var said bytes.Buffer
	j := &joiner{name: "copy", dir: t.TempDir(), dataDir: t.TempDir(), out: &said}
	pki := t.TempDir()
	if err := certs.InitCA(pki); err != nil {
		t.Fatal(err)
	}
	cert, _, err := certs.Issue(pki, certs.Name{Role: certs.RoleNode, Name: "golden"}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	there := enrol.In(j.dataDir).Cert
	if err := os.Mkdir(filepath.Dir(there), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(cert, there); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(j.dataDir, "machine"), []byte(`{"product":"golden","machine_id":"golden"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"copied from another machine", ""} { // the second time it is its own
		said.Reset()
		if err := j.startAnew(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := said.String(); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("got %q said, want %q", got, want)
		}
		if err := j.sameNode(); err != nil {
			t.Errorf("it may not be itself: %v", err)
		}
	}
	if _, err := os.Stat(there); !os.IsNotExist(err) {
		t.Errorf("it still has the other's certificate (%v)", err)
	}
}

// A token on the command line can be read by anyone who lists the machine's processes.
func TestJoinReadsTheTokenFromStdin(t *testing.T) {
	const good = "lifeboat1.0123456789ab.D_ke-Vzbrk5RSfOOlCrwInbEHSUu7xOQ.tRKqBamUjT0oB5C3mfnRoXIrH5Qp497LKvpkttLSJx8\n"
	for said, want := range map[string]string{good: "--name a b: ", good[:40]: "join token: ", "": "join token: "} {
		cmd := joinCommand()
		cmd.SetIn(strings.NewReader(said))
		cmd.SetArgs([]string{"127.0.0.1:1", "-", "--name", "a b"})
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: got error %v, want one that begins with %q", said, err, want)
		}
	}
}

// Ctrl-C ends a join that waits for somebody to type the token.
func TestJoinIsInterruptedAtStdin(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	silent, _ := io.Pipe()
	cmd := joinCommand()
	cmd.SetIn(silent)
	cmd.SetArgs([]string{"127.0.0.1:1", "-"})
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	ended := make(chan error, 1)
	go func() { ended <- cmd.ExecuteContext(ctx) }()
	select {
	case err := <-ended:
		if err == nil || !strings.HasPrefix(err.Error(), "read the token from stdin: ") {
			t.Errorf("got error %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("it still reads")
	}
}

// A part of a settings file would stay: the verb leaves a file that is there as it is.
func TestSettingsAreWholeOrNotThere(t *testing.T) {
	dir := smalldisk.New(t, 1<<20)
	file := filepath.Join(dir, "agent.yaml")
	smalldisk.Fill(t, dir)
	if wrote, err := writeSettings(file, "data_dir: /var/lib/lifeboat\n"); wrote || err == nil || exists(file) {
		t.Errorf("full disk: wrote: %t, error %v; the file is there: %t", wrote, err, exists(file))
	}
	if err := os.Remove(filepath.Join(dir, "full")); err != nil {
		t.Fatal(err)
	}
	if wrote, err := writeSettings(file, "data_dir: /var/lib/lifeboat\n"); !wrote || err != nil {
		t.Errorf("there is room again: wrote: %t, error %v", wrote, err)
	}
	if wrote, err := writeSettings(file, "data_dir: /elsewhere\n"); wrote || err != nil {
		t.Errorf("it is there: wrote: %t, error %v", wrote, err)
	}
}

// The coordinator is not root, and reads settings that root wrote with a umask of 077.
func TestSettingsAreForAllToRead(t *testing.T) {
	defer unix.Umask(unix.Umask(0o077))
	file := filepath.Join(t.TempDir(), "coordinator.yaml")
	if _, err := writeSettings(file, "name: c1\n"); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode() != 0o644 {
		t.Errorf("got mode %v, %v, want 0644", info.Mode(), err)
	}
}
