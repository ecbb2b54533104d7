package disks

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
)

// prober does one task at a time for one disk, and takes as long as the disk does.
type prober interface {
	probe(t task, at func(step string)) answer
	// kill ends the task under way; its answer is then lost. A task that sleeps in the kernel ends only when the kernel
	// lets it.
	kill()
	// end gives up what the prober holds. It is called while no task is under way.
	end()
}

// here probes in this process. A disk that hangs then holds one of the process's threads, and keeps the process from
// ending completely.
type here struct {
	sys sysfs
}

func (h here) probe(t task, at func(string)) answer { return perform(h.sys, t, at) }
func (here) kill()                                  {}
func (here) end()                                   {}

// child probes in a process of its own, started when first needed and kept. A disk that hangs then holds the child, and
// none of our threads, files or ports. A killed child gets away from some hangs (NFS, FUSE before its server took the
// request), and stays in others (a device, a frozen file system) until they end.
type child struct {
	command []string

	mu      sync.Mutex // guards what follows
	process *os.Process

	cmd *exec.Cmd // nil: no child runs; this and the rest belong to probe and end
	in  io.WriteCloser
	out *bufio.Reader
}

// said is one line from the child: a step begun, or the answer.
type said struct {
	At     string  `json:",omitempty"`
	Answer *answer `json:",omitempty"`
}

func (c *child) probe(t task, at func(string)) answer {
	a, err := c.ask(t, at)
	if err != nil {
		c.end()
		return answer{Lost: true, finding: finding{Why: err.Error()}}
	}
	return a
}

func (c *child) ask(t task, at func(string)) (answer, error) {
	if c.cmd == nil {
		if err := c.start(); err != nil {
			return answer{}, err
		}
	}
	line, err := json.Marshal(t)
	if err != nil {
		return answer{}, err
	}
	if _, err := c.in.Write(append(line, '\n')); err != nil {
		return answer{}, fmt.Errorf("ask the probing process: %w", err)
	}
	for {
		line, err := c.out.ReadSlice('\n')
		if err != nil {
			return answer{}, fmt.Errorf("hear the probing process: %w", err)
		}
		var s said
		if err := json.Unmarshal(line, &s); err != nil {
			return answer{}, fmt.Errorf("hear the probing process: %w", err)
		}
		if s.Answer != nil {
			return *s.Answer, nil
		}
		at(s.At)
	}
}

func (c *child) start() error {
	cmd := exec.Command(c.command[0], c.command[1:]...)
	cmd.Dir = "/" // hold no mount
	// One thread does all the work, and the heap is small.
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1", "GOGC=50")
	in, err := cmd.StdinPipe()
	if err != nil {
		return fmt.Errorf("start the probing process: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("start the probing process: %w", errors.Join(err, in.Close()))
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the probing process: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cmd, c.in, c.out, c.process = cmd, in, bufio.NewReader(out), cmd.Process
	return nil
}

func (c *child) kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.process != nil {
		c.process.Kill() // it may just have ended
	}
}

// end kills the child and waits until the kernel has let go of it.
func (c *child) end() {
	if c.cmd == nil {
		return
	}
	c.kill()
	c.in.Close() // nothing is written any more
	c.cmd.Wait() // says that it was killed
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cmd, c.process = nil, nil
}

// ServeProbes answers the monitor's questions about one disk, from r to w, until r ends: a Config's Command has to run it.
// If r ends while the disk hangs it returns all the same, so that the process can end, too.
func ServeProbes(r io.Reader, w io.Writer) error {
	return serve(sysfsRoot, r, w)
}

func serve(sys sysfs, r io.Reader, w io.Writer) error {
	tasks, failed := make(chan task), make(chan error, 1)
	defer close(tasks)
	go func() { failed <- answerAll(sys, tasks, w) }() // it ends with tasks, or when its disk lets it
	in := json.NewDecoder(r)
	for {
		var t task
		switch err := in.Decode(&t); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("hear a question for the disk: %w", err)
		}
		select {
		case tasks <- t:
		case err := <-failed:
			return err
		}
	}
}

func answerAll(sys sysfs, tasks <-chan task, w io.Writer) error {
	out := json.NewEncoder(w)
	for t := range tasks {
		var untold error
		a := perform(sys, t, func(step string) { untold = errors.Join(untold, out.Encode(said{At: step})) })
		if err := errors.Join(untold, out.Encode(said{Answer: &a})); err != nil {
			return fmt.Errorf("answer a question for the disk: %w", err)
		}
	}
	return nil
}
