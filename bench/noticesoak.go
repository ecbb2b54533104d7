package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/lifeboat/lifeboat/preemption"
)

// As many polls as three days have at one a second; a notice comes every two minutes (130 polls).
const (
	soakPolls     = 260_000
	soakIncidents = 2_000
)

// soak is an EC2 source in this process that polls a real server as fast as it can, with its incidents on a real disk.
type soak struct {
	polls, every int // one notice is given and withdrawn within every so many polls

	fake      *pretender
	n         int // polls so far
	given     int // notices so far
	begun     time.Time
	warm, end footprint
}

// footprint is what this process holds at one moment.
type footprint struct {
	heapBytes             int64
	descriptors, routines int
}

func (f footprint) String() string {
	return fmt.Sprintf("%.2f MiB of heap, %d descriptors, %d goroutines", mib(f.heapBytes), f.descriptors, f.routines)
}

func readFootprint() (f footprint, err error) {
	runtime.GC()
	runtime.GC() // frees what the first one found unused in pools
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	open, err := os.ReadDir("/proc/self/fd")
	return footprint{int64(m.HeapAlloc), len(open), runtime.NumGoroutine()}, err
}

// measureSoak measures whether memory or descriptors grow over many polls.
func measureSoak(ctx context.Context, b bench) (_ []figure, err error) {
	dir, err := b.g.fresh()
	if err != nil {
		return nil, err
	}
	s := &soak{every: soakPolls / soakIncidents}
	s.polls = max(10, int(soakIncidents*b.scale)) * s.every
	if s.fake, err = newPretender(preemption.SourceEC2); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.fake.close()) }()
	opened, err := s.run(ctx, dir)
	if err != nil {
		return nil, err
	}
	if opened != s.given {
		return nil, fmt.Errorf("%d notices made %d incidents", s.given, opened)
	}
	took := time.Since(s.begun)
	fmt.Fprintf(b.stderr, "soak: %.0f s, load %s\n", took.Seconds(), load())
	return s.figures(opened, took, b.args), s.print(b.stdout, opened, took)
}

// run polls until it has polled enough, and returns how many incidents were opened.
func (s *soak) run(ctx context.Context, dir string) (opened int, err error) {
	log := quiet()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var trouble error
	cloud, err := preemption.NewEC2(preemption.EC2Config{Metadata: preemption.Metadata{
		Endpoint: s.fake.url(), Poll: time.Nanosecond, Log: log,
		Polled: func(p preemption.Poll) {
			if trouble = s.polled(p); trouble != nil || s.n >= s.polls {
				stop()
			}
		},
	}})
	if err != nil {
		return 0, err
	}
	keeper, err := preemption.OpenKeeper[struct{}](preemption.KeeperConfig{Dir: dir, Log: log})
	if err != nil {
		return 0, err
	}
	s.begun = time.Now()
	for {
		n, err := cloud.Next(ctx)
		if err != nil {
			break // enough was polled, or trouble
		}
		_, was := keeper.Open()
		page, changed, err := keeper.Join(n)
		switch {
		case err != nil:
			return opened, err
		case !changed:
			return opened, fmt.Errorf("%s of %s was given twice", n.Kind, n.ID)
		case !was:
			opened++
		case page.Incident.Withdrawn():
			if err := keeper.Close("the bench took it back"); err != nil {
				return opened, err
			}
		}
	}
	if s.n < s.polls || trouble != nil {
		return opened, errors.Join(trouble, ctx.Err())
	}
	return opened, nil
}

// polled is called after each poll. It gives a notice in the middle of every so many polls, and withdraws it near
// their end.
func (s *soak) polled(p preemption.Poll) (err error) {
	if p.Result != "ok" {
		return fmt.Errorf("poll %d of %s: %s", s.n, p.Path, p.Result)
	}
	s.n++
	switch at := s.n % s.every; {
	case at == s.every/2:
		s.given++
		s.fake.interrupt()
	case at == s.every-s.every/10:
		s.fake.withdraw()
	}
	switch s.n { // no notice stands at either moment
	case s.polls / 10: // connections, buffers and tables have their size by now
		s.warm, err = readFootprint()
	case s.polls:
		s.end, err = readFootprint()
	}
	return err
}

func (s *soak) print(w io.Writer, opened int, took time.Duration) error {
	var b strings.Builder
	fmt.Fprintf(&b, "\nsoak: %d polls over loopback HTTP in %.0f s, %d incidents on disk\n", s.n, took.Seconds(), opened)
	fmt.Fprintf(&b, "after a tenth:  %v\nat the end:     %v\n", s.warm, s.end)
	_, err := io.WriteString(w, b.String())
	return err
}

func (s *soak) figures(opened int, took time.Duration, command string) []figure {
	add := func(name, unit string, value float64) figure { return alone("soak", name, unit, value, command) }
	return []figure{
		add("polls", "", float64(s.n)), add("incidents", "", float64(opened)), add("took", "s", took.Seconds()),
		add("heap after a tenth", "MiB", mib(s.warm.heapBytes)), add("heap at the end", "MiB", mib(s.end.heapBytes)),
		add("descriptors after a tenth", "", float64(s.warm.descriptors)),
		add("descriptors at the end", "", float64(s.end.descriptors)),
	}
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }
