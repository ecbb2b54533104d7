package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"

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
	cmd.Flags().StringVar(&f.config, "config", path, "the configuration file; conf.d/*.yaml beside it is merged in")
	cmd.Flags().StringVar(&f.log, "log-level", "info", "debug, info, warn or error")
	cmd.Flags().StringVar(&f.format, "log-format", "text", "text or json")
}

// logger writes to stderr. Under systemd the journal has the time already.
func (f *daemonFlags) logger(w io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.log)); err != nil {
		return nil, usagef("--log-level %s: want debug, info, warn or error", f.log)
	}
	o := &slog.HandlerOptions{Level: level}
	if os.Getenv("JOURNAL_STREAM") != "" {
		o.ReplaceAttr = func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}
	}
	switch f.format {
	case "text":
		return slog.New(slog.NewTextHandler(w, o)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, o)), nil
	}
	return nil, usagef("--log-format %s: want text or json", f.format)
}

// badConfig makes a wrong configuration the caller's mistake: exit code 2, as `config check` has it.
func badConfig(err error) error {
	if _, ok := err.(*config.Faults); ok {
		return usagef("%s", fmt.Sprint(err))
	}
	return err
}

// stopping tells the service manager as soon as the daemon was told. Nothing depends on it, so a failure is not worth a
// line among a daemon's last ones.
func stopping() { _ = systemd.Stopping() }
