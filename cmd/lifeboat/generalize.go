package main

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/spf13/cobra"

	"github.com/lifeboat/lifeboat/agent"
	"github.com/lifeboat/lifeboat/config"
)

func generalizeCommand() *cobra.Command {
	var file string
	var dry bool
	cmd := &cobra.Command{
		Use:   "generalize",
		Short: "Make this machine nobody, before an image is made of its disk",
		Long: `Removes what says who this machine is: its certificate and key, its incarnation, a join token; and what is its own: the
journal and the vault, so blocks that other nodes left here are gone. Settings, the fleet's CA outside of data_dir and the
stores stay. It refuses while the agent runs. A coordinator's data stays too: no image should have any.`,
		Example: `  lifeboat generalize --dry-run
  systemctl stop lifeboat-agent && lifeboat generalize`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := agent.Load(file)
			if errors.Is(err, fs.ErrNotExist) && !cmd.Flags().Changed("config") {
				cfg, err = agent.Default(), nil // an image may get its settings later
			}
			if err != nil {
				return badConfig(err)
			}
			do, done := cfg.Generalize, "removed"
			if dry {
				do, done = cfg.OfThisMachine, "would remove"
			}
			paths, err := do()
			for _, p := range paths {
				fmt.Fprintln(cmd.OutOrStdout(), done, p)
			}
			if errors.Is(err, agent.ErrRuns) {
				return fmt.Errorf("generalize: %w: systemctl stop lifeboat-agent", err)
			}
			if err == nil && len(paths) == 0 {
				fmt.Fprintln(cmd.OutOrStdout(), "nothing to remove")
			}
			own := config.Further(file, func(report config.Report) {
				for _, k := range [][2]string{{"node.name", cfg.Node.Name}, {"listen.advertise", cfg.Listen.Advertise}} {
					if k[1] != "" {
						report(k[0], k[1], "each machine of the image would have it", "take it out")
					}
				}
			})
			if left, ok := errors.AsType[*config.Faults](own); ok && err == nil {
				for _, f := range *left {
					fmt.Fprintln(cmd.OutOrStdout(), "left", f)
				}
			}
			return err
		},
	}
	cmd.Flags().StringVar(&file, "config", defaultAgentConfig, "the agent's `FILE`")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only say what would be removed")
	return cmd
}
