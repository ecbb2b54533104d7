package hosts

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/lifeboat/lifeboat/certs"
)

const (
	maxHostFileBytes = 4 << 20 // 100,000 names of 40 letters
	maxHosts         = 100_000 // in one file: ten times the largest fleet that one coordinator serves
	maxHostFaults    = 8       // reported of one file: more mean that it is the wrong file
)

// adminState is what HDFS's JSON says of a host. Text and XML files only exclude hosts or not.
type adminState string

const (
	adminNormal         adminState = "NORMAL"
	adminDecommissioned adminState = "DECOMMISSIONED"
	adminMaintenance    adminState = "IN_MAINTENANCE"
)

// hostEntry is one host in a file.
type hostEntry struct {
	line    int
	key     string
	timeout *time.Duration
	admin   adminState // of JSON, else empty
	until   time.Time  // of maintenance
}

func (e hostEntry) says(o hostEntry) bool {
	return Exclusion{Timeout: e.timeout}.equal(Exclusion{Timeout: o.timeout}) && e.admin == o.admin && e.until.Equal(o.until)
}

// hostFile is what one file says, and all that is wrong with it. A file with any fault is not used at all.
type hostFile struct {
	path      string
	including bool // it is the include file
	entries   []hostEntry
	at        map[string]int // index of each key's entry
	blank     bool           // there is nothing in it, not even a comment
	faults    []string
	more      int // faults beyond maxHostFaults, which are only counted
}

// fault notes what is wrong in a line; line 0 means the file as a whole.
func (f *hostFile) fault(line int, format string, args ...any) {
	if len(f.faults) == maxHostFaults {
		f.more++
		return
	}
	where := f.path
	if line > 0 {
		where = fmt.Sprintf("%s:%d", f.path, line)
	}
	f.faults = append(f.faults, where+": "+fmt.Sprintf(format, args...))
}

func (f *hostFile) err() error {
	if len(f.faults) == 0 {
		return nil
	}
	words := strings.Join(f.faults, "; ")
	if f.more > 0 {
		words += fmt.Sprintf("; and %d more", f.more)
	}
	return errors.New(words)
}

// add adds a host as it is spelled in the file. A host may stand there twice if both entries say the same. If they differ it is a
// fault, where Hadoop would take the later one.
func (f *hostFile) add(host string, e hostEntry) {
	if err := checkHost(host); err != nil {
		f.fault(e.line, "host %q: %v", cutWord(host), err)
		return
	}
	e.key = Key(host)
	if i, twice := f.at[e.key]; twice {
		if was := f.entries[i]; !was.says(e) {
			f.fault(e.line, "host %q: line %d says something else of it: keep one", host, was.line)
		}
		return
	}
	if len(f.entries) == maxHosts {
		f.fault(e.line, "more than %d hosts", maxHosts)
		return
	}
	f.at[e.key] = len(f.entries)
	f.entries = append(f.entries, e)
}

// checkHost refuses what is neither the name of a node, as certificates have it, nor an IP address.
func checkHost(host string) error {
	if ip, err := netip.ParseAddr(host); err == nil {
		if ip.Zone() != "" {
			return errors.New("an address here has no zone")
		}
		return nil
	}
	if i := strings.IndexFunc(host, func(r rune) bool { return unicode.Is(unicode.Cf, r) }); i >= 0 {
		r, _ := utf8.DecodeRuneInString(host[i:])
		return fmt.Errorf("has a character in it that nobody sees (%U): write it anew", r)
	}
	switch {
	case strings.Contains(host, ","):
		return errors.New("commas do not separate hosts here: write spaces or lines")
	case strings.Contains(host, ":"):
		return errors.New("want a name or an IP address: leave out the port")
	case strings.Contains(host, ".") && strings.Trim(host, ".0123456789") == "":
		return errors.New("looks like an IP address and is none")
	}
	return certs.Name{Role: certs.RoleNode, Name: host}.Check()
}

// cutWord keeps a message readable when the path is of a wrong file, with words of any length.
func cutWord(s string) string {
	if len(s) > 64 {
		return s[:64] + "..."
	}
	return s
}

// byteOrderMark is what some editors write before a text, where people do not see it.
const byteOrderMark = "\ufeff"

