package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/lifeboat/lifeboat/agent"
	"github.com/lifeboat/lifeboat/config"
	"github.com/lifeboat/lifeboat/preemption"
)

func agentCommand() *cobra.Command {
	var f daemonFlags
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Run this machine's agent",
		Long: `Run this machine's agent: it hears that the machine will go and moves its blocks to peers before the deadline.

SIGTERM and SIGINT stop it without decommissioning the node, unless the host goes down; a drain under way goes on when it is
started again.
SIGPWR says DecommissionSelf, as ` + "`lifeboat decommission --self`" + ` does. SIGHUP reads the configuration and the certificate again:
drain, receive, policy and disks.evacuate change at once, the rest needs a restart; a file with faults changes nothing.`,
		Example: `  lifeboat agent --config /etc/lifeboat/agent.yaml
  lifeboat agent --config agent.yaml --log-format json`,
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
			cfg, err := agent.Load(f.config)
			if err != nil {
				return badConfig(err)
			}
			if err := config.Further(f.config, func(report config.Report) { cfg.CheckLinks(cmd.Context(), report) }); err != nil {
				return badConfig(err)
			}
			started := cfg.WatchStart(cmd.Context(), nil, log)
			defer started()
			id, err := cfg.Enter(cmd.Context(), nil, log)
			switch {
			case err != nil && cmd.Context().Err() != nil:
				return nil // told to stop while it waited to join
			case errors.Is(err, agent.ErrAnothers):
				return usagef("%w", err) // exit code 2: the service manager must not try again
			case err != nil:
				return err
			}
			a, err := agent.New(cmd.Context(), cfg, agent.Deps{
				Log: log, Identity: id, Version: thisBuild().String(), Logind: preemption.NewLogind(preemption.LogindConfig{Log: log}),
				ProbeCommand: probeCommand(), Ready: settle,
			})
			if err != nil {
				return err
			}
			started()
			defer context.AfterFunc(cmd.Context(), stopping)()
			return signalled{
				heard: signals,
				// SIGPWR is how Spark's own scripts decommission a worker. The results are dropped: a signal has no caller to tell, and
				// Run logs them.
				power: func(ctx context.Context) {
					_, _ = a.DecommissionSelf(ctx, preemption.SourceSignal, time.Time{}, "SIGPWR")
				},
				reload: func() { reload(log, f.config, agent.Load, a.Reload) },
			}.run(cmd.Context(), a.Run)
		}),
	}
	f.register(cmd, "/etc/lifeboat/agent.yaml")
	return cmd
}
