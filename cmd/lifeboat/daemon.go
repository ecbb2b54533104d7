package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/lifeboat/lifeboat/config"
	"github.com/lifeboat/lifeboat/systemd"
)

// daemonFlags are what the daemons share.
type daemonFlags struct {
	config string
	log    string
	format string
}

func (f *daemonFlags) register(cmd *cobra.Command, path string) {
	cmd.Flags().StringVar(&f.config, "config", path, "the configuration file; conf.d/*.yaml and NAME.d/*.yaml beside it are merged in")
	cmd.Flags().StringVar(&f.log, "log-level", "info", "debug, info, warn or error")
	cmd.Flags().StringVar(&f.format, "log-format", "text", "text or json")
}

// logger writes to stderr, until the end. Under systemd the journal has the time already. Whoever reads the log may go, and what the daemon does
// goes on: Go would end it with the next line, as it does any program that nobody hears (os/signal, SIGPIPE). It is heeded and not
// ignored, for what hooks start would inherit that.
func (f *daemonFlags) logger(w io.Writer) (log *slog.Logger, end func(), err error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.log)); err != nil {
		return nil, nil, usagef("--log-level %s: want debug, info, warn or error", f.log)
	}
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	o := &slog.HandlerOptions{Level: level}
	if os.Getenv("JOURNAL_STREAM") != "" {
		o.ReplaceAttr = func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}
	}
	to := newUnhurried(w)
	switch f.format {
	case "text":
		log = slog.New(slog.NewTextHandler(to, o))
	case "json":
		log = slog.New(slog.NewJSONHandler(to, o))
	default:
		return nil, nil, usagef("--log-format %s: want text or json", f.format)
	}
	go to.run(log)
	return log, to.close, nil
}

// heed takes the signals that a daemon acts on once it runs: until then they wait. Nobody repeats a SIGPWR, and a SIGHUP that
// nobody takes ends the process; a start may last, where a cloud is slow to say what machine this is, or much landed here.
func heed() (signals <-chan os.Signal, stop func()) {
	heard := make(chan os.Signal, 8)
	signal.Notify(heard, syscall.SIGPWR, syscall.SIGHUP)
	return heard, func() { signal.Stop(heard) }
}

// signalled is a daemon that heeds signals while it runs.
type signalled struct {
	heard  <-chan os.Signal
	power  func(context.Context) // SIGPWR
	reload func()                // SIGHUP
}

// run runs the daemon, and hands it its signals until it has ended.
func (d signalled) run(ctx context.Context, daemon func(context.Context) error) error {
	listening, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case s := <-d.heard:
				if s == syscall.SIGHUP {
					d.reload()
				} else {
					d.power(listening)
				}
			case <-listening.Done():
				return
			}
		}
	}()
	err := daemon(ctx)
	stop()
	<-ended
	return err
}

// reload hands a daemon its file as it is now, unless that has faults.
func reload[C any](log *slog.Logger, file string, load func(string) (C, error), take func(C) (left []string)) {
	cfg, err := load(file)
	if err != nil {
		log.Error("the configuration has faults: the one in force stays", "err", err)
		return
	}
	log.Info("configuration reloaded", "needs_restart", take(cfg))
}

// badConfig makes a wrong configuration the caller's mistake: exit code 2, as `config check` has it.
func badConfig(err error) error {
	if _, ok := err.(*config.Faults); ok {
		return usagef("%s", fmt.Sprint(err))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: write it or give --config; /usr/share/doc/lifeboat/examples has one for each daemon", err)
	}
	return err
}

// tryAgain is how long a daemon that fails as it starts stays before it exits. Its unit starts it again a second later,
// however often: at once after a kill in the midst of a drain, and so that a wrong key need only be mended, but not sixty
// times a minute until then.
const tryAgain = 10 * time.Second

// unstarted is the failure of a daemon that has told why, and should exit after a while only.
type unstarted struct {
	error
	wait time.Duration
}

func (u *unstarted) Unwrap() error { return u.error }

// paced makes failures at the start such, where a service manager tries again. What trying again does not mend (exit 2) ends
// at once, for good.
func paced(run func(cmd *cobra.Command, args []string) error) func(cmd *cobra.Command, args []string) error {
	return func(cmd *cobra.Command, args []string) error {
		began := time.Now()
		err := run(cmd, args)
		wait := tryAgain - time.Since(began)
		if err == nil || wait <= 0 || exitCode(err, true) != exitFailed || !systemd.Listens() {
			return err
		}
		return &unstarted{err, wait}
	}
}

// linger waits out what an unstarted daemon has to, unless it is told to end.
func linger(ctx context.Context, err error) {
	if u, ok := errors.AsType[*unstarted](err); ok {
		_ = systemd.Status("tries again: %v", err) // it is printed, too
		sleep(ctx, u.wait)
	}
}

// stopping tells the service manager as soon as the daemon was told. Nothing depends on it, so a failure is not worth a
// line among a daemon's last ones.
func stopping() { _ = systemd.Stopping() }
