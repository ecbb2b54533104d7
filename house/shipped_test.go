package house_test

import (
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

const shippedDocs = "/usr/share/doc/lifeboat"

// shipped is the contents of a deb or an rpm.
type shipped struct {
	files map[string]string // paths in the checkout, by the path on a host; "" for a directory
	links map[string]string // symbolic links and their targets
}

// has reports whether a path on a host leads to a file or directory of the package, through links too.
func (s shipped) has(p string) bool {
	if _, there := s.files[p]; there {
		return true
	}
	for link, to := range s.links {
		if below, is := strings.CutPrefix(p+"/", link+"/"); is {
			return s.has(path.Join(to, below))
		}
	}
	return false
}

// readShipped reads the contents of the package of that kind, without the files that only the build makes.
func readShipped(t *testing.T, kind string) shipped {
	t.Helper()
	var pack struct {
		Contents []struct{ Src, Dst, Type, Packager string }
	}
	if err := yaml.Unmarshal([]byte(read(t, "packaging/nfpm.yaml")), &pack); err != nil {
		t.Fatal(err)
	}
	s := shipped{files: map[string]string{"/usr/share/common-licenses/Apache-2.0": ""}, links: map[string]string{}} // every Debian has it
	for _, c := range pack.Contents {
		switch {
		case c.Packager != "" && c.Packager != kind || strings.Contains(c.Src, "${"):
		case c.Type == "dir":
			s.files[c.Dst] = ""
		case c.Type == "symlink":
			s.links[c.Dst] = path.Join(path.Dir(c.Dst), c.Src)
		default:
			sources, err := fs.Glob(os.DirFS(root), c.Src)
			if err != nil || len(sources) == 0 {
				t.Errorf("packaging/nfpm.yaml: %s is nothing (%v)", c.Src, err)
			}
			for _, src := range sources {
				dst := c.Dst
				if strings.HasSuffix(dst, "/") {
					dst += path.Base(src)
				}
				s.files[dst] = src
			}
		}
	}
	return s
}

// Every link in a document of a package leads to a file of that package.
func TestShippedDocumentsLinkToShippedFiles(t *testing.T) {
	for _, kind := range []string{"deb", "rpm"} {
		pack, followed := readShipped(t, kind), 0
		for dst, src := range pack.files {
			if path.Ext(src) != ".md" {
				continue
			}
			for _, m := range link.FindAllStringSubmatch(read(t, src), -1) {
				followed++
				if !pack.has(path.Join(path.Dir(dst), m[1])) {
					t.Errorf("%s: %s links to %s, which is not in the package", kind, dst, m[1])
				}
			}
		}
		if followed < 100 {
			t.Errorf("%s: got %d links in its documents, want hundreds", kind, followed)
		}
	}
}

// Every path to a document of the packages, in a message, a unit or a document, is one that they have.
func TestPathsOfShippedDocumentsExist(t *testing.T) {
	texts := documents(t)
	for _, s := range parsed(t) {
		if !s.isTest() {
			texts[s.path] = read(t, s.path)
		}
	}
	pack, said := readShipped(t, "deb"), regexp.MustCompile(shippedDocs+`/[\w./-]*\w`)
	for _, src := range pack.files {
		if src != "" {
			texts[src] = read(t, src)
		}
	}
	named := 0
	for where, text := range texts {
		for _, p := range said.FindAllString(text, -1) {
			named++
			if !pack.has(p) {
				t.Errorf("%s names %s, which is not in the package", where, p)
			}
		}
	}
	if named < 10 {
		t.Errorf("got %d paths of documents, want more", named)
	}
}
