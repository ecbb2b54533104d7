package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/lifeboat/lifeboat/agent"
	"github.com/lifeboat/lifeboat/config"
	"github.com/lifeboat/lifeboat/sidecar"
)

func generalizeCommand() *cobra.Command {
	var file string
	var dry bool
	cmd := &cobra.Command{
		Use:   "generalize",
		Short: "Make this machine nobody, before an image is made of its disk",
		Long: `Removes what says who this machine is: its certificate and key, its incarnation, a join token; and what is its own: the
journal and the vault, so blocks that other nodes left here are gone. Of a sidecar, whose sidecar.yaml is beside FILE, it
removes the journal. Settings, the fleet's CA outside of data_dir and the stores stay. It refuses while the agent or the
sidecar runs. A coordinator's data stays too: no image should have any.`,
		Example: `  lifeboat generalize --dry-run
  systemctl stop lifeboat-agent lifeboat-sidecar && lifeboat generalize`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := agent.Load(file)
			if errors.Is(err, fs.ErrNotExist) && !cmd.Flags().Changed("config") {
				cfg, err = agent.Default(), nil // an image may get its settings later
			}
			if err != nil {
				return badConfig(err)
			}
			paths, err := cfg.OfThisMachine()
			if err != nil {
				return fmt.Errorf("generalize: %w", err)
			}
			more, err := ofTheSidecar(filepath.Join(filepath.Dir(file), "sidecar.yaml"))
			if err != nil {
				return err
			}
			paths = append(paths, more...)
			for _, p := range paths {
				if dry {
					fmt.Fprintln(cmd.OutOrStdout(), "would remove", p)
				} else if err := os.RemoveAll(p); err != nil {
					return fmt.Errorf("generalize: %w", err)
				} else {
					fmt.Fprintln(cmd.OutOrStdout(), "removed", p)
				}
			}
			if len(paths) == 0 {
				fmt.Fprintln(cmd.OutOrStdout(), "nothing to remove")
			}
			own := config.Further(file, func(report config.Report) {
				for _, k := range [][2]string{{"node.name", cfg.Node.Name}, {"listen.advertise", cfg.Listen.Advertise}} {
					if k[1] != "" {
						report(k[0], k[1], "each machine of the image would have it", "take it out")
					}
				}
			})
			if left, ok := errors.AsType[*config.Faults](own); ok {
				for _, f := range *left {
					fmt.Fprintln(cmd.OutOrStdout(), "left", f)
				}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&file, "config", defaultAgentConfig, "the agent's `FILE`")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "only say what would be removed")
	return cmd
}

// ofTheSidecar lists what must not be in an image of a machine that has a sidecar.
func ofTheSidecar(file string) ([]string, error) {
	cfg, err := sidecar.Load(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, badConfig(err)
	}
	paths, err := cfg.OfThisMachine()
	if err != nil {
		return nil, fmt.Errorf("generalize: %w", err)
	}
	return paths, nil
}
