package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// inPlace is lifeboat with land: place at the sink: blocks become files where an engine looks for them.
const inPlace = "land: place"

// unpacking is the time from the last receipt until each block is a file under its own name.
type unpacking struct {
	took  time.Duration
	cpu   time.Duration // of the sink
	reads int
	worst time.Duration // the slowest read
}

const (
	// readEvery is how often a block is read meanwhile: often enough to meet the worst case, and too seldom to take much of
	// the CPU time.
	readEvery = 5 * time.Millisecond
	askEvery  = 50 * time.Millisecond
)

// unpackWithin is longer than a busy machine takes, even where new inodes and directories are slow to make.
func unpackWithin(files int) time.Duration {
	return time.Minute + time.Duration(files)*time.Millisecond
}

// unpacked waits until the sink has made files of all blocks, and reads random blocks meanwhile.
func (f *fleet) unpacked(ctx context.Context, from source, g *gauge, since time.Time) (u unpacking, err error) {
	ctx, cancel := context.WithTimeout(ctx, unpackWithin(len(from.files.Files)))
	defer cancel()
	pid := f.sink.cmd.Process.Pid
	before := g.now(pid).cpu
	client := overSocket(f.socket("sink"))
	defer client.CloseIdleConnections()
	reading, stop := context.WithCancel(ctx)
	read := make(chan error, 1)
	go func() { read <- u.read(reading, client, from) }()
	for waiting := true; waiting && err == nil; {
		select {
		case <-time.After(askEvery):
			waiting, err = anyWaits(ctx, client)
		case err = <-read:
			read <- nil
			err = cmp.Or(err, ctx.Err()) // the reader has no error when ctx ends
		}
	}
	u.took, u.cpu = time.Since(since), g.now(pid).cpu-before
	stop()
	if err = errors.Join(err, <-read); err != nil {
		return u, f.sink.trouble(err)
	}
	return u, f.named(from)
}

// read reads blocks until ctx ends.
func (u *unpacking) read(ctx context.Context, client *http.Client, from source) error {
	tick := time.NewTicker(readEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		file := from.files.Files[rand.IntN(len(from.files.Files))]
		began := time.Now()
		at := url.URL{Scheme: "http", Host: "sink", Path: "/blocks/" + string(file.ID(storeName))}
		sum := sha256.New()
		if err := fetch(ctx, client, at.String(), sum); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		if [sha256.Size]byte(sum.Sum(nil)) != file.SHA256 {
			return fmt.Errorf("%s was read with other bytes than it had, while it became a file", file.Name)
		}
		u.reads++
		u.worst = max(u.worst, time.Since(began))
	}
}

func overSocket(path string) *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	}}}
}

func fetch(ctx context.Context, client *http.Client, at string, into io.Writer) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", at, resp.Status)
	}
	_, err = io.Copy(into, resp.Body)
	return err
}

// anyWaits asks the agent whether any blocks are still to become files.
func anyWaits(ctx context.Context, client *http.Client) (bool, error) {
	var page strings.Builder
	if err := fetch(ctx, client, "http://sink/metrics", &page); err != nil {
		return false, err
	}
	const figure = "\nlifeboat_unpacking_blocks "
	_, rest, ok := strings.Cut(page.String(), figure)
	if !ok {
		return false, errors.New("/metrics does not say what waits to become files")
	}
	return !strings.HasPrefix(rest, "0\n"), nil
}

// named checks that the sink's store has each file under its name and with its bytes. (The reader above may have got them from the source.)
func (f *fleet) named(from source) error {
	left := map[string][sha256.Size]byte{}
	for _, file := range from.files.Files {
		left[file.Name] = file.SHA256
	}
	store := filepath.Join(f.dir, "store")
	err := filepath.WalkDir(store, func(p string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		name, err := filepath.Rel(store, p)
		if err != nil {
			return err
		}
		file, err := os.Open(p)
		if err != nil {
			return err
		}
		defer file.Close()
		sum := sha256.New()
		if _, err := io.Copy(sum, file); err != nil {
			return err
		}
		if want, there := left[name]; !there || [sha256.Size]byte(sum.Sum(nil)) != want {
			return fmt.Errorf("%s is none of the files, or has other bytes", p)
		}
		delete(left, name)
		return nil
	})
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("%d of %d files have no name in %s", len(left), len(from.files.Files), store)
	}
	return err
}

// unpackingFigures are the columns of the table of the unpacking.
var unpackingFigures = []struct {
	name, unit, head string
	digits           int
	of               func(size, unpacking) float64
}{
	{"time until all files have their names", "s", "named, s", 2, func(_ size, u unpacking) float64 { return u.took.Seconds() }},
	{"files named", "1/s", "files/s", 0, func(s size, u unpacking) float64 { return float64(s.n) / u.took.Seconds() }},
	{"cpu of the unpacking", "CPU s/GiB", "CPU", 2, func(s size, u unpacking) float64 { return perGiB(s, u.cpu) }},
	{"reads meanwhile", "1/s", "reads/s", 0, func(_ size, u unpacking) float64 { return float64(u.reads) / u.took.Seconds() }},
	{"slowest read meanwhile", "ms", "worst ms", 1, func(_ size, u unpacking) float64 { return float64(u.worst.Microseconds()) / 1000 }},
}

// unpacking is the median of one figure of the unpacking.
func (t trial) unpacking(of func(size, unpacking) float64) float64 {
	var s []float64
	for _, o := range t.outcomes[inPlace] {
		s = append(s, of(t.size, *o.unpacking))
	}
	return median(s)
}

// printUnpacking adds a table of how the blocks of land: place became files after their receipts.
func (t trial) printUnpacking(b *strings.Builder) {
	if len(t.outcomes[inPlace]) == 0 {
		return
	}
	heads, values := fmt.Sprintf("%-36s", "after the last receipt"), fmt.Sprintf("%-36s", placeLabel)
	for _, f := range unpackingFigures {
		heads += fmt.Sprintf(" %9s", f.head)
		values += fmt.Sprintf(" %9s", number(t.unpacking(f.of), f.digits))
	}
	b.WriteString(heads + "\n" + values + "\n")
}
