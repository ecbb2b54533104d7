package agent

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A start on a hanging disk logs that within seconds, once, and logs when it goes on. A start that takes long for another
// reason logs nothing.
func TestStartOnADiskThatHangs(t *testing.T) {
	for name, takes := range map[string]time.Duration{"a second": time.Second, "an hour": time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, told := time.Now(), []time.Duration{}
				var said bytes.Buffer
				over := watchStart(t.Context(), slog.New(slog.NewTextHandler(&said, nil)), func() error { time.Sleep(takes); return nil }, func(ctx context.Context) {
					told = append(told, time.Since(began))
					<-ctx.Done()
					told = append(told, time.Since(began))
				})
				time.Sleep(2 * time.Hour)
				over()
				synctest.Wait()
				switch {
				case takes == time.Second && len(told)+said.Len() > 0:
					t.Errorf("got %v, %q", told, &said)
				case takes == time.Hour && (len(told) != 2 || told[0] > 5*time.Second || told[1] != takes || strings.Count(said.String(), "\n") != 1):
					t.Errorf("got %v, %q, want it to be told within 5 s and until an hour is over", told, &said)
				}
			})
		})
	}
}
