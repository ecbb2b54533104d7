package main

import (
	"context"
	"log/slog"
	"os"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/lifeboat/lifeboat/preemption"
	"github.com/lifeboat/lifeboat/sidecar"
)

func sidecarCommand() *cobra.Command {
	var f daemonFlags
	cmd := &cobra.Command{
		Use:   "sidecar",
		Short: "Pass this machine's notices on, and nothing else",
		Long: `Pass this machine's notices on to processes, units, programs, URLs or an agent, as its configuration says. It carries no
block and needs no coordinator.

SIGTERM and SIGINT stop it and tell nobody, unless the operating system is going down; what it has told and what is under
way is remembered when it is started again. SIGPWR is a notice. SIGHUP reads the configuration again: the policy changes
at once, the rest needs a restart; a file with faults changes nothing.`,
		Example: `  lifeboat sidecar --config /etc/lifeboat/sidecar.yaml
  lifeboat status --socket /run/lifeboat/sidecar.sock`,
		Args: cobra.NoArgs,
		RunE: paced(func(cmd *cobra.Command, _ []string) error {
			thrifty()
			signals, deaf := heed()
			defer deaf()
			log, err := f.logger(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			cfg, err := sidecar.Load(f.config)
			if err != nil {
				return badConfig(err)
			}
			s, err := sidecar.New(cmd.Context(), cfg, sidecar.Deps{
				Log: log, Version: thisBuild().String(), Ready: settle, Logind: preemption.NewLogind(preemption.LogindConfig{Log: log}),
			})
			if err != nil {
				return err
			}
			defer context.AfterFunc(cmd.Context(), stopping)()
			return runSidecar(cmd.Context(), s, signals, func() { reloadSidecar(log, f.config, s) })
		}),
	}
	f.register(cmd, "/etc/lifeboat/sidecar.yaml")
	return cmd
}

// reloadSidecar hands the sidecar the file as it is now, unless it has faults.
func reloadSidecar(log *slog.Logger, file string, s *sidecar.Sidecar) {
	cfg, err := sidecar.Load(file)
	if err != nil {
		log.Error("the configuration has faults: the one in force stays", "err", err)
		return
	}
	left := s.Reload(cfg)
	log.Info("configuration reloaded", "needs_restart", left)
}

// runSidecar runs the sidecar and hands it its signals.
func runSidecar(ctx context.Context, s *sidecar.Sidecar, signals <-chan os.Signal, reload func()) error {
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case got := <-signals:
				if got == syscall.SIGHUP {
					reload()
				} else {
					s.Signalled()
				}
			case <-over:
				return
			}
		}
	}()
	err := s.Run(ctx)
	close(over)
	<-ended
	return err
}
