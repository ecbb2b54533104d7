package hosts_test

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"
)

const (
	// suite and extras are the Debian release and packages of a host before Lifeboat: it boots, and has a bus for logind.
	suite  = "bookworm"
	extras = "systemd,systemd-sysv,dbus"

	bootTools = "apt install debootstrap systemd-container"
)

// errNoImage says that no Debian could be fetched, as without a mirror. The project is not at fault, so the stories are
// skipped.
var errNoImage = errors.New("no Debian to boot: set LIFEBOAT_ROOT to one")

// image is the directory of a Debian without Lifeboat. LIFEBOAT_ROOT names one; else debootstrap makes it once, in the user's
// cache. Nothing ever writes into it.
var image = sync.OnceValues(func() (string, error) {
	if err := needs(bootTools, "systemd-nspawn"); err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil && os.Getenv("LIFEBOAT_ROOT") == "" {
		return "", fmt.Errorf("no place for a Debian: set LIFEBOAT_ROOT: %w", err)
	}
	dir := cmp.Or(os.Getenv("LIFEBOAT_ROOT"), filepath.Join(cache, "lifeboat", "debian-"+suite))
	if _, err := os.Stat(filepath.Join(dir, "usr/lib/systemd/systemd")); err == nil {
		return dir, nil
	}
	if err := needs(bootTools, "debootstrap"); err != nil {
		return "", err
	}
	fmt.Fprintln(os.Stderr, "hosts: making a Debian in", dir, "which takes a minute, once")
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", err
	}
	half, err := os.MkdirTemp(filepath.Dir(dir), ".half-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(half) // removes what a failure leaves
	cmd := exec.Command("debootstrap", "--variant=minbase", "--include="+extras, suite, filepath.Join(half, "root"))
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: debootstrap: %w\n%s", errNoImage, err, lastLines(string(out)))
	}
	if err := os.Rename(filepath.Join(half, "root"), dir); err != nil {
		return "", err
	}
	return dir, nil
})

// debs are the package as it would be released, and the next version. LIFEBOAT_E2E_PACKAGES names a directory that keeps them
// from run to run, in 1.0.0 and 1.0.1.
var debs = sync.OnceValues(func() (two [2]string, err error) {
	for i, version := range []string{"1.0.0", "1.0.1"} {
		dir := filepath.Join(cmp.Or(os.Getenv("LIFEBOAT_E2E_PACKAGES"), filepath.Join(inside, "packages")), version)
		if found, _ := filepath.Glob(filepath.Join(dir, "*.deb")); len(found) == 1 {
			two[i] = found[0]
			continue
		}
		cmd := exec.Command("../../packaging/build", dir)
		cmd.Env = append(os.Environ(), "VERSION="+version, "ARCHES="+runtime.GOARCH, fmt.Sprintf("SOURCE_DATE_EPOCH=%d", time.Now().Unix()))
		if out, err := cmd.CombinedOutput(); err != nil {
			return two, fmt.Errorf("packaging/build: %w\n%s", err, lastLines(string(out)))
		}
		found, err := filepath.Glob(filepath.Join(dir, "*.deb"))
		if err != nil || len(found) != 1 {
			return two, fmt.Errorf("packaging/build made %v in %s, want one deb (%v)", found, dir, err)
		}
		two[i] = found[0]
	}
	return two, nil
})

// bootable skips a story on a machine where no host can boot.
func bootable(t *testing.T) {
	t.Helper()
	if err := lacking(); err != nil {
		t.Skip(err)
	}
	if err := needs(bootTools, "systemd-nspawn"); err != nil {
		t.Skip(err)
	}
	if _, err := image(); errors.Is(err, errNoImage) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	if _, err := debs(); err != nil {
		t.Fatal(err)
	}
}
