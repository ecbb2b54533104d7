package hosts_test

import (
	"os"
	"os/signal"
	"syscall"
)

// interrupted calls then at Ctrl-C, SIGTERM or a hang-up, so that the caller can still clean up.
func interrupted(then func()) (stop func()) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	done := make(chan struct{})
	go func() {
		select {
		case <-signals:
			then()
		case <-done:
		}
	}()
	return func() { signal.Stop(signals); close(done) }
}
