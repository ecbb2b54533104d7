package hosts_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// sourceDate is the date of the packages below. Any will do: the same date gives the same bytes.
const sourceDate = "1795327000"

// buildPackages builds the packages for both processors.
func buildPackages(t *testing.T, dir string) {
	t.Helper()
	cmd := exec.Command("../../packaging/build", dir)
	cmd.Env = append(os.Environ(), "VERSION=1.2.3", "ARCHES=amd64 arm64", "SOURCE_DATE_EPOCH="+sourceDate)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("packaging/build: %v\n%s", err, lastLines(string(out)))
	}
}

// The same source gives the same bytes, for both processors and both kinds of package. lintian finds only what is explained,
// and an rpm can be installed.
func TestPackages(t *testing.T) {
	story(t)
	one, two := t.TempDir(), t.TempDir()
	buildPackages(t, one)
	buildPackages(t, two)
	names := []string{"lifeboat_1.2.3_amd64.deb", "lifeboat_1.2.3_arm64.deb", "lifeboat-1.2.3-1.x86_64.rpm", "lifeboat-1.2.3-1.aarch64.rpm"}
	for _, name := range names {
		if a, b := sha256Of(t, filepath.Join(one, name)), sha256Of(t, filepath.Join(two, name)); a != b {
			t.Errorf("%s: two builds have the sums %s and %s", name, a, b)
		}
	}
	t.Run("lintian", func(t *testing.T) {
		if err := needs("apt install lintian", "lintian"); err != nil {
			t.Skip(err)
		}
		for _, name := range names[:2] {
			out, err := exec.Command("lintian", "--allow-root", "--fail-on=error,warning", "--tag-display-limit=0", filepath.Join(one, name)).CombinedOutput()
			if err != nil {
				t.Errorf("lintian %s: %v\n%s", name, err, out)
			}
		}
	})
	t.Run("rpm", func(t *testing.T) {
		if err := needs("apt install rpm", "rpm"); err != nil {
			t.Skip(err)
		}
		root := t.TempDir()
		file := filepath.Join(one, names[2])
		out, err := exec.Command("rpm", "--root", root, "--install", "--nodeps", "--noscripts", "--ignoresize", file).CombinedOutput()
		if err != nil {
			t.Fatalf("rpm --install: %v\n%s", err, out)
		}
		for _, path := range []string{"usr/bin/lifeboat", "usr/lib/systemd/system/lifeboat-agent.service", "etc/lifeboat/environment", "usr/lib/lifeboat/decommission-self"} {
			if _, err := os.Stat(filepath.Join(root, path)); err != nil {
				t.Error(err)
			}
		}
		kept, err := exec.Command("rpm", "--query", "--package", "--configfiles", file).Output()
		if got := strings.TrimSpace(string(kept)); err != nil || got != "/etc/lifeboat/environment" {
			t.Errorf("files of settings that outlive an upgrade: got %q (%v), want /etc/lifeboat/environment", got, err)
		}
	})
	t.Run("same files", func(t *testing.T) {
		var debs []string
		for _, name := range names[:2] {
			out, err := exec.Command("dpkg-deb", "--contents", filepath.Join(one, name)).Output()
			if err != nil {
				t.Skip(fmt.Errorf("dpkg-deb: %w", err))
			}
			var paths bytes.Buffer
			for line := range strings.Lines(string(out)) {
				fields := strings.Fields(line)
				fmt.Fprintln(&paths, fields[0], fields[1], fields[len(fields)-1])
			}
			debs = append(debs, paths.String())
		}
		if debs[0] != debs[1] {
			t.Errorf("the packages of two processors hold other files:\n%s\n%s", debs[0], debs[1])
		}
	})
}