// parseHosts reads a file's text in one of three forms. The extension of its name decides, as with YARN, if it is .xml or .json; else
// how the text begins.
func parseHosts(path string, including bool, data []byte) *hostFile {
	f := &hostFile{path: path, including: including, at: map[string]int{}}
	data = bytes.TrimLeft(data, byteOrderMark)
	begin := bytes.TrimLeft(data, " \t\r\n\f"+byteOrderMark)
	f.blank = len(begin) == 0
	ending := strings.ToLower(filepath.Ext(path))
	switch {
	case !utf8.Valid(data):
		f.fault(badLine(data), "is not UTF-8")
	case ending == ".xml" || ending != ".json" && bytes.HasPrefix(begin, []byte("<")):
		f.parseXML(data)
	case ending == ".json" || bytes.HasPrefix(begin, []byte("[")) || bytes.HasPrefix(begin, []byte("{")):
		f.parseJSON(data)
	default:
		f.parseText(string(data))
	}
	return f
}

// badLine is the line of the first byte that is not UTF-8.
func badLine(data []byte) int {
	line := 1
	for len(data) > 0 {
		r, n := utf8.DecodeRune(data)
		if r == utf8.RuneError && n == 1 {
			break
		}
		if r == '\n' {
			line++
		}
		data = data[n:]
	}
	return line
}

// parseText reads hosts as Hadoop's HostsFileReader does: blanks separate them, commas do not, and a # at the start of a word begins a
// comment. A lone CR ends a line: if it were a blank, a comment in a file from an old Mac would swallow the rest of the file.
func (f *hostFile) parseText(text string) {
	text = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text)
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimLeft(line, byteOrderMark) // a file concatenated from several has one where each part began
		for _, word := range strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(" \t\n\f", r) }) {
			if strings.HasPrefix(word, "#") {
				break
			}
			f.add(word, hostEntry{line: number})
		}
	}
}

// joinHosts makes the lists of the two files, either of which may be nil.
func joinHosts(files Files, include, exclude *hostFile) *Lists {
	h := &Lists{IncludeFile: files.Include, ExcludeFile: files.Exclude, Exclude: map[string]Exclusion{}, Maintenance: map[string]time.Time{}}
	for _, f := range []*hostFile{include, exclude} {
		if f == nil {
			continue
		}
		if f.including {
			h.Include = map[string]bool{}
		}
		for _, e := range f.entries {
			if f.including {
				h.Include[e.key] = true
			}
			switch {
			case e.admin == adminDecommissioned, e.admin == "" && !f.including:
				h.Exclude[e.key] = Exclusion{Timeout: e.timeout, ByInclude: f.including}
			case e.admin == adminMaintenance:
				h.Maintenance[e.key] = e.until
			}
		}
	}
	return h
}

// Read reads both files whole; inForce are the lists until now. It refuses what YARN takes for "everybody is welcome": a missing file,
// an include file without hosts, and an exclude file that is blank while inForce excludes hosts.
func Read(files Files, inForce *Lists) (*Lists, error) {
	include, err1 := readHostFile(files.Include, true)
	exclude, err2 := readHostFile(files.Exclude, false)
	if err := errors.Join(err1, err2); err != nil {
		return nil, errors.New(strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	if include != nil && len(include.entries) == 0 {
		return nil, fmt.Errorf("%s: names no host, and nobody could stay: name the nodes, or leave hosts.include empty in the coordinator's settings", files.Include)
	}
	h := joinHosts(files, include, exclude)
	if exclude != nil && exclude.blank && inForce != nil && len(inForce.Exclude) > 0 {
		return nil, fmt.Errorf("%s: is empty, and may have been cut short: hosts that are excluded now: %d; to let them all back in, write a line such as # nobody", files.Exclude, len(inForce.Exclude))
	}
	return h, nil
}

// readHostFile reads one file, or returns nil for an empty path. It blocks as long as the disk does.
func readHostFile(path string, including bool) (*hostFile, error) {
	if path == "" {
		return nil, nil
	}
	data, err := readSteady(path)
	if err != nil {
		if e, ok := errors.AsType[*fs.PathError](err); ok {
			err = e.Err // the message below begins with the path
		}
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	f := parseHosts(path, including, data)
	return f, f.err()
}

// readSteady reads a regular file, and fails if the file changes meanwhile. It opens with O_NONBLOCK, or the open of a named pipe
// without a writer would block.
func readSteady(path string) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	before, err := file.Stat()
	switch {
	case err != nil:
		return nil, err
	case !before.Mode().IsRegular():
		return nil, errors.New("is no regular file")
	case before.Size() > maxHostFileBytes:
		return nil, fmt.Errorf("has %d bytes: at most %d", before.Size(), maxHostFileBytes)
	}
	data, err := io.ReadAll(io.LimitReader(file, maxHostFileBytes+1))
	if err != nil {
		return nil, err
	}
	after, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if int64(len(data)) != before.Size() || after.Size() != before.Size() || !after.ModTime().Equal(before.ModTime()) {
		return nil, errors.New("was written to while it was read: try again, and put new versions in place with mv")
	}
	return data, nil
}
