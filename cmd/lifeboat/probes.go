package main

import (
	"github.com/spf13/cobra"

	"github.com/lifeboat/lifeboat/disks"
)

const probesVerb = "serve-probes"

// probeCommand returns the command by which the agent starts this program to probe a disk. It names the running program, even if its
// file was replaced (proc(5)): after an upgrade the new file may speak another protocol than the agent that still runs.
func probeCommand() []string { return []string{"/proc/self/exe", probesVerb} }

// probesCommand is for the agent, not for people: a disk that hangs then hangs this process and not the agent.
func probesCommand() *cobra.Command {
	return &cobra.Command{
		Use:     probesVerb,
		Short:   "Probe one disk for the agent that started this",
		Example: `  lifeboat serve-probes <<< '{"Dir": "/mnt/d0", "Write": 4096}'`,
		Hidden:  true,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			thrifty() // there is one for each disk
			settle()
			return disks.ServeProbes(cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
}
