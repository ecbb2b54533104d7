package config

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite the expected faults")

// fleet has one of each kind of setting.
type fleet struct {
	Name   string        `yaml:"name"`
	Size   int           `yaml:"size"`
	Room   Bytes         `yaml:"room"`
	Beat   time.Duration `yaml:"beat"`
	Lease  time.Duration `yaml:"lease"`
	Open   bool          `yaml:"open"`
	Hosts  []string      `yaml:"hosts"`
	Limits limits        `yaml:"limits"`
	Stores []store       `yaml:"stores"`
	Unsaid int
}

type limits struct {
	Streams int   `yaml:"streams"`
	Rate    Bytes `yaml:"rate"`
}

type store struct {
	Name  string   `yaml:"name"`
	Paths []string `yaml:"paths"`
}

func defaults() *fleet {
	return &fleet{Name: "f", Size: 3, Room: 1 << 20, Beat: time.Second, Lease: 30 * time.Second, Hosts: []string{"x"}, Limits: limits{Streams: 16}}
}

func (f *fleet) Validate(report func(key string, value any, bound, remedy string)) {
	if f.Lease < 3*f.Beat {
		report("lease", f.Lease, "must cover three heartbeats of "+f.Beat.String(), "raise it to "+(3*f.Beat).String())
	}
	CheckBetween(report, "limits.streams", f.Limits.Streams, 1, 64)
	for i, s := range f.Stores {
		if len(s.Paths) == 0 {
			report(item("stores", i)+".paths", nil, "must name a directory", "list some")
		}
	}
}

// TestGolden loads testdata/*/main.yaml, with the conf.d beside it, and compares with testdata/*/want: the faults, or
// the settings when there are none.
func TestGolden(t *testing.T) {
	cases, err := filepath.Glob("testdata/*/main.yaml")
	if err != nil || len(cases) == 0 {
		t.Fatalf("got %d cases (%v), want some", len(cases), err)
	}
	for _, file := range cases {
		dir := filepath.Dir(file)
		t.Run(filepath.Base(dir), func(t *testing.T) {
			into := defaults()
			var got string
			if err := Load(file, into); err != nil {
				faults, ok := errors.AsType[*Faults](err)
				if !ok {
					t.Fatalf("got %T %v, want *Faults", err, err)
				}
				got = strings.ReplaceAll(faults.Error(), dir+"/", "") + "\n"
			} else {
				got = settings(into)
			}
			golden := filepath.Join(dir, "want")
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("got:\n%swant:\n%s", got, want)
			}
		})
	}
}

func TestLoadMissing(t *testing.T) {
	err := Load(filepath.Join(t.TempDir(), "none.yaml"), defaults())
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want that the file does not exist", err)
	}
}

