package interop_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const images = "../packaging/images"

// tool returns the path of a program. It skips the test if the program is not installed, or LIFEBOAT_INTEROP=1 is not set.
func tool(t *testing.T, name string) string {
	t.Helper()
	if os.Getenv("LIFEBOAT_INTEROP") != "1" {
		t.Skip("LIFEBOAT_INTEROP=1 is not set: other people's programs are not run")
	}
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("%s is not installed: %v", name, err)
	}
	return path
}

func says(t *testing.T, program string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env = append(os.Environ(), "CHECKPOINT_DISABLE=1", "AWS_ACCESS_KEY_ID=none", "AWS_SECRET_ACCESS_KEY=none") // without them it would ask the network
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, out)
	}
}

// Packer accepts the templates. Versions before 1.7, as in Debian, have their plugins built in and do not know the block that
// names them; later versions would have to download them, so they check only the syntax.
func TestPackerAcceptsTheTemplates(t *testing.T) {
	packer := tool(t, "packer")
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(images)); err != nil {
		t.Fatal(err)
	}
	check := []string{"validate", "-syntax-only"}
	if out, err := exec.CommandContext(t.Context(), packer, "version").Output(); err == nil && strings.Contains(string(out), "v1.6.") {
		check = []string{"validate"}
		if err := os.Remove(filepath.Join(dir, "plugins.pkr.hcl")); err != nil {
			t.Fatal(err)
		}
	}
	deb := filepath.Join(dir, "lifeboat.deb")
	if err := os.WriteFile(deb, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, cloud := range []string{"ec2", "google", "azure"} {
		says(t, packer, append(check, "-only", cloud+".*", "-var", "deb="+deb, "-var", "coordinators=10.0.0.1:7411", "-var", "pin=x",
			"-var", "google_project=p", "-var", "azure_subscription=8d10da13-8125-4ba9-a717-bf7490507b3d", "-var", "azure_group=g", dir)...)
	}
}

// cloud-init knows every key of the user-data. Older versions do not know its templates, so the first line is removed; the
// placeholders are only inside of a text.
func TestCloudInitAcceptsTheUserData(t *testing.T) {
	cloudInit := tool(t, "cloud-init")
	for _, name := range []string{"token", "document", "azure"} {
		text, err := os.ReadFile(filepath.Join(images, "user-data", name+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), name+".yaml")
		if err := os.WriteFile(file, []byte(strings.TrimPrefix(string(text), "## template: jinja\n")), 0o600); err != nil {
			t.Fatal(err)
		}
		says(t, cloudInit, "schema", "--config-file", file)
	}
}

func TestShellcheckFindsNothing(t *testing.T) {
	says(t, tool(t, "shellcheck"), filepath.Join(images, "install.sh"))
}
