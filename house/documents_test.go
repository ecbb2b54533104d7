package house_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/lifeboat/lifeboat/agent"
	"github.com/lifeboat/lifeboat/config"
	"github.com/lifeboat/lifeboat/coordinator"
)

func documents(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/benchmarks/*.md", "docs/design/*.md"} {
		paths, err := fs.Glob(os.DirFS(root), pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range paths {
			texts[p] = read(t, p)
		}
	}
	if texts["README.md"] == "" {
		t.Fatal("found no README.md")
	}
	return texts
}

var (
	makeTarget = regexp.MustCompile(`(?m)^([a-z0-9]+(?: [a-z0-9]+)*):`)
	makeCall   = regexp.MustCompile("(?m)(?:`|^\\s*\\$? ?)make ([a-z0-9]+)\\b")
	sourceFile = regexp.MustCompile("`([a-z0-9_/]+\\.go)`")
	link       = regexp.MustCompile(`\]\(([^):#]*)(?:#([^)]*))?\)`)
	heading    = regexp.MustCompile(`(?m)^#+ (.*)$`)
	notInName  = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	yamlBlock  = regexp.MustCompile("(?s)```yaml\n# [^\n]*(agent|coordinator)\\.yaml[^\n]*\n(.*?)```")
)

func TestDocumentsNameMakeTargetsThatExist(t *testing.T) {
	targets := map[string]bool{}
	for _, m := range makeTarget.FindAllStringSubmatch(read(t, "Makefile"), -1) {
		for name := range strings.FieldsSeq(m[1]) {
			targets[name] = true
		}
	}
	texts := documents(t)
	texts[".ci/run"] = read(t, ".ci/run")
	for path, text := range texts {
		calls := makeCall.FindAllStringSubmatch(text, -1)
		if path == "README.md" && len(calls) < 2 {
			t.Errorf("README.md calls %d make targets: want make run and make test at least", len(calls))
		}
		for _, m := range calls {
			if !targets[m[1]] {
				t.Errorf("%s says make %s, which the Makefile does not have", path, m[1])
			}
		}
	}
}

func TestDocumentsLinkToWhatExists(t *testing.T) {
	texts := documents(t)
	for path, text := range texts {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			target := path
			if m[1] != "" {
				target = filepath.Join(filepath.Dir(path), m[1])
			}
			if _, err := os.Stat(filepath.Join(root, target)); err != nil {
				t.Errorf("%s links to %s: %v", path, m[1], err)
			} else if m[2] != "" && !slices.Contains(anchors(texts[target]), m[2]) {
				t.Errorf("%s links to %s#%s, and there is no such heading", path, target, m[2])
			}
		}
	}
}

// anchors are the names by which GitHub and GitLab let the headings of a document be linked to.
func anchors(text string) (names []string) {
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		names = append(names, strings.ReplaceAll(notInName.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-"))
	}
	return names
}

// Documents name a source file by its path or, where that leaves no doubt, by the end of the path.
func TestDocumentsNameSourceFilesThatExist(t *testing.T) {
	var files []string
	for _, s := range parsed(t) {
		files = append(files, "/"+s.path)
	}
	named := 0
	for path, text := range documents(t) {
		for _, m := range sourceFile.FindAllStringSubmatch(text, -1) {
			named++
			if !slices.ContainsFunc(files, func(f string) bool { return strings.HasSuffix(f, "/"+m[1]) }) {
				t.Errorf("%s names %s, and there is no such file", path, m[1])
			}
		}
	}
	if named == 0 {
		t.Error("found no names of source files")
	}
}

// Settings that people copy are accepted: the examples, and every block of YAML that starts with the comment "#
// ...agent.yaml" or "# ...coordinator.yaml".
func TestExampleSettingsAreAccepted(t *testing.T) {
	check := func(where, kind, text string) {
		file := filepath.Join(t.TempDir(), kind+".yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var err error
		if kind == "agent" {
			_, err = agent.Load(file)
		} else {
			_, err = coordinator.Load(file)
		}
		if err != nil {
			t.Errorf("%s: %s.yaml: %v", where, kind, err)
		}
	}
	for _, kind := range []string{"agent", "coordinator"} {
		path := "packaging/examples/" + kind + ".yaml"
		check(path, kind, read(t, path))
		check(path+" with its comments removed", kind, uncommented(read(t, path)))
	}
	blocks := 0
	for path, text := range documents(t) {
		for _, m := range yamlBlock.FindAllStringSubmatch(text, -1) {
			blocks++
			check(path, m[1], m[2])
		}
	}
	if blocks < 2 {
		t.Errorf("found %d blocks of settings in the documents, want an agent's and a coordinator's at least", blocks)
	}
}

// uncommented removes the mark of settings that an example shows as comments: lines such as "#drain: {timeout: 1h}",
// without a space after the mark.
func uncommented(text string) string {
	return regexp.MustCompile(`(?m)^#([a-z])`).ReplaceAllString(text, "$1")
}

var (
	metricSaid = regexp.MustCompile(`lifeboat_[a-z_]+`)
	metricMade = regexp.MustCompile(`"(lifeboat_[a-z_]+)"`)
	// The endings that Prometheus adds to the name of a histogram.
	partOfHistogram = regexp.MustCompile(`_(sum|count|bucket)$`)
)

// Every metric that an alert, a dashboard or a document names is one that a daemon has: an alert on any other never
// fires. And every metric that a daemon has is in docs/metrics.md.
func TestMetricsThatAreNamedExist(t *testing.T) {
	made := map[string]bool{}
	for _, s := range parsed(t) {
		if !s.isTest() {
			for _, m := range metricMade.FindAllStringSubmatch(read(t, s.path), -1) {
				made[m[1]] = true
			}
		}
	}
	texts, named := documents(t), []string{"packaging/examples/prometheus-rules.yaml", "packaging/examples/grafana-dashboard.json"}
	for _, path := range named {
		if texts[path] = read(t, path); len(metricSaid.FindAllString(texts[path], -1)) < 10 {
			t.Errorf("%s names hardly any metric", path)
		}
	}
	for path, text := range texts {
		for _, name := range metricSaid.FindAllString(text, -1) {
			if !made[name] && !made[partOfHistogram.ReplaceAllString(name, "")] {
				t.Errorf("%s names %s, which no daemon has", path, name)
			}
		}
	}
	rows := regexp.MustCompile("(?m)^\\| `.* \\|").FindAllString(texts["docs/metrics.md"], -1)
	for name := range made {
		is := regexp.MustCompile("`" + name + "[{`]")
		if !slices.ContainsFunc(rows, is.MatchString) {
			t.Errorf("docs/metrics.md has no row for %s", name)
		}
	}
}

// Grafana reads the dashboard, and each of its figures comes from a metric.
func TestDashboardIsOne(t *testing.T) {
	var board struct {
		UID    string
		Panels []struct {
			Type, Title, Description string
			Targets                  []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(read(t, "packaging/examples/grafana-dashboard.json")), &board); err != nil {
		t.Fatal(err)
	}
	figures := 0
	for _, p := range board.Panels {
		if p.Type == "row" {
			continue
		}
		if p.Description == "" || len(p.Targets) == 0 {
			t.Errorf("panel %q: got the description %q and %d questions, want both", p.Title, p.Description, len(p.Targets))
		}
		for _, target := range p.Targets {
			if figures++; !metricSaid.MatchString(target.Expr) {
				t.Errorf("panel %q asks %q, which names no metric", p.Title, target.Expr)
			}
		}
	}
	if board.UID == "" || figures < 10 {
		t.Errorf("got the uid %q and %d figures, want one and 10 at least", board.UID, figures)
	}
}

// docs/configuration.md has a row for every key, with the default.
func TestEveryKeyIsDocumented(t *testing.T) {
	text := read(t, "docs/configuration.md")
	agentPart, coordinatorPart, ok := strings.Cut(text, "\n## The coordinator's file")
	if !ok {
		t.Fatal("docs/configuration.md has no section ## The coordinator's file")
	}
	for _, c := range []struct {
		name, text string
		defaults   any
	}{
		{"agent", agentPart, agent.Default()},
		{"coordinator", coordinatorPart, coordinator.Default()},
	} {
		known := map[string]bool{}
		keys("", reflect.ValueOf(c.defaults), func(key, value string) {
			known[key] = true
			row := regexp.MustCompile("(?m)^\\| `" + regexp.QuoteMeta(key) + "` \\|.*$").FindString(c.text)
			switch {
			case row == "":
				t.Errorf("%s: docs/configuration.md has no row for %s", c.name, key)
			case value != "" && !strings.Contains(row, "`"+value+"`"):
				t.Errorf("%s: the row for %s does not say its default of %s: %s", c.name, key, value, row)
			}
		})
		for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_.\\[\\]]+)` \\|").FindAllStringSubmatch(c.text, -1) {
			if !known[m[1]] {
				t.Errorf("%s: docs/configuration.md has a row for %s, which is no key", c.name, m[1])
			}
		}
	}
}

// keys calls yield for every key that a file may have, with its default as a file would write it; "": there is none.
func keys(prefix string, v reflect.Value, yield func(key, value string)) {
	for i := range v.NumField() {
		key := prefix + v.Type().Field(i).Tag.Get("yaml")
		f := v.Field(i)
		switch {
		case f.Kind() == reflect.Struct:
			keys(key+".", f, yield)
		case f.Kind() == reflect.Slice && f.Type().Elem().Kind() == reflect.Struct:
			keys(key+"[].", reflect.Zero(f.Type().Elem()), yield)
		case key == "node.name" || key == "name": // the default is the host's name
			yield(key, "")
		case f.IsZero():
			yield(key, "")
		default:
			yield(key, written(f.Interface()))
		}
	}
}

func written(value any) string {
	switch v := value.(type) {
	case config.Bytes:
		return v.String()
	case fmt.Stringer: // durations: 1h0m0s is 1h to people
		s := v.String()
		for _, zero := range []string{"m0s", "h0m"} {
			if strings.HasSuffix(s, zero) {
				s = s[:len(s)-2]
			}
		}
		return s
	}
	return fmt.Sprint(value)
}
