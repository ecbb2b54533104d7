package inventory

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
	"time"
)

// ValuesFile may lie beside an engine's blocks and say what they are worth, with a line of JSON for each:
//
//	{"id": "part-00017", "value": "90s"}
//
// The id is the file's name, or the name of a Spark block (shuffle_3_17_0, rdd_5_2), whose values lie in its blockmgr
// directory. A program writes the file under another name and renames it into place. A drain reads it when it looks
// through the directory, and never carries it.
const ValuesFile = ".lifeboat-values"

// MostValue is a month, longer than anything computed runs.
const MostValue = 30 * 24 * time.Hour

const (
	// maxValuesBytes bounds what is read of one file: about 50,000 lines, and a few times the memory of a lane's
	// buffer.
	maxValuesBytes = 4 << 20
	maxValueLine   = 4096
)

// values are the values that the file in one directory has.
type values struct {
	dir string
	of  map[string]time.Duration
}

// in reads the values of a directory, unless they are those it has already.
func (v *values) in(root *os.Root, dir string) error {
	if v.of != nil && v.dir == dir {
		return nil
	}
	v.dir, v.of = dir, map[string]time.Duration{}
	f, err := root.OpenFile(path.Join(dir, ValuesFile), os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	where := path.Join(root.Name(), dir, ValuesFile)
	if err != nil {
		return fmt.Errorf("read values %s: %w", where, err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return errors.Join(err, fmt.Errorf("read values %s: not a regular file", where))
	}
	if err := v.read(f); err != nil {
		return fmt.Errorf("read values %s: %w: the lines before it count", where, err)
	}
	return nil
}

func (v *values) read(r io.Reader) error {
	limited := &io.LimitedReader{R: r, N: maxValuesBytes}
	lines := bufio.NewScanner(limited)
	lines.Buffer(nil, maxValueLine)
	for n := 1; lines.Scan(); n++ {
		var line struct{ ID, Value string }
		if len(lines.Bytes()) == 0 {
			continue
		}
		if limited.N == 0 {
			return fmt.Errorf("it is larger than %d bytes", maxValuesBytes)
		}
		if json.Unmarshal(lines.Bytes(), &line) != nil || strings.Contains(line.ID, "/") { // json's own words are of Go's types
			return fmt.Errorf(`line %d: want {"id": FILE, "value": "90s"}, FILE being a name in that directory, got %.200q`, n, lines.Bytes())
		}
		value, err := time.ParseDuration(line.Value)
		if err != nil || value <= 0 || value > MostValue || line.ID == "" {
			return fmt.Errorf("line %d: want an id and a value from 1ns to %v, got %q and %q", n, MostValue, line.ID, line.Value)
		}
		v.of[line.ID] = value
	}
	return lines.Err()
}

// Hint says what blocks whose names match are worth: how long it takes to compute one again.
type Hint struct {
	Match string // a pattern of path.Match; one without a slash is compared with the last part of a name
	Value time.Duration
}

// Matches reports whether the hint is about a block of that name.
func (h Hint) Matches(name string) bool {
	if !strings.Contains(h.Match, "/") {
		name = path.Base(name)
	}
	ok, err := path.Match(h.Match, name)
	return ok && err == nil
}
