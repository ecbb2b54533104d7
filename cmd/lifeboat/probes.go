package main

import (
	"github.com/spf13/cobra"

	"github.com/lifeboat/lifeboat/disks"
)

const probesVerb = "serve-probes"

// probeCommand is how the agent starts this program to probe a disk. An upgrade replaces the file under a running agent,
// and the two must speak the same words: so it is the program that runs, wherever its file is now (proc(5)).
func probeCommand() []string { return []string{"/proc/self/exe", probesVerb} }

// probesCommand is for the agent, not for people: a process that a disk may hang.
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
