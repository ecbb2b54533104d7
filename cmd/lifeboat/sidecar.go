package main

import (
	"context"

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
			log, end, err := f.logger(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			defer end()
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
			return signalled{
				heard:  signals,
				power:  func(context.Context) { s.Signalled() },
				reload: func() { reload(log, f.config, sidecar.Load, s.Reload) },
			}.run(cmd.Context(), s.Run)
		}),
	}
	f.register(cmd, "/etc/lifeboat/sidecar.yaml")
	return cmd
}
