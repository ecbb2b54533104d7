package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/enrol"
)

// A machine may join as who it is, whatever is left of its certificate, and as anybody while it is nobody.
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

// waitedFor ends a wait as soon as it is told of.
type waitedFor struct {
	bytes.Buffer
	end context.CancelFunc
}

func (w *waitedFor) Write(p []byte) (int, error) {
	w.end()
	return w.Buffer.Write(p)
}

// What is waited for is told beside what was done, which a script may read.
func TestJoinTellsOfItsWaitOnStderr(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var out bytes.Buffer
	errs := &waitedFor{end: cancel}
	j := &joiner{coordinator: "127.0.0.1:1", name: "vm", dir: t.TempDir(), dataDir: t.TempDir(), out: &out, errs: errs}
	if err := j.run(ctx, certs.Token{}); err == nil || out.Len() > 0 || !strings.HasPrefix(errs.String(), "not yet, trying for 2m0s: ") {
		t.Errorf("got %v, %q, %q", err, out.String(), errs.String())
	}
}
