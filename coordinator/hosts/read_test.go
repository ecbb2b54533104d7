package hosts

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"
)

// told returns an entry as the tables below write it.
func (e hostEntry) told() string {
	s := e.key
	if e.timeout != nil {
		s += fmt.Sprintf("=%d", int64(max(*e.timeout/time.Second, -1)))
		if *e.timeout == Forever {
			s = e.key + "=-1"
		}
	}
	switch e.admin {
	case adminDecommissioned:
		s += "!"
	case adminMaintenance:
		s += fmt.Sprintf("~%d", e.until.UnixMilli())
	}
	return s
}

func (f *hostFile) told() string {
	var words []string
	for _, e := range f.entries {
		words = append(words, e.told())
	}
	return strings.Join(words, " ")
}

// TestHostFiles reads what Hadoop's own tests read (TestHostsFileReader, TestCombinedHostsFileReader), and more.
func TestHostFiles(t *testing.T) {
	const yarn = "host1 host2=123 host3=-1 10000 10001=123 10002=-1 host4=1800 host5=1800 host6=1800"
	hdfs := fmt.Sprintf("host1 host2 host3! host4! host5 host6~%d host7~112233", latest.UnixMilli())
	for name, want := range map[string]string{
		"plain.txt":     "somehost1 somehost2 somehost3 somehost4 somehost5",
		"spaces.txt":    "somehost somehost2 somehost3",
		"tabs.txt":      "somehost somehost2 somehost4 somehost3",
		"comments.txt":  "",
		"empty.txt":     "",
		"empty.json":    "",
		"windows.txt":   "host1 host2 host3",
		"mac.txt":       "host1 host2",
		"joined.txt":    "host1 host2 host3", // two files from Windows, joined
		"addresses.txt": "10.0.0.1 2001:db8::1 10.0.0.2 host.example.com",
		"yarn.xml":      yarn,
		"capitals.XML":  yarn,
		"byitslooks":    yarn,
		"lines.xml":     "host1=0 host2=0",
		"endless.xml":   "host1=-1 host2=-1", // as YARN, which takes any negative number as no limit
		"nobody.xml":    "",
		"hdfs.json":     hdfs,
		"legacy.json":   hdfs,
		"byitsbracket":  hdfs,
		"written.json":  fmt.Sprintf("host1 host2~%d", latest.UnixMilli()),
		"nobody.json":   "",
	} {
		f, err := readHostFile(filepath.Join("testdata/good", name), false)
		if err != nil {
			t.Error(err)
			continue
		}
		if got := f.told(); got != want {
			t.Errorf("%s: got  %s\nwant %s", name, got, want)
		}
		if got, want := f.blank, strings.HasPrefix(name, "empty."); got != want {
			t.Errorf("%s: got blank %t, want %t", name, got, want)
		}
	}
}

