package e2e_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// members are the voting coordinators, as the leader shows them.
func (v *trio) members() map[string]memberView {
	v.t.Helper()
	v.leader()
	all := map[string]memberView{}
	for _, m := range decode[[]memberView](v.verb("raft", "members", "-o", "json").exits(0)) {
		all[m.Name] = m
	}
	return all
}

type memberView struct {
	Name, Address string
	Leader        bool
	Reached       bool
	Leaving       bool
	Lag           uint64
}

// reached waits until that many coordinators vote, and each of them answers and has everything that was decided.
func (v *trio) reached(want int) {
	v.t.Helper()
	v.until(func() error {
		all := v.members()
		for _, m := range all {
			if !m.Reached || m.Lag > 0 {
				return fmt.Errorf("%s is not where the others are: %+v", m.Name, m)
			}
		}
		if len(all) != want {
			return fmt.Errorf("got %d members, want %d", len(all), want)
		}
		return nil
	})
}

// Two coordinators join three; two leave, one of them the leader; one comes back with an empty disk; one moves. An order that the
// first leader decided stands unchanged at the end.
func TestCoordinatorsComeAndGo(t *testing.T) {
	v := newTrio(t, "lease: 1h")
	a := v.agent("host-a")
	v.start()
	a.kill()
	v.verb("decommission", "host-a", "--timeout", "40m").exits(0)
	ordered := a.seen().Deadline

	v.place("c4", freeAddress(t))
	v.place("c5", freeAddress(t))
	for _, name := range []string{"c4", "c5"} {
		v.coordinator(name, "lease: 1h").start()
	}
	at := func(name string) string { return name + "=" + v.grpcs[v.at(name)] }
	v.verb("raft", "add", at("c4")).exits(1).tells("4 coordinators", "no more failures than 3")
	v.verb("raft", "add", at("c4"), at("c5")).exits(0)
	v.grpc = strings.Join(v.grpcs, ",")
	v.reached(5)

	// A coordinator is added only at an address that shows its own certificate, not at one of another coordinator.
	v.verb("raft", "add", "c6="+v.grpcs[v.at("c4")], "c7=127.0.0.1:1").exits(2).tells("is c4's")

	leader := v.leader()
	other := "c1"
	if leader.name == other {
		other = "c2"
	}
	v.verb("raft", "remove", leader.name).exits(1).tells("that would leave 4")
	v.verb("raft", "remove", leader.name, other).exits(0).tells("3 coordinators survive the failure of 1")
	v.reached(3)
	if now := v.leader(); now == leader {
		t.Errorf("%s leads, and was removed", now.name)
	}
	for _, name := range []string{leader.name, other} {
		if _, still := v.members()[name]; still {
			t.Errorf("%s is a member, and was removed", name)
		}
		v.all[v.at(name)].kill()
	}

	// A coordinator that lost its disk may come back under its name only after its removal: one command does both.
	lost, told := "c5", "c4"
	if v.leader().name == lost {
		lost, told = told, lost
	}
	v.all[v.at(lost)].kill()
	if err := os.RemoveAll(filepath.Join(v.dir, lost)); err != nil {
		t.Fatal(err)
	}
	v.verb("raft", "add", at(lost), "--replacing", lost).exits(0)
	v.all[v.at(lost)].start()
	v.reached(3)

	// A coordinator that moved is found at its new address once the others are told, even by a leader whose file still has the old
	// one.
	v.until(func() error {
		if v.leader().name != told {
			v.verb("raft", "transfer", "--to", told)
			return fmt.Errorf("%s does not lead", told)
		}
		return nil
	})
	v.all[v.at(lost)].kill()
	moved := freeAddress(t)
	for i := range v.peers {
		v.peers[i] = strings.ReplaceAll(v.peers[i], v.grpcs[v.at(lost)], moved)
	}
	v.grpcs[v.at(lost)] = moved
	v.grpc = strings.Join(v.grpcs, ",")
	v.coordinator(lost, "lease: 1h").start()
	v.verb("raft", "add", at(lost)).exits(0)
	v.reached(3)
	v.sameDeadline("at the end", a.seen().Deadline, ordered)
}

