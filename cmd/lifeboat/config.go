package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lifeboat/lifeboat/agent"
	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/config"
	"github.com/lifeboat/lifeboat/coordinator"
	"github.com/lifeboat/lifeboat/sidecar"
)

func configCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "config",
		Short:   "Check the settings of an agent, a coordinator or a sidecar",
		Example: `  lifeboat config check /etc/lifeboat/agent.yaml`,
		Args:    cobra.ArbitraryArgs,
		RunE:    needsVerb,
	}
	cmd.AddCommand(configCheckCommand())
	return cmd
}

func configCheckCommand() *cobra.Command {
	said := map[string]*bool{}
	cmd := &cobra.Command{
		Use:   "check FILE",
		Short: "Say all that is wrong with a file of settings and what is merged into it, each with its line and remedy",
		Long: `Says all that is wrong with a file of settings and with conf.d and NAME.d beside it, and exits 2 if anything is. Whose file it is, an
agent's, a coordinator's or a sidecar's, is said by a flag; without one it shows in keys that not all of them have, else in the
file's name (coordinator*.yaml, sidecar*.yaml), else it is an agent's, and which it was taken for is printed. Certificates are
checked, too, if they are there and may be read.`,
		Example: `  lifeboat config check /etc/lifeboat/agent.yaml
  lifeboat config check --coordinator /etc/lifeboat/main.yaml`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			file, kind, guess := args[0], "", ""
			for _, k := range daemonKinds {
				if *said[k] {
					kind = k
				}
			}
			if kind == "" {
				if _, err := os.Stat(file); err != nil {
					return usagef("config check: %w", err)
				}
				kind, guess = kindOf(file)
			}
			var err error
			switch kind {
			case "coordinator":
				err = loads(coordinator.Load(file))
			case "sidecar":
				_, err = sidecar.Load(file)
			default:
				err = loads(agent.Load(file))
			}
			if err != nil {
				if guess != "" {
					guess = " (" + guess + ")"
				}
				return usagef("config check %s: not fit for %s%s:\n%w", file, article(kind), guess, err)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s: fit for %s\n", file, article(kind))
			if guess != "" {
				fmt.Fprintln(cmd.OutOrStdout(), guess)
			}
			return nil
		},
	}
	for _, k := range daemonKinds {
		said[k] = cmd.Flags().Bool(k, false, "it is "+article(k)+"'s file")
	}
	cmd.MarkFlagsMutuallyExclusive(daemonKinds...)
	return cmd
}

// daemonKinds are whose settings there are, the most usual first.
var daemonKinds = []string{"agent", "coordinator", "sidecar"}

// kindOf guesses whose file it is, and says by what, and how to say otherwise. What cannot be read as YAML has no keys.
func kindOf(file string) (kind, guess string) {
	strange := map[string]int{
		"agent":       config.Strange(file, new(agent.Config)),
		"coordinator": config.Strange(file, new(coordinator.Config)),
		"sidecar":     config.Strange(file, new(sidecar.Config)),
	}
	var likely, others []string
	for _, k := range daemonKinds {
		if strange[k] == min(strange["agent"], strange["coordinator"], strange["sidecar"]) {
			likely = append(likely, k)
		}
	}
	kind, by := likely[0], "for want of a sign"
	switch named := slices.IndexFunc(likely, func(k string) bool { return strings.HasPrefix(filepath.Base(file), k) }); {
	case len(likely) == 1:
		by = "by its keys"
	case named >= 0:
		kind, by = likely[named], "by its name"
	}
	for _, k := range daemonKinds {
		if k != kind {
			others = append(others, "--"+k)
		}
	}
	return kind, fmt.Sprintf("taken for %s's %s: %s says otherwise", article(kind), by, strings.Join(others, " or "))
}

// loads checks what was read, with the certificate that it names. One that is not there may come with the machine's joining,
// and a key is not for everybody who may check a file.
func loads[C interface {
	Identity() (*certs.Identity, error)
}](cfg C, err error) error {
	if err != nil {
		return err
	}
	if _, err = cfg.Identity(); errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return err
}
