package workloads

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/lifeboat/lifeboat/durable"
)

// run is a directory for one program that is told one word, in which the teller and the supervisor meet:
//
//	lock             held by the supervisor as long as it lives, and by a process about to start one
//	job.json         what to run
//	word.json        the program's stdin
//	supervisor.json  which process supervises, or did; without it nothing has begun
//	output           what the program prints, its end if that is much
//	stopped          why it was told to stop
//	result.json      how it ended
//
// The JSON files are replaced whole, and not synced: a kill -9 loses nothing, and after a power cut the boot is another one.
type run struct{ dir string }

const (
	jobFile        = "job.json"
	wordFile       = "word.json"
	supervisorFile = "supervisor.json"
	outputFile     = "output"
	stoppedFile    = "stopped"
	resultFile     = "result.json"
)

// job is what the supervisor is to do. The environment is its own.
type job struct {
	Argv []string `json:"argv"`
	Dir  string   `json:"dir"`
}

// Identity names a process even after its end, when its number alone may mean another.
type Identity struct {
	PID     int    `json:"pid"`
	Started uint64 `json:"started"` // in ticks since boot
	Boot    string `json:"boot"`
}

// result is how a program ended.
type result struct {
	Code    int    `json:"code"`
	Signal  string `json:"signal,omitempty"`
	Error   string `json:"error,omitempty"` // it was never started
	Stopped bool   `json:"stopped,omitempty"`
}

// keptIncidents is how many incidents' runs are kept for people to look at.
const keptIncidents = 5

// openRun makes the directory for a word. With the first word of an incident it removes the runs of the oldest incidents.
func openRun(state string, w Word, name string) (run, error) {
	state, err := filepath.Abs(state) // the supervisor works elsewhere
	if err != nil {
		return run{}, err
	}
	incident := filepath.Join(state, fileName(w.Incident))
	if _, err := os.Stat(incident); errors.Is(err, fs.ErrNotExist) {
		prune(state) // a run that cannot be removed must not hinder the telling; the next incident tries again
	}
	r := run{filepath.Join(incident, fileName(append([]string{name}, w.same()...)...))}
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return run{}, fmt.Errorf("make its directory: %w", err)
	}
	return r, nil
}

// earlierRuns are the runs of a hook for an incident's words that a withdrawal takes back.
func earlierRuns(state string, w Word, name string) (runs []run, err error) {
	incident := filepath.Join(state, fileName(w.Incident))
	entries, err := os.ReadDir(incident)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("look for its earlier runs: %w", err)
	}
	for _, e := range entries {
		of, word, _ := strings.Cut(e.Name(), ",")
		phase, _, _ := strings.Cut(word, ",")
		if of == fileName(name) && (phase == string(PhaseNoticed) || phase == string(PhaseChanged)) {
			runs = append(runs, run{filepath.Join(incident, e.Name())})
		}
	}
	return runs, nil
}

// prune removes the runs of the oldest incidents, so that with one more there are keptIncidents. It keeps incidents for
// which a program still runs.
func prune(state string) {
	all, _ := durable.Dirs(state)
	for _, old := range all[:max(0, len(all)-(keptIncidents-1))] {
		if dir := filepath.Join(state, old.Name()); !goes(dir) {
			os.RemoveAll(dir)
		}
	}
}

// goes reports whether a program still runs for an incident.
func goes(incident string) bool {
	entries, err := os.ReadDir(incident)
	if err != nil {
		return true // keep what cannot be read
	}
	for _, e := range entries {
		lock, err := run{filepath.Join(incident, e.Name())}.lock()
		if err != nil {
			return true
		}
		lock.Close()
	}
	return false
}

// fileName makes one file name of words that may hold any characters. A comma separates them and is in none of them.
func fileName(words ...string) string {
	for i, w := range words {
		words[i] = url.PathEscape(cmp.Or(w, "-"))
	}
	name := strings.Join(words, ",")
	if strings.HasPrefix(name, ".") {
		name = "%2E" + name[1:]
	}
	return name
}

func (r run) path(name string) string { return filepath.Join(r.dir, name) }

// errRuns says that a supervisor runs, or that another process is about to start one.
var errRuns = errors.New("it is being run")