// A coordinator that listens at another's address shows the wrong certificate, and does not vote in its place.
func TestImpostorIsNoMember(t *testing.T) {
	v := newTrio(t)
	v.agent("host-a")
	v.start()
	follower := v.all[0]
	if v.leader() == follower {
		follower = v.all[1]
	}
	follower.kill()
	run(t, nil, nil, binary, "tls", "issue", "--dir", v.tls, "--coordinator", "c9").exits(0)
	mine := v.write("c9.yaml",
		"name: c9", fmt.Sprintf("listen: {grpc: %q, http: %q}", v.grpcs[v.at(follower.name)], freeAddress(t)),
		"data_dir: "+filepath.Join(v.dir, "c9"), "tls: {ca: tls/ca.pem, cert: tls/c9.pem, key: tls/c9.key}", "heartbeat: 200ms",
		fmt.Sprintf("peers: [{name: c9, address: %q}]", v.grpcs[v.at(follower.name)]))
	impostor := &daemon{t: t, name: "c9", args: []string{"coordinator", "--config", mine}, log: filepath.Join(v.dir, "c9.log")}
	impostor.start()
	defer impostor.kill()
	at := v.grpcs[v.at(follower.name)]
	v.grpc = strings.Join(slices.DeleteFunc(slices.Clone(v.grpcs), func(a string) bool { return a == at }), ",") // the impostor would answer that it leads
	time.Sleep(2 * time.Second)
	if m := v.members()[follower.name]; m.Reached {
		t.Errorf("%s counts as %s", impostor.name, follower.name)
	}
	v.verb("decommission", "host-a", "--timeout", "40m").exits(0) // two of three coordinators are there
}

// browser is an HTTP client with an operator's certificate. It checks the coordinators' host names, as curl does.
func (v *trio) browser() *http.Client {
	v.t.Helper()
	authority, err1 := os.ReadFile(filepath.Join(v.tls, "ca.pem"))
	cert, err2 := tls.LoadX509KeyPair(filepath.Join(v.tls, "operator.pem"), filepath.Join(v.tls, "operator.key"))
	if err := errors.Join(err1, err2); err != nil {
		v.t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{cert}}}
	v.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 10 * time.Second}
}

// A follower redirects a request for its pages to the leader.
func TestPagesOfFollowers(t *testing.T) {
	v := newTrio(t)
	v.agent("host-a")
	v.start()
	leader := v.leader()
	curious, plain := v.browser(), v.browser()
	plain.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	get := func(who *http.Client, at, path string) (*http.Response, string) {
		t.Helper()
		r, err := who.Get("https://" + at + path)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		start := make([]byte, 2048) // a stream of events has no end
		n, err := io.ReadAtLeast(r.Body, start, 40)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatal(err)
		}
		return r, string(start[:n])
	}
	for i, d := range v.all {
		for path, want := range map[string]string{"/nodes": `"host-a"`, "/nodes/host-a": `"host-a"`, "/events": ": events follow"} {
			if r, body := get(curious, v.https[i], path); r.StatusCode != http.StatusOK || !strings.Contains(body, want) {
				t.Errorf("%s at %s: got %s and %q, want %q", path, d.name, r.Status, body, want)
			}
		}
		r, _ := get(plain, v.https[i], "/nodes?x=1")
		want, to := http.StatusOK, ""
		if d != leader {
			want, to = http.StatusTemporaryRedirect, "https://"+v.https[v.at(leader.name)]+"/nodes?x=1"
		}
		if r.StatusCode != want || r.Header.Get("Location") != to {
			t.Errorf("at %s, which leads %t: got %s to %q, want %d to %q", d.name, d == leader, r.Status, r.Header.Get("Location"), want, to)
		}
	}
	for i, d := range v.all {
		if i > 0 {
			d.kill()
		}
	}
	v.until(func() error {
		if r, body := get(plain, v.https[0], "/nodes"); r.StatusCode != http.StatusServiceUnavailable || r.Header.Get("Retry-After") != "1" {
			return fmt.Errorf("got %s and %q, want 503 and when to come again", r.Status, body)
		}
		return nil
	})
}

