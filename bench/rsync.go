package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"time"
)

// rsyncArgs leave out rsync's search for what the target has already: everything is new there, and the search would only
// cost time. rsync keeps modes and times as an archive does and verifies each file's checksum, but syncs nothing.
var rsyncArgs = []string{"-a", "--whole-file"}

// rsyncDaemon is rsync at its fastest: no encryption, no second process on the source.
type rsyncDaemon struct{}

func (rsyncDaemon) name() string { return "rsync daemon" }

func (rsyncDaemon) move(ctx context.Context, from source, into string) (out outcome, err error) {
	target, at, err := site(into)
	if err != nil {
		return out, err
	}
	host, port, _ := net.SplitHostPort(at)
	conf := fmt.Sprintf("address = %s\nport = %s\nuse chroot = no\n[target]\npath = %s\nread only = no\n", host, port, target)
	if os.Getuid() == 0 {
		conf += "uid = 0\ngid = 0\n" // else rsync would become nobody, who may not write there
	}
	file := filepath.Join(into, "rsyncd.conf")
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		return out, err
	}
	server, err := serving(ctx, at, filepath.Join(into, "rsyncd.log"), "rsync", "--daemon", "--no-detach", "--config", file, "--log-file=/dev/stderr")
	if err != nil {
		return out, err
	}
	out, err = rsync(ctx, from, target, "rsync://"+at+"/target/")
	cpu, stopped := server.stop()
	out.cpu += cpu
	if err != nil {
		err = server.trouble(err)
	}
	return out, errors.Join(err, stopped)
}

// rsync runs the client and then syncs the target's file system. The CPU time is the client's: the kernel's own threads
// do most of the writing back, and their time is nobody's.
func rsync(ctx context.Context, from source, target, url string, args ...string) (out outcome, err error) {
	args = append(append(append([]string{}, rsyncArgs...), args...), from.dir+"/", url)
	began := time.Now()
	_, out.cpu, err = command(ctx, "rsync", args...)
	out.sent = time.Since(began)
	out.told = out.sent
	if err != nil {
		return out, err
	}
	err = arrived(&out, began, target, from)
	return out, err
}

// cipher is the fastest cipher that both ends have on processors with AES instructions.
const cipher = "aes128-gcm@openssh.com"

// rsyncSSH is what most people use: rsync, encrypted, over an sshd that runs for this alone.
type rsyncSSH struct {
	dir  string // keys
	sshd string
	user string
}

// sshd finds the full path of sshd, by which it must be started: it starts itself again for each connection.
func sshd() (string, error) {
	for _, dir := range append(filepath.SplitList(os.Getenv("PATH")), "/usr/sbin", "/usr/local/sbin") {
		p := filepath.Join(dir, "sshd")
		if info, err := os.Stat(p); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return p, nil
		}
	}
	return "", os.ErrNotExist
}

func newRsyncSSH(ctx context.Context, work string) (*rsyncSSH, error) {
	server, err := sshd()
	if err != nil {
		return nil, err
	}
	who, err := user.Current()
	if err != nil {
		return nil, err
	}
	s := &rsyncSSH{dir: filepath.Join(work, "ssh"), sshd: server, user: who.Username}
	if err := os.Mkdir(s.dir, 0o700); err != nil {
		return nil, err
	}
	if os.Getuid() == 0 {
		// sshd confines itself to this directory. Its service makes it, but there may be no service here.
		if err := os.MkdirAll("/run/sshd", 0o755); err != nil {
			return nil, err
		}
	}
	for _, key := range []string{"host", "user"} {
		if _, _, err := command(ctx, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "lifeboat-bench", "-f", filepath.Join(s.dir, key)); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *rsyncSSH) name() string { return "rsync over ssh" }

func (s *rsyncSSH) move(ctx context.Context, from source, into string) (out outcome, err error) {
	target, at, err := site(into)
	if err != nil {
		return out, err
	}
	host, port, _ := net.SplitHostPort(at)
	known, client, conf := filepath.Join(into, "known_hosts"), filepath.Join(into, "ssh_config"), filepath.Join(into, "sshd_config")
	pub, err := os.ReadFile(filepath.Join(s.dir, "host.pub"))
	if err != nil {
		return out, err
	}
	if err := os.WriteFile(known, fmt.Appendf(nil, "[%s]:%s %s", host, port, pub), 0o600); err != nil {
		return out, err
	}
	if err := os.WriteFile(client, []byte(s.clientConfig(port, known)), 0o600); err != nil {
		return out, err
	}
	if err := os.WriteFile(conf, []byte(s.serverConfig(host, port)), 0o600); err != nil {
		return out, err
	}
	server, err := serving(ctx, at, filepath.Join(into, "sshd.log"), s.sshd, "-D", "-e", "-f", conf)
	if err != nil {
		return out, err
	}
	out, err = rsync(ctx, from, target, s.user+"@"+host+":"+target+"/", "-e", "ssh -F '"+client+"'")
	cpu, stopped := server.stop()
	out.cpu += cpu
	if err != nil {
		err = server.trouble(err)
	}
	return out, errors.Join(err, stopped)
}

func (s *rsyncSSH) clientConfig(port, known string) string {
	return fmt.Sprintf(`Port %s
IdentityFile "%s"
IdentitiesOnly yes
UserKnownHostsFile "%s"
StrictHostKeyChecking yes
BatchMode yes
Ciphers %s
Compression no
`, port, filepath.Join(s.dir, "user"), known, cipher)
}

func (s *rsyncSSH) serverConfig(host, port string) string {
	return fmt.Sprintf(`ListenAddress %s
Port %s
HostKey "%s"
AuthorizedKeysFile "%s"
AllowUsers %s
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
StrictModes no
Ciphers %s
PidFile none
`, host, port, filepath.Join(s.dir, "host"), filepath.Join(s.dir, "user.pub"), s.user, cipher)
}
