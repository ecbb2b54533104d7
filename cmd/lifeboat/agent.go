package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/lifeboat/lifeboat/agent"
	"github.com/lifeboat/lifeboat/preemption"
	"github.com/lifeboat/lifeboat/systemd"
)

func agentCommand() *cobra.Command {
	var f daemonFlags
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Run this machine's agent",
		Long: `Run this machine's agent: it hears that the machine will go and moves its blocks to peers before the deadline.

SIGTERM and SIGINT stop it without decommissioning the node; a drain under way goes on when it is started again.
SIGPWR says DecommissionSelf, as ` + "`lifeboat decommission --self`" + ` does.`,
		Example: `  lifeboat agent --config /etc/lifeboat/agent.yaml
  lifeboat agent --config agent.yaml --log-format json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := f.logger(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			cfg, err := agent.Load(f.config)
			if err != nil {
				return badConfig(err)
			}
			id, err := cfg.Identity()
			if err != nil {
				return err
			}
			a, err := agent.New(cmd.Context(), cfg, agent.Deps{Log: log, Identity: id, Version: thisBuild().String()})
			if err != nil {
				return err
			}
			defer systemd.Stopping() // systemd stops waiting for nothing if it misses this
			return runAgent(cmd.Context(), a)
		},
	}
	f.register(cmd, "/etc/lifeboat/agent.yaml")
	return cmd
}

// runAgent runs the agent and hands it SIGPWR, the signal by which Spark's own scripts decommission a worker.
func runAgent(ctx context.Context, a *agent.Agent) error {
	power := make(chan os.Signal, 1)
	signal.Notify(power, syscall.SIGPWR)
	defer signal.Stop(power)
	listening, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-power:
				// It says when the drain has begun; there is nobody to tell, and Run logs it.
				_, _ = a.DecommissionSelf(listening, preemption.SourceSignal, time.Time{}, "SIGPWR")
			case <-listening.Done():
				return
			}
		}
	}()
	err := a.Run(ctx)
	stop()
	<-ended
	return err
}
