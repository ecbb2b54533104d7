package hosts_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lifeboat/lifeboat/preemption/ec2fake"
)

// host is a booted machine. Its disk is an overlay over the image, or over another host's disk.
type host struct {
	*node
	disk  string // the mounted disk, as seen from outside
	upper string // the overlay's upper directory, which has what the host wrote
	cloud *ec2fake.Service

	cmd   *exec.Cmd // systemd-nspawn
	ended chan struct{}
	init  int // PID of its systemd
}

// rack makes a machine that is switched off. Its empty disk lies over what the golden hosts wrote, and that over the
// image.
func (f *town) rack(name string, golden ...*host) *host {
	f.t.Helper()
	bootable(f.t)
	base, err := image()
	if err != nil {
		f.t.Fatal(err)
	}
	dir := filepath.Join(f.dir, name)
	h := &host{disk: filepath.Join(dir, "disk"), upper: filepath.Join(dir, "upper")}
	h.node = &node{f: f, host: name, dir: h.disk, blocks: map[string]string{}, daemon: &daemon{t: f.t, on: f.w.machine(name), log: filepath.Join(f.dir, name+".console")}}
	work := filepath.Join(dir, "work")
	for _, d := range []string{h.disk, h.upper, work} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			f.t.Fatal(err)
		}
	}
	lower := base
	for _, g := range golden {
		lower = g.upper + ":" + lower
	}
	if err := unix.Mount("overlay", h.disk, "overlay", 0, fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", lower, h.upper, work)); err != nil {
		f.t.Fatalf("mount the disk of %s: %v", name, err)
	}
	f.t.Cleanup(func() {
		if err := unix.Unmount(h.disk, unix.MNT_DETACH); err != nil {
			f.t.Error(err)
		}
	})
	h.write("etc/hostname", 0o644, name) // debootstrap leaves the name of the machine that it ran on
	h.metadata()
	return h
}

// metadata serves EC2's metadata at 169.254.169.254, on this machine alone.
func (h *host) metadata() {
	h.t.Helper()
	h.cloud = ec2fake.New(ec2fake.Instance{ID: "i-" + h.host, Type: "r5.large", Zone: "zone-" + h.host, Region: "e2e", LifeCycle: "spot"})
	h.on.w.batch(h.on.ns, "addr add 169.254.169.254/32 dev lo")
	var l net.Listener
	err := h.on.within(func() (err error) {
		l, err = net.Listen("tcp", "169.254.169.254:80")
		return err
	})
	if err != nil {
		h.t.Fatal(err)
	}
	server := &http.Server{Handler: h.cloud}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	h.t.Cleanup(func() {
		if err := errors.Join(server.Close(), ignore(<-served, http.ErrServerClosed)); err != nil {
			h.t.Error(err)
		}
	})
}

func ignore(err, what error) error {
	if errors.Is(err, what) {
		return nil
	}
	return err
}

// write puts a file on the disk.
func (h *host) write(path string, mode os.FileMode, lines ...string) {
	h.t.Helper()
	path = filepath.Join(h.disk, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		h.t.Fatal(err)
	}
	var text strings.Builder
	for _, l := range lines {
		text.WriteString(l + "\n")
	}
	if err := os.WriteFile(path, []byte(text.String()), mode); err != nil {
		h.t.Fatal(err)
	}
}

// certify copies a certificate onto the disk.
func (h *host) certify(name string) {
	h.t.Helper()
	for file, mode := range map[string]os.FileMode{"ca.pem": 0o644, name + ".pem": 0o644, name + ".key": 0o600} {
		text, err := os.ReadFile(filepath.Join(h.f.tls, file))
		if err != nil {
			h.t.Fatal(err)
		}
		h.write(filepath.Join("etc/lifeboat", file), mode, strings.TrimSpace(string(text)))
	}
}

// configure writes /etc/lifeboat as an operator would, with a certificate of the host's own.
func (h *host) configure(extra ...string) {
	h.t.Helper()
	h.f.operator.run(nil, "tls", "issue", "--dir", h.f.tls, "--node", h.host).exits(0)
	h.certify(h.host)
	lines := []string{
		fmt.Sprintf("coordinators: [%s]", strings.Join(h.f.addresses(), ", ")),
		fmt.Sprintf("tls: {ca: ca.pem, cert: %[1]s.pem, key: %[1]s.key}", h.host),
		"cloud: {provider: ec2}",
		"receive: {reserve_bytes: 16MiB}",
		"stores: [{name: cache, kind: cache, layout: files, paths: [/cache]}]",
	}
	for _, e := range extra { // it replaces the line with the same key
		key, _, _ := strings.Cut(e, ":")
		lines = append(slices.DeleteFunc(lines, func(l string) bool { return strings.HasPrefix(l, key+":") }), e)
	}
	h.write("etc/lifeboat/agent.yaml", 0o644, lines...)
}