func TestLoadHuge(t *testing.T) {
	file := filepath.Join(t.TempDir(), "main.yaml")
	if err := os.WriteFile(file, bytes.Repeat([]byte("#\n"), maxFile), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := Load(file, defaults()); err == nil || !strings.Contains(err.Error(), "more than 64KiB") {
		t.Errorf("got %v, want it refused for its size", err)
	}
}

// A file may nest as deep as its size allows: what parses it must not run out of stack.
func TestLoadDeep(t *testing.T) {
	file := filepath.Join(t.TempDir(), "main.yaml")
	for _, open := range []string{"[", "{", "- ", "{a: ", "? "} {
		deep := bytes.Repeat([]byte(open), 4_000/len(open))
		if err := os.WriteFile(file, deep, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, ok := errors.AsType[*Faults](Load(file, defaults())); !ok {
			t.Errorf("%q over and over: got no faults", open)
		}
	}
}

func TestBytes(t *testing.T) {
	for _, c := range []struct {
		in, out string
		want    Bytes
	}{
		{"0", "0B", 0},
		{"1", "1B", 1},
		{"64MiB", "64MiB", 64 << 20},
		{"10GB", "10GB", 10_000_000_000},
		{"10 GB", "10GB", 10_000_000_000},
		{"1024", "1KiB", 1024},
		{"1000kB", "1MB", 1_000_000},
		{"8191PiB", "8191PiB", 8191 << 50},
		{"9223372036854775807", "9223372036854775807B", 1<<63 - 1},
	} {
		got, err := ParseBytes(c.in)
		if err != nil || got != c.want {
			t.Errorf("%q: got %d (%v), want %d", c.in, got, err, c.want)
		}
		if got.String() != c.out {
			t.Errorf("%q: got %s back, want %s", c.in, got, c.out)
		}
	}
	for _, in := range []string{"", "B", "MiB", "-1", "+1", "1.5GiB", "1e9", "0x10", "64mib", "64 M", "8192PiB", "9223372036854775808", "1 2"} {
		if got, err := ParseBytes(in); err == nil {
			t.Errorf("%q: got %d, want it refused", in, got)
		}
	}
}

func TestAddresses(t *testing.T) {
	for _, c := range []struct {
		addr                   string
		listen, dial, loopback bool
	}{
		{"0.0.0.0:7411", true, false, false},
		{"[::]:7411", true, false, false},
		{":7411", true, false, false},
		{"127.0.0.1:0", true, false, true},
		{"127.9.9.9:1", true, true, true},
		{"[::1]:1", true, true, true},
		{"[::ffff:127.0.0.1]:1", true, true, true},
		{"localhost:1", true, true, true},
		{"localhost.example:1", true, true, false},
		{"10.0.0.1:65535", true, true, false},
		{"10.0.0.1:65536", false, false, false},
		{"10.0.0.1:grpc", false, false, false},
		{"10.0.0.1", false, false, false},
		{"::1:7411", false, false, false},
		{"", false, false, false},
	} {
		var listen, dial = true, true
		CheckListen(func(string, any, string, string) { listen = false }, "", c.addr, "")
		CheckDial(func(string, any, string, string) { dial = false }, "", c.addr)
		if listen != c.listen || dial != c.dial || Loopback(c.addr) != c.loopback {
			t.Errorf("%q: got listen %t, dial %t, loopback %t, want %t, %t, %t", c.addr, listen, dial, Loopback(c.addr), c.listen, c.dial, c.loopback)
		}
	}
}

func TestShow(t *testing.T) {
	for _, c := range []struct {
		value any
		want  string
	}{
		{nil, ""},
		{"", `""`},
		{"a b", "a b"},
		{"a\nb", `"a\nb"`},
		{strings.Repeat("k", 81), strings.Repeat("k", 80) + "..."},
		{"/srv/" + strings.Repeat("d/", 200) + "ca.pem", "/srv/" + strings.Repeat("d/", 200) + "ca.pem"},
		{"/" + strings.Repeat("d", 4096), "/" + strings.Repeat("d", 79) + "..."},
		{time.Duration(0), "0s"},
		{10 * time.Second, "10s"},
		{time.Minute, "1m"},
		{10 * time.Minute, "10m"},
		{time.Hour, "1h"},
		{20 * time.Hour, "20h"},
		{time.Hour + time.Second, "1h0m1s"},
		{90 * time.Second, "1m30s"},
		{110 * time.Millisecond, "110ms"},
		{"10m0s", "10m0s"}, // a text is shown as it was written
		{Bytes(1 << 20), "1MiB"},
	} {
		if got := Show(c.value); got != c.want {
			t.Errorf("%#v: got %s, want %s", c.value, got, c.want)
		}
	}
}

func TestRough(t *testing.T) {
	for bytes, want := range map[Bytes]string{
		0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 1 << 20: "1.0 MiB", 1<<20 - 1: "1.0 MiB", 102300: "99.9 KiB", 102400: "100 KiB",
		1288490188: "1.2 GiB", 1 << 40: "1.0 TiB", 1 << 50: "1.0 PiB", 1<<63 - 1: "8192 PiB",
	} {
		if got := bytes.Rough(); got != want {
			t.Errorf("%d: got %q, want %q", bytes, got, want)
		}
	}
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"lease", "lease", 0},
		{"lease", "leese", 1},
		{"lease", "leas", 1},
		{"lease", "release", 2},
		{"name", "nmae", 1},
		{"", "abc", 3},
		{strings.Repeat("a", 1<<20), "a", 64},
	} {
		if got := distance(c.a, c.b); got != c.want || distance(c.b, c.a) != c.want {
			t.Errorf("%.9q, %q: got %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

func TestStrange(t *testing.T) {
	for text, want := range map[string]int{
		"name: a\nlimits: {streams: 3}\nstores: [{name: s}]": 0,
		"":                         0,
		"limits: {stream: 3}":      1,
		"stores: [{nam: s}]":       1,
		"stores: [a, b, c]":        1, // one mistake, in each item
		"name: {first: a}":         1,
		"limits: 3\nother: {a: 1}": 2,
		"name: 7":                  0, // wrong, but at home
		"name: [":                  0,
	} {
		file := filepath.Join(t.TempDir(), "main.yaml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := Strange(file, new(fleet)); got != want {
			t.Errorf("%q: got %d, want %d", text, got, want)
		}
	}
}

func TestDiffers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "main.yaml")
	for text, want := range map[string]string{
		"":                                      "",
		"stores: []\nlimits: {streams: 16}":     "", // said, and the same
		"stores: [{name: s, paths: [/a]}]":      "stores",
		"hosts: []\nlimits: {rate: 1}\nsize: 4": "hosts limits",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c := defaults()
		if err := Load(file, c); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(Differs(*defaults(), *c, "size"), " "); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
