package house_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/lifeboat/lifeboat/agent"
)

const images = "packaging/images/"

// accepted loads settings as an agent does. An error fails the test.
func accepted(t *testing.T, where, settings string) agent.Config {
	t.Helper()
	file := filepath.Join(t.TempDir(), "agent.yaml")
	if err := os.WriteFile(file, []byte(settings), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := agent.Load(file)
	if err != nil {
		t.Errorf("%s: %v", where, err)
	}
	return cfg
}

// An agent accepts the settings that user-data writes for it.
func TestUserDataIsAccepted(t *testing.T) {
	for _, name := range []string{"token", "document", "azure"} {
		var data struct {
			Files []struct{ Path, Permissions, Content string } `yaml:"write_files"`
		}
		text := strings.ReplaceAll(read(t, images+"user-data/"+name+".yaml"), "{{ v1.instance_id | lower }}", "02aab8a4-74ef-476e-8182-f6d2ba4166a6")
		if err := yaml.Unmarshal([]byte(text), &data); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		written := map[string]string{}
		for _, f := range data.Files {
			written[f.Path] = f.Permissions
			if f.Path == "/etc/lifeboat/agent.yaml" {
				cfg := accepted(t, name, f.Content)
				if file := cfg.Join.TokenFile; file != "" && written[file] != "0600" {
					t.Errorf("%s: the token is written to %v, want %s with 0600", name, written, file)
				}
			}
		}
		if written["/etc/lifeboat/agent.yaml"] == "" {
			t.Errorf("%s writes %v, want the agent's settings", name, written)
		}
	}
}

// The images' install.sh writes settings that an agent accepts, and refuses incomplete variables.
func TestImageSettings(t *testing.T) {
	root := t.TempDir()
	install := func(env ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), "/bin/sh", "../"+images+"install.sh")
		cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "ROOT=" + root, "LIFEBOAT=true"}, env...)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := install("COORDINATORS=10.0.0.1:7411"); err == nil || !strings.Contains(out, "lifeboat tls pin") {
		t.Errorf("without a pin: got %v, %q", err, out)
	}
	pin := strings.Repeat("A", 43)
	if out, err := install("COORDINATORS=10.0.0.1:7411,10.0.0.2:7411", "PROVIDER=ec2", "PIN="+pin); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	data, err := os.ReadFile(filepath.Join(root, "etc/lifeboat/agent.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	cfg := accepted(t, "install.sh", string(data))
	if len(cfg.Coordinators) != 2 || !cfg.Join.Cloud || cfg.Join.Pin != pin || cfg.Cloud.Provider != "ec2" {
		t.Errorf("got settings %+v", cfg)
	}
}

// Templates run scripts that exist, and set only variables that the script reads.
func TestTemplatesNameWhatExists(t *testing.T) {
	script := read(t, images+"install.sh")
	for _, name := range []string{"ec2", "google", "azure"} {
		text := read(t, images+name+".pkr.hcl")
		found := regexp.MustCompile(`\$\{path\.root\}/([^"]+)`).FindAllStringSubmatch(text, -1)
		if len(found) == 0 {
			t.Errorf("%s runs no script", name)
		}
		for _, m := range found {
			if _, err := os.Stat(filepath.Join(root, images, m[1])); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		for _, m := range regexp.MustCompile(`"([A-Z]+)=`).FindAllStringSubmatch(text, -1) {
			if !strings.Contains(script, `"${`+m[1]) {
				t.Errorf("%s sets %s, which install.sh does not read", name, m[1])
			}
		}
	}
}