// The disk of the leader fills up. Another coordinator leads, decisions go on, none is lost, and the one with the full disk says so.
func TestLeaderWithAFullDisk(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	v := newTrio(t, "lease: 1h")
	small := filepath.Join(v.dir, "c1") // the other two are running, and have made their own
	if err := os.Mkdir(small, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", small, "tmpfs", 0, "size=4m"); err != nil {
		t.Skipf("mount: %v", err)
	}
	t.Cleanup(func() {
		v.all[0].kill()
		if err := unix.Unmount(small, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	v.agent("host-a")
	v.start()
	v.nodes[0].kill()
	v.haveLead("c1")
	o := v.office("host-a")
	o.decide()
	hog, err := os.Create(filepath.Join(small, "hog"))
	if err != nil {
		t.Fatal(err)
	}
	for chunk := make([]byte, 4<<10); err == nil; {
		_, err = hog.Write(chunk)
	}
	if err := hog.Close(); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("fill the disk: got %v, want %v", err, unix.ENOSPC)
	}
	for range 60 {
		o.decide()
	}
	v.until(func() error {
		if v.leader().name == "c1" {
			return fmt.Errorf("c1 leads with a full disk")
		}
		return nil
	})
	o.allTold()
	v.until(func() error {
		r, err := v.browser().Get("https://" + v.https[0] + "/readyz")
		if err != nil {
			return err
		}
		defer r.Body.Close()
		if said, err := io.ReadAll(r.Body); err != nil || r.StatusCode != http.StatusServiceUnavailable || !strings.Contains(string(said), "disk of data_dir") {
			return fmt.Errorf("readyz says %s %s (%v)", r.Status, said, err)
		}
		return nil
	})
	if log := v.all[0].logged(); !strings.Contains(log, "the log cannot be written") || !strings.Contains(log, "no space left on device") {
		t.Errorf("the log does not say what is wrong:\n%s", log)
	}
	if err := os.Remove(hog.Name()); err != nil {
		t.Fatal(err)
	}
	v.reached(3)
}

// The disk of the leader hangs: writes to it neither end nor fail. Another coordinator leads. The one that hangs says why it does not,
// and follows once its disk answers.
func TestLeaderWhoseDiskHangs(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting needs root")
	}
	v := newTrio(t, "lease: 1h")
	dir := filepath.Join(v.dir, "c1") // the other two are running, and have made their own
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	mounts(t, "ext4")
	file := filepath.Join(t.TempDir(), "image")
	makeImage(t, file, 64<<20, "ext4")
	disk := loop(t, file, "ext4", dir)
	t.Cleanup(func() { v.all[0].kill() })
	v.agent("host-a")
	v.start()
	v.nodes[0].kill()
	v.haveLead("c1")
	disk.freeze()
	v.grpc = v.grpcs[0] // the coordinator that hangs is asked alone: the order is not decided
	v.verb("decommission", "host-a", "--timeout", "40m")
	v.grpc = strings.Join(v.grpcs[1:], ",")
	v.until(func() error {
		if v.leader().name == "c1" {
			return fmt.Errorf("c1 leads, and its disk hangs")
		}
		return nil
	})
	v.verb("deactivate", "host-a").exits(0)
	if log := v.all[0].logged(); !strings.Contains(log, "the disk of data_dir hangs") {
		t.Errorf("the log does not say what is wrong:\n%s", log)
	}
	if err := disk.thaw(); err != nil {
		t.Fatal(err)
	}
	v.grpc = strings.Join(v.grpcs, ",")
	v.reached(3)
}