// lock takes the lock, which belongs to the open file: a child that inherits the file holds the lock even after this process
// has ended (flock(2)).
func (r run) lock() (*os.File, error) {
	f, err := os.OpenFile(r.path("lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open its lock: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, errors.Join(errRuns, f.Close())
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", f.Name(), err), f.Close())
	}
	return f, nil
}

// prepare removes what another boot left, and writes what is to be done. The caller holds the lock.
func (r run) prepare(j job, w Word) error {
	for _, name := range []string{supervisorFile, resultFile, stoppedFile} {
		if err := os.Remove(r.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	line, err := w.line()
	if err != nil {
		return err
	}
	return errors.Join(replace(r.path(wordFile), line), r.put(jobFile, j))
}

// introduce writes down which process supervises.
func (r run) introduce(pid int) error {
	boot, err := bootID()
	if err != nil {
		return err
	}
	p, err := procfs("").read(pid)
	if err != nil {
		return err
	}
	return r.put(supervisorFile, Identity{p.pid, p.started, boot})
}

// begun reports whether the run was begun in this boot.
func (r run) begun() bool {
	s, err := r.supervisor()
	if err == nil {
		s.handle.close()
	}
	return err == nil || errors.Is(err, errGone)
}

// supervisor takes hold of the supervisor; errGone: the one of this boot has ended. The caller closes the handle.
func (r run) supervisor() (held, error) {
	var id Identity
	if err := r.get(supervisorFile, &id); err != nil {
		return held{}, err
	}
	boot, err := bootID()
	if err != nil {
		return held{}, err
	}
	if id.Boot != boot {
		return held{}, errors.New("the machine was started anew since")
	}
	return procfs("").hold(id)
}

// stop has the supervisor stop the program and all of its group, and waits for that.
func (r run) stop(s held, why string) error {
	// If a reason was written before, the program is already being stopped for that one.
	f, err := os.OpenFile(r.path(stoppedFile), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		_, err = f.WriteString(why)
		err = errors.Join(err, f.Close())
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		why = fmt.Sprintf("%s (%v)", why, err) // a reason that cannot be written down still stops the program
	}
	if err := s.handle.signal(unix.SIGTERM); err != nil && !errors.Is(err, errGone) {
		return fmt.Errorf("stop it, as %s: %w", why, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), grace+burial)
	defer cancel()
	if err := s.handle.wait(ctx); err != nil {
		return fmt.Errorf("stop it, as %s: its supervisor %s does not end: %w", why, s.process, err)
	}
	return nil
}

// outcome is how the program ended: nil if that was with status 0.
func (r run) outcome() error {
	why, stopErr := os.ReadFile(r.path(stoppedFile))
	var res result
	err := r.get(resultFile, &res)
	switch {
	case errors.Is(err, fs.ErrNotExist) && stopErr == nil: // the supervisor ended before it could handle SIGTERM
		return withOutput(fmt.Sprintf("stopped, as %s, before it was started", why), r.lastLines())
	case errors.Is(err, fs.ErrNotExist):
		return withOutput("how it ended is not known, as its supervisor was killed or could not write it down", r.lastLines())
	case err != nil:
		return err
	}
	how := fmt.Sprintf("exit status %d", res.Code)
	switch {
	case res.Error != "":
		how = res.Error
	case res.Signal != "":
		how = "killed by " + res.Signal
	}
	if res.Stopped {
		if stopErr != nil {
			why = []byte("its supervisor got SIGTERM")
		}
		return withOutput(fmt.Sprintf("stopped, as %s: %s", why, how), r.lastLines())
	}
	if res == (result{}) {
		return nil
	}
	return withOutput(how, r.lastLines())
}

func withOutput(what, output string) error {
	if output == "" {
		return errors.New(what)
	}
	return fmt.Errorf("%s: %s", what, output)
}

func (r run) put(name string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return replace(r.path(name), b)
}

func (r run) get(name string, v any) error {
	b, err := os.ReadFile(r.path(name))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("read %s: %w", r.path(name), err)
	}
	return nil
}

// replace writes a file so that a reader sees the old one or the new one, whole.
func replace(path string, b []byte) error {
	tmp := fmt.Sprintf("%s.%d", path, os.Getpid())
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	return os.Rename(tmp, path)
}

// bootID names this boot, see proc_sys_kernel(5).
func bootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("which boot is this: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}
