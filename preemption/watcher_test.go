package preemption

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// script is a source that plays its steps, one a second, and then blocks.
type script struct{ steps []func() (Notice, error) }

func (s *script) Next(ctx context.Context) (Notice, error) {
	if len(s.steps) == 0 {
		<-ctx.Done()
		return Notice{}, ctx.Err()
	}
	step := s.steps[0]
	s.steps = s.steps[1:]
	time.Sleep(time.Second)
	return step()
}

func say(n Notice) func() (Notice, error) { return func() (Notice, error) { return n, nil } }
func fail(text string) func() (Notice, error) {
	return func() (Notice, error) { return Notice{}, errors.New(text) }
}

// run runs w until the test ends.
func run(t *testing.T, w *Watcher) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run ended with %v, want nil", err)
		}
	})
}

func TestWatcherHearsAllSources(t *testing.T) {
	var log bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		sick := &script{}
		for i := range 5 {
			sick.steps = append(sick.steps, fail(fmt.Sprint("trouble ", i)))
		}
		sick.steps = append(sick.steps, say(Notice{Source: "sick"}), fail("more trouble"))
		manual := NewManual()
		w := NewWatcher(slog.New(slog.NewTextHandler(&log, nil)), sick, manual, &script{})
		run(t, w)

		manual.Say(Notice{})
		start := time.Now()
		if n, err := w.Next(t.Context()); err != nil || n.Source != SourceManual || time.Since(start) != 0 {
			t.Errorf("got %+v, %v after %v, want manual at once", n, err, time.Since(start))
		}
		if n, err := w.Next(t.Context()); err != nil || n.Source != "sick" || time.Since(start) > 11*time.Second {
			t.Errorf("got %+v, %v after %v, want the source asked again each second", n, err, time.Since(start))
		}
		time.Sleep(time.Minute)
	})
	// A start and an end of the first streak, a start of the second.
	if got := strings.Count(log.String(), "\n"); got != 3 {
		t.Errorf("logged %d lines, want 3:\n%s", got, log.String())
	}
}

func TestWatcherKeepsTheNewestWord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := Notice{Source: "s", ID: "a", Kind: KindStop}, Notice{Source: "s", ID: "b"}
		graver := a
		graver.Kind = KindTerminate
		w := NewWatcher(slog.New(slog.DiscardHandler), &script{[]func() (Notice, error){say(a), say(b), say(graver)}})
		run(t, w)
		time.Sleep(time.Minute)
		for _, want := range []Notice{b, graver} {
			if got, err := w.Next(t.Context()); err != nil || got != want {
				t.Errorf("got %+v, %v, want %+v", got, err, want)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if n, err := w.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %+v, %v, want nothing more", n, err)
		}
	})
}

func TestManual(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewManual()
		next := func() Notice {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			n, err := m.Next(ctx)
			if err != nil {
				return Notice{}
			}
			return n
		}
		if m.Withdraw("nothing there") {
			t.Error("withdrew something from nothing")
		}
		start := time.Now()
		m.Say(Notice{Reason: "patching"})
		want := Notice{Source: SourceManual, ID: SourceManual, Kind: KindManual, SeenAt: start, Reason: "patching"}
		if got := next(); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
		time.Sleep(time.Minute)
		m.Say(Notice{Reason: "patching"})
		if got := next(); got != (Notice{}) {
			t.Errorf("repeating it gave %+v", got)
		}
		due := time.Now().Add(time.Minute)
		m.Say(Notice{Deadline: due})
		if got := next(); !got.Deadline.Equal(due) || !got.SeenAt.Equal(start) {
			t.Errorf("got %+v, want due %v and seen %v", got, due, start)
		}
		m.Say(Notice{Deadline: due.Add(time.Hour)})
		m.Say(Notice{})
		if got := next(); got != (Notice{}) {
			t.Errorf("a later deadline or none gave %+v", got)
		}
		m.Say(Notice{Source: SourceSignal})
		if got := next(); got.Source != SourceSignal || got.ID != SourceSignal {
			t.Errorf("got %+v, want a notice of its own", got)
		}
		if !m.Withdraw("changed my mind") {
			t.Error("withdrew nothing")
		}
		for _, source := range []string{SourceManual, SourceSignal} {
			if got := next(); !got.Withdrawn || got.Source != source || got.Reason != "changed my mind" {
				t.Errorf("got %+v, want %s withdrawn", got, source)
			}
		}
		if m.Withdraw("") {
			t.Error("withdrew twice")
		}
		m.Say(Notice{Deadline: due.Add(time.Hour)})
		if got := next(); got.Withdrawn || !got.Deadline.Equal(due.Add(time.Hour)) {
			t.Errorf("got %+v, want more time after a withdrawal", got)
		}
	})
}

func TestManualWithdrawsWhatWasSaidBeforeARestart(t *testing.T) {
	m := NewManual()
	m.Believe(Notice{Source: SourceEC2, ID: "a"}, Notice{Source: SourceManual, ID: SourceManual, Kind: KindManual},
		Notice{Source: SourceSignal, ID: SourceSignal, Withdrawn: true})
	if !m.Withdraw("never mind") {
		t.Fatal("withdrew nothing")
	}
	if n, err := m.Next(t.Context()); err != nil || !n.Withdrawn || n.Source != SourceManual {
		t.Errorf("got %+v, %v, want the manual notice withdrawn", n, err)
	}
	if got := len(m.news.waiting); got != 0 {
		t.Errorf("%d more notices wait, want none", got)
	}
}

// door is a source that lets the machine go, at once or as long as it takes.
type door struct {
	script
	let func(ctx context.Context) error
}

func (d *door) Release(ctx context.Context, _ Notice) error { return d.let(ctx) }

// A shutdown does not wait for a cloud that does not answer.
func TestReleaseOfOneDoesNotWaitForAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, took := time.Now(), time.Duration(-1)
		hangs := &door{let: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }}
		opens := &door{let: func(context.Context) error { took = time.Since(began); return nil }}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := NewWatcher(slog.New(slog.DiscardHandler), hangs, opens).Release(ctx, Notice{Source: SourceEC2})
		if took != 0 || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("released after %s, %v, want at once, and the trouble of the other", took, err)
		}
	})
}
