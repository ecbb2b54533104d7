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

	"github.com/lifeboat/lifeboat/await"
	"github.com/lifeboat/lifeboat/config"
	"github.com/lifeboat/lifeboat/systemd"
)

// daemonFlags are the flags of all daemons.
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

// logger writes to stderr until end is called. Under systemd it leaves out the time, which the journal adds. The daemon must go on when the
// reader of its log is gone: by default Go ends a program that writes to a broken stderr (os/signal, SIGPIPE). So SIGPIPE is caught. It is
// not ignored, because programs that hooks start would inherit that.
func (f *daemonFlags) logger(w io.Writer) (log *slog.Logger, end func(), err error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.log)); err != nil {
		return nil, nil, usagef("--log-level %s: want debug, info, warn or error", f.log)
	}
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	inJournal := os.Getenv("JOURNAL_STREAM") != ""
	o := &slog.HandlerOptions{Level: level, ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		switch {
		case inJournal && len(groups) == 0 && a.Key == slog.TimeKey:
			return slog.Attr{}
		case a.Value.Kind() == slog.KindDuration:
			a.Value = slog.StringValue(a.Value.String()) // else JSON has nanoseconds
		}
		return a
	}}
	in := func(to io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(to, o)) }
	switch f.format {
	case "text":
	case "json":
		in = func(to io.Writer) *slog.Logger { return slog.New(slog.NewJSONHandler(to, o)) }
	default:
		return nil, nil, usagef("--log-format %s: want text or json", f.format)
	}
	to := newUnhurried(w)
	go to.run(in(w))
	return in(to), to.close, nil
}

// heed catches the signals that a daemon acts on once it runs. Until then they wait in the channel: a SIGPWR is not repeated, and a SIGHUP
// that is not caught ends the process. A start may take long, when a cloud is slow to say which machine this is, or many blocks have
// landed here.
func heed() (signals <-chan os.Signal, stop func()) {
	heard := make(chan os.Signal, 8)
	signal.Notify(heard, syscall.SIGPWR, syscall.SIGHUP)
	return heard, func() { signal.Stop(heard) }
}

// signalled is a daemon that acts on signals while it runs.
type signalled struct {
	heard  <-chan os.Signal
	power  func(context.Context) // SIGPWR
	reload func()                // SIGHUP
}

// run runs the daemon, and acts on its signals until it has ended.
func (d signalled) run(ctx context.Context, daemon func(context.Context) error) error {
	listening, stop := context.WithCancel(ctx)
	ended := await.Beside(func() {
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
	})
	err := daemon(ctx)
	stop()
	<-ended
	return err
}

// reload reads a daemon's settings file again and applies it, unless it has faults.
func reload[C any](log *slog.Logger, file string, load func(string) (C, error), take func(C) (left []string)) {
	cfg, err := load(file)
	if err != nil {
		log.Error("the configuration has faults: the one in force stays", "err", err)
		return
	}
	log.Info("configuration reloaded", "needs_restart", take(cfg))
}

// badConfig makes faults of the settings a usage error: exit code 2, like that of config check.
func badConfig(err error) error {
	if _, ok := err.(*config.Faults); ok {
		return usagef("%s", fmt.Sprint(err))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: write it or give --config; /usr/share/doc/lifeboat/examples has one for each daemon", err)
	}
	return err
}

// tryAgain is how long a daemon lives at least when its start fails. Its unit restarts it a second after each exit, without limit, so that
// it is back at once after a kill in the middle of a drain, and by itself once a wrong key is mended. With tryAgain that is not sixty
// starts a minute in the meantime.
const tryAgain = 10 * time.Second

// unstarted is the error of a daemon whose start failed: the process prints it at once and exits after wait.
type unstarted struct {
	error
	wait time.Duration
}

func (u *unstarted) Unwrap() error { return u.error }

// paced turns errors at a daemon's start into unstarted ones, if a service manager will start it again. An error that trying again
// does not mend (exit code 2) ends it at once, for good.
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

// linger waits before the exit of an unstarted daemon, unless ctx ends.
func linger(ctx context.Context, err error) {
	if u, ok := errors.AsType[*unstarted](err); ok {
		_ = systemd.Status("tries again: %v", err) // a failure does not matter: the error is printed too
		await.Sleep(ctx, u.wait)
	}
}

// stopping tells the service manager that the daemon stops, as soon as the daemon is told to. Nothing depends on it, so a failure is not
// worth a line in the log.
func stopping() { _ = systemd.Stopping() }
