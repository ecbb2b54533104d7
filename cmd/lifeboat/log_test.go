package main

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// stalled is a writer that blocks until it is thawed.
type stalled struct {
	thaw chan struct{}
	bytes.Buffer
}

func (s *stalled) Write(p []byte) (int, error) {
	<-s.thaw
	return s.Buffer.Write(p)
}

// behind returns a log that is written in the background.
func behind(w io.Writer) (log *slog.Logger, end func()) {
	to := newUnhurried(w)
	log = slog.New(slog.NewTextHandler(to, nil))
	go to.run(slog.New(slog.NewTextHandler(w, nil)))
	return log, to.close
}

// Logging never blocks. Once the log is read again the lines are there, in order; those that were too many are counted.
func TestLogThatIsNotReadHoldsNobodyUp(t *testing.T) {
	for _, said := range []int{1000, 120_000} {
		t.Run(fmt.Sprint(said), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &stalled{thaw: make(chan struct{})}
				log, end := behind(w)
				began := time.Now()
				for i := range said {
					if i > 0 && i%(said/4) == 0 { // something is taken, and then nothing again
						w.thaw <- struct{}{}
						synctest.Wait()
					}
					log.Info("said", "n", i)
				}
				if took := time.Since(began); took > 0 {
					t.Errorf("it took %v to say it", took)
				}
				close(w.thaw)
				synctest.Wait()
				log.Info("said last")
				end()
				lines := strings.Split(strings.TrimSpace(w.String()), "\n")
				missing := regexp.MustCompile(`level=ERROR .* lines=(\d+)`)
				lost, next := 0, 0
				for _, line := range lines[:len(lines)-1] {
					if m := missing.FindStringSubmatch(line); m != nil {
						n, _ := strconv.Atoi(m[1])
						lost, next = lost+n, next+n
					} else if strings.HasSuffix(line, fmt.Sprintf(" n=%d", next)) {
						next++
					} else {
						t.Fatalf("line %d is %q", next, line)
					}
				}
				if next != said || (lost == 0) != (said == 1000) || !strings.Contains(lines[len(lines)-1], "said last") {
					t.Errorf("%d lines, of which %d are missing, want %d in all; then %q", next, lost, said, lines[len(lines)-1])
				}
			})
		})
	}
}

// A span reads the same in both formats.
func TestSpansInTheLog(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		var out bytes.Buffer
		log, end, err := (&daemonFlags{log: "info", format: format}).logger(&out)
		if err != nil {
			t.Fatal(err)
		}
		log.Info("done", "took", 1500*time.Millisecond)
		end()
		if !regexp.MustCompile(`took"?[=:]"?1\.5s`).MatchString(out.String()) {
			t.Errorf("%s: got %s", format, out.String())
		}
	}
}

// Nor does a daemon that ends.
func TestDaemonEndsThoughNobodyTakesItsLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &stalled{thaw: make(chan struct{})}
		log, end := behind(w)
		log.Info("said last")
		began := time.Now()
		end()
		if took := time.Since(began); took != lastLines {
			t.Errorf("it took %v to end", took)
		}
		close(w.thaw)
	})
}