// boot switches the machine on, and waits until programs can be run on it. The options are additional ones of
// systemd-nspawn.
func (h *host) boot(options ...string) {
	h.t.Helper()
	procs, err := newCgroup(h.on.ns)
	if err != nil {
		h.t.Fatal(err)
	}
	two, err := debs()
	if err != nil {
		h.t.Fatal(err)
	}
	console, err := os.OpenFile(h.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		h.t.Fatal(err)
	}
	defer console.Close()
	var script strings.Builder
	for _, p := range procs {
		fmt.Fprintf(&script, "echo 0 > %s; ", p)
	}
	h.cmd = exec.Command("sh", append([]string{"-ec", script.String() + `exec "$@"`, "sh", "systemd-nspawn", "--quiet", "--directory=" + h.disk,
		"--machine=" + h.host, "--register=no", "--keep-unit", "--link-journal=no", "--resolv-conf=off", "--timezone=off", "--console=pipe",
		"--network-namespace-path=" + filepath.Join(namespaces, h.on.ns),
		"--bind-ro=" + two[0] + ":/media/lifeboat.deb", "--bind-ro=" + two[1] + ":/media/newer.deb", "--boot"}, options...)...)
	h.cmd.Stdout, h.cmd.Stderr = console, console
	h.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := h.cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	h.ended, h.init = make(chan struct{}), 0
	ended, cmd := h.ended, h.cmd
	go func() {
		defer close(ended)
		_ = cmd.Wait() // ProcessState says how it ended
	}()
	h.t.Cleanup(h.cutPower)
	until(h.t, func() error {
		if h.off() {
			text, _ := os.ReadFile(h.log) // shown as far as it can be read
			h.t.Fatalf("%s did not boot:\n%s", h.host, lastLines(string(text)))
		}
		if h.init = childOf(cmd.Process.Pid); h.init == 0 { // the first child is only a helper
			return errors.New("no systemd yet")
		}
		h.socket = fmt.Sprintf("/proc/%d/root/run/lifeboat/agent.sock", h.init)
		if s := h.try("systemctl", "is-active", "multi-user.target", "dbus.socket"); s.code != 0 {
			return fmt.Errorf("%s is not up: %s%s", h.host, s.stdout, s.stderr)
		}
		return nil
	})
}

// childOf is the newest child of a process; 0 while there is none.
func childOf(pid int) (child int) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", pid))
	if err != nil {
		return 0
	}
	for word := range strings.FieldsSeq(string(text)) {
		child, _ = strconv.Atoi(word) // the kernel writes numbers
	}
	return child
}

// off reports whether the machine is off.
func (h *host) off() bool {
	select {
	case <-h.ended:
		return true
	default:
		return false
	}
}

// cutPower ends the machine as the cloud does in the end: nothing can react.
func (h *host) cutPower() {
	switch {
	case h.off():
		return
	case h.t.Failed():
		s := h.try("journalctl", "--no-pager", "--unit=lifeboat-agent", "--lines="+strconv.Itoa(shownLines))
		h.t.Logf("journal of %s:\n%s%s", h.host, s.stdout, s.stderr)
	}
	_ = syscall.Kill(-h.cmd.Process.Pid, syscall.SIGKILL) // it may have ended meanwhile
	if h.init != 0 {
		_ = syscall.Kill(h.init, syscall.SIGKILL) // nspawn would do it last, but was killed
	}
	<-h.ended
}

// goesDown waits until the machine has switched itself off.
func (h *host) goesDown() {
	h.t.Helper()
	select {
	case <-h.ended:
	case <-time.After(patience):
		h.t.Fatalf("%s still runs after %s", h.host, patience)
	}
}

// try runs a program on the host as its root.
func (h *host) try(program string, args ...string) said {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), runLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "nsenter", append([]string{"--target=" + strconv.Itoa(h.init), "--mount", "--uts", "--ipc", "--net", "--pid", "--", program}, args...)...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "TERM=dumb", "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive", "SYSTEMD_PAGER="}
	cmd.WaitDelay = time.Second
	return finish(ctx, h.t, cmd, h.host+": "+program+" "+strings.Join(args, " "))
}

// does runs a program that must succeed, and returns its output.
func (h *host) does(program string, args ...string) string {
	h.t.Helper()
	return h.try(program, args...).exits(0).stdout
}

// install installs the package. That starts the daemons that are configured.
func (h *host) install(deb string) { h.t.Helper(); h.does("dpkg", "--install", "/media/"+deb) }

// property is a property of the agent's unit.
func (h *host) property(name string) string {
	h.t.Helper()
	return strings.TrimSpace(h.does("systemctl", "show", "--value", "--property="+name, "lifeboat-agent.service"))
}

// journalTells returns nil once the agent's journal has that word.
func (h *host) journalTells(word string) error {
	if text := h.does("journalctl", "--no-pager", "--unit=lifeboat-agent"); !strings.Contains(text, word) {
		return fmt.Errorf("the journal of %s does not tell of %s:\n%s", h.host, word, lastLines(text))
	}
	return nil
}

// newHost is a configured, booted host with the package, which the town's nodes know.
func (f *town) newHost(name string, extra ...string) *host {
	f.t.Helper()
	h := f.rack(name)
	h.configure(extra...)
	h.fill(16, 8<<20)
	h.boot()
	h.install("lifeboat.deb")
	f.until(h.is("ACTIVE"))
	f.until(h.knows(len(f.nodes)))
	return h
}