// TestHostFaults: each fault is reported with its line, and all at once unless the structure itself is broken.
func TestHostFaults(t *testing.T) {
	for name, want := range map[string]string{
		"names.txt": `2: host "host2,host3": commas do not separate hosts here: write spaces or lines; 3: host "host4:8041": want a name or an IP address: leave out the port; ` +
			`4: host "10.0.0.300": looks like an IP address and is none; 5: host "-host": name must be of; 6: host "10.0.0.0/8": name must; 7: host "fe80::1%eth0": an address here has no zone`,
		"latin1.txt":     "2: is not UTF-8",
		"unseen.txt":     `1: host "host1\u200b": has a character in it that nobody sees (U+200B): write it anew; 2: host "ho\ufeffst2": has a character in it that nobody sees (U+FEFF)`,
		"zero.txt":       `2: host "h\x00st2": name must be of letters`,
		"timeouts.xml":   "2: <timeout>soon</timeout>: must be whole seconds from 0 to 2592000, or -1; 3: <timeout>-1s<; 4: <timeout>2592001<; 5: <timeout>1.5<; 6: <timeout><; 7: <timeout>9999",
		"twice.xml":      `4: host "A": line 2 says something else of it: keep one`,
		"cut.xml":        "3: XML: ends before </hosts>",
		"cut2.xml":       "3: XML: ends before </hosts>",
		"empty.xml":      "1: XML: ends before </hosts>",
		"text.xml":       `1: XML: text "host1\nhost2" outside`,
		"names.xml":      "2: XML: a second <name> in one <host>",
		"nameless.xml":   "2: a <host> without a <name>; 3: a <host> without a <name>",
		"attribute.xml":  "2: XML: <host> has attributes",
		"unknown.xml":    "2: XML: <node> does not belong here",
		"stray.xml":      `2: XML: text "a" outside of <name> and <timeout>`,
		"two.xml":        "2: XML: <hosts> does not belong here",
		"doctype.xml":    "2: XML: a document type",
		"entity.xml":     "2: XML: invalid character entity",
		"charset.xml":    `1: XML: xml: encoding "latin1" declared`,
		"crossed.xml":    "2: XML: </hosts> closes nothing",
		"values.json":    `3: "adminState" is "decommissioned": want NORMAL, DECOMMISSIONED or IN_MAINTENANCE; 4: "hostname" is not known; 5: "port" is 65536: want a whole number from 0 to 65535; 6: "maintenanceExpireTimeInMS" is -1; 7: "hostName" is 7: want a string; 8: an object without a hostName; 9: "hostName" stands here twice`,
		"cut.json":       "3: JSON: ends in the middle",
		"comma.json":     "3: JSON: invalid character '{'",
		"cutlegacy.json": "3: JSON: ends in the middle",
		"after.json":     "4: JSON: something follows the array",
		"nested.json":    `2: JSON: "hostName" is an array`,
		"strings.json":   `1: JSON: "a" where an object with a hostName was wanted`,
		"text.json":      "1: JSON: invalid character 'h'",
		"twice.json":     `2: host "a": line 1 says something else of it`,
	} {
		path := filepath.Join("testdata/bad", name)
		_, err := readHostFile(path, false)
		if err == nil {
			t.Errorf("%s: got no fault", name)
			continue
		}
		got, wanted := strings.Split(err.Error(), "; "), strings.Split(want, "; ")
		if len(got) != len(wanted) {
			t.Errorf("%s: got  %s\nwant %s", name, err, want)
			continue
		}
		for i := range got {
			if !strings.HasPrefix(got[i], path+":"+wanted[i]) {
				t.Errorf("%s: got  %s\nwant %s", name, got[i], wanted[i])
			}
		}
	}
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Files that YARN takes to let every host in are refused.
func TestHostFilesFailClosed(t *testing.T) {
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out")
	both := Files{Include: in, Exclude: out}
	put(t, in, "a b")
	put(t, out, "b")
	good, err := Read(both, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !good.Equal(&Lists{IncludeFile: in, ExcludeFile: out, Include: map[string]bool{"a": true, "b": true}, Exclude: map[string]Exclusion{"b": {}}}) {
		t.Errorf("got %+v", good)
	}
	none := &Lists{ExcludeFile: "/x", Exclude: map[string]Exclusion{}}
	for _, c := range []struct {
		name    string
		in, out string // "-": no such file
		inForce *Lists
		want    string
	}{
		{"the include file is gone", "-", "b", good, in + ": no such file"},
		{"the exclude file is gone", "a b", "-", good, out + ": no such file"},
		{"both are gone", "-", "-", good, "no such file or directory; " + out + ": no such file"},
		{"the include file is empty", "", "b", nil, "names no host"},
		{"the include file has comments only", "# a", "b", good, "names no host"},
		{"the exclude file was cut", "a b", " \n", good, "may have been cut short: hosts that are excluded now: 1"},
		{"nobody was excluded anyway", "a b", "", none, ""},
		{"there were no lists", "a b", "", nil, ""},
		{"nobody on purpose", "a b", "# nobody", good, ""},
		{"nobody in JSON", "a b", "[]", good, ""},
		{"a timeout in the include file", "<hosts><host><name>a</name><timeout>5</timeout></host></hosts>", "b", good, in + ":1: <timeout>5</timeout>: belongs into the exclude file"},
		{"too large", strings.Repeat("a ", maxHostFileBytes/2) + "b", "b", good, "4194305 bytes: at most 4194304"},
		{"faults without end", strings.Repeat(": ", 99), "b", good, "; and 91 more"},
	} {
		for path, text := range map[string]string{in: c.in, out: c.out} {
			if os.Remove(path); text != "-" {
				put(t, path, text)
			}
		}
		_, err := Read(both, c.inForce)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
}

func TestHostFileMustBeRegular(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{pipe, dir, "/dev/null"} {
		if _, err := Read(Files{Exclude: path}, nil); err == nil || !strings.Contains(err.Error(), "is no regular file") {
			t.Errorf("%s: got %v", path, err)
		}
	}
}

func TestHostsAreBounded(t *testing.T) {
	var text strings.Builder
	for i := range maxHosts + 2 {
		fmt.Fprintf(&text, "h%d\n", i)
	}
	f := parseHosts("x", false, []byte(text.String()))
	if len(f.entries) != maxHosts || f.err() == nil || !strings.HasPrefix(f.err().Error(), "x:100001: more than 100000 hosts") {
		t.Errorf("got %d hosts, %v", len(f.entries), f.err())
	}
}

// HDFS's file may stand for either list, or both.
func TestJSONIsEitherList(t *testing.T) {
	const file = "testdata/good/hdfs.json"
	for _, c := range []struct {
		name              string
		files             Files
		included          int
		host3, host1, foo string
	}{
		{"include", Files{Include: file}, 7, "excluded by " + file, "", "not included by " + file},
		{"exclude", Files{Exclude: file}, 0, "excluded by " + file, "", ""},
		{"both", Files{Include: file, Exclude: file}, 7, "excluded by " + file, "", "not included by " + file},
	} {
		h, err := Read(c.files, nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(h.Include) != c.included || len(h.Exclude) != 2 || len(h.Maintenance) != 2 {
			t.Errorf("%s: got %+v", c.name, h)
		}
		for name, want := range map[string]string{"host1": c.host1, "host3": c.host3, "host4": c.host3, "host6": "", "foo": c.foo} {
			if got := h.Judge(name, "h:1").Why; got != want {
				t.Errorf("%s: %s: got %q, want %q", c.name, name, got, want)
			}
		}
		now := time.Now()
		if !h.Maintained("host6", "h:1", now) || h.Maintained("host7", "h:1", now) || h.Maintained("host1", "h:1", now) {
			t.Errorf("%s: want host6 under maintenance, host7's ended in 1970", c.name)
		}
	}
}

// Whatever the bytes, a file is read whole or refused, and what was read is the same when it is written as text and read again.
func fuzzHosts(f *testing.F, name, pattern string) {
	for _, dir := range []string{"good", "bad"} {
		files, err := filepath.Glob(filepath.Join("testdata", dir, pattern))
		if err != nil || len(files) == 0 {
			f.Fatalf("got %d files (%v), want some", len(files), err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		h := parseHosts(name, false, data)
		if err := h.err(); err != nil {
			if !strings.HasPrefix(err.Error(), name+":") || !utf8.ValidString(err.Error()) && utf8.Valid(data) {
				t.Fatalf("a fault without its line, or not printable: %q", err)
			}
			return
		}
		var text strings.Builder
		seen := map[string]bool{}
		for _, e := range h.entries {
			if seen[e.key] || e.key == "" || e.key != Key(e.key) || checkHost(e.key) != nil {
				t.Fatalf("host %q: twice, or not sound", e.key)
			}
			if e.timeout != nil && (*e.timeout < Forever || *e.timeout > MaxTimeout) {
				t.Fatalf("host %q: timeout %s", e.key, *e.timeout)
			}
			if _, err := e.until.MarshalJSON(); err != nil {
				t.Fatalf("host %q: %v", e.key, err)
			}
			seen[e.key] = true
			text.WriteString(e.key + "\n")
		}
		again := parseHosts("again", false, []byte(text.String()))
		if again.err() != nil || len(again.entries) != len(h.entries) {
			t.Fatalf("written again: got %d hosts (%v), want %d", len(again.entries), again.err(), len(h.entries))
		}
	})
}

func FuzzHostsText(f *testing.F) { fuzzHosts(f, "hosts.txt", "*.txt") }
func FuzzHostsXML(f *testing.F)  { fuzzHosts(f, "hosts.xml", "*.xml") }
func FuzzHostsJSON(f *testing.F) { fuzzHosts(f, "hosts.json", "*.json") }
