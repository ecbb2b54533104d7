package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"

	"github.com/lifeboat/lifeboat/agent"
	"github.com/lifeboat/lifeboat/certs"
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
	var isAgent, isCoordinator, isSidecar bool
	cmd := &cobra.Command{
		Use:   "check FILE",
		Short: "Say all that is wrong with a file of settings and what is merged into it, each with its line and remedy",
		Long: `Says all that is wrong with a file of settings and with conf.d and NAME.d beside it, and exits 2 if anything is. Whose file it is, an
agent's, a coordinator's or a sidecar's, shows in its keys unless a flag says it. Certificates are checked, too, if they are there
and may be read.`,
		Example: `  lifeboat config check /etc/lifeboat/agent.yaml
  lifeboat config check --coordinator /etc/lifeboat/coordinator.yaml`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			file := args[0]
			if !isAgent && !isCoordinator && !isSidecar {
				data, err := os.ReadFile(file)
				if err != nil {
					return usagef("config check: %w", err)
				}
				isSidecar = ofSidecar(data)
				isCoordinator = !isSidecar && ofCoordinator(data)
			}
			kind, err := "agent", error(nil)
			switch {
			case isCoordinator:
				kind = "coordinator"
				err = loads(coordinator.Load(file))
			case isSidecar:
				kind = "sidecar"
				_, err = sidecar.Load(file)
			default:
				err = loads(agent.Load(file))
			}
			if err != nil {
				return usagef("config check %s: not fit for %s:\n%w", file, article(kind), err)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: fit for %s\n", file, article(kind))
			return err
		},
	}
	cmd.Flags().BoolVar(&isAgent, "agent", false, "it is an agent's file")
	cmd.Flags().BoolVar(&isCoordinator, "coordinator", false, "it is a coordinator's file")
	cmd.Flags().BoolVar(&isSidecar, "sidecar", false, "it is a sidecar's file")
	cmd.MarkFlagsMutuallyExclusive("agent", "coordinator", "sidecar")
	return cmd
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

// ofSidecar knows a sidecar's file by the one key that nobody else has.
func ofSidecar(data []byte) bool {
	var keys map[string]any
	if yaml.Unmarshal(data, &keys) != nil {
		return false
	}
	_, ok := keys["actions"]
	return ok
}

// ofCoordinator guesses from the keys whose file it is. What cannot be read is an agent's: there are more of those, and
// the check says what is wrong with it.
func ofCoordinator(data []byte) bool {
	var keys map[string]any
	if yaml.Unmarshal(data, &keys) != nil {
		return false
	}
	has := func(in map[string]any, names ...string) (n int) {
		for _, k := range names {
			if _, ok := in[k]; ok {
				n++
			}
		}
		return n
	}
	listen, _ := keys["listen"].(map[string]any) // of another form, it says nothing
	ours := has(keys, "name", "peers", "hosts", "heartbeat", "lease", "decommission_timeout") + has(listen, "grpc")
	theirs := has(keys, "node", "coordinators", "cloud", "stores", "workloads", "drain", "receive") + has(listen, "peer", "socket", "advertise")
	return ours > theirs
}
