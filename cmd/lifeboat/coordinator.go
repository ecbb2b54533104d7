package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/lifeboat/lifeboat/attest"
	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/coordinator"
	"github.com/lifeboat/lifeboat/systemd"
)

func coordinatorCommand() *cobra.Command {
	var f daemonFlags
	cmd := &cobra.Command{
		Use:   "coordinator",
		Short: "Run the fleet's coordinator",
		Long: `Run the fleet's coordinator: it knows who lives, who is leaving and where the blocks went.

A fleet drains without it too, to the peers last heard of; what it decided survives any restart. SIGHUP reads its certificate again.`,
		Example: `  lifeboat coordinator --config /etc/lifeboat/coordinator.yaml`,
		Args:    cobra.NoArgs,
		RunE: paced(func(cmd *cobra.Command, _ []string) error {
			// A closed terminal must not end the coordinator, and with it its memory of the fleet, nor must a SIGHUP amid a start.
			heard := make(chan os.Signal, 1)
			signal.Notify(heard, syscall.SIGHUP)
			defer signal.Stop(heard)
			log, end, err := f.logger(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			defer end()
			cfg, err := coordinator.Load(f.config)
			if err != nil {
				return badConfig(err)
			}
			id, err := cfg.Identity()
			if err != nil {
				return err
			}
			verify, err := verifier(cfg, log)
			if err != nil {
				return err
			}
			c, err := coordinator.New(cfg, coordinator.Deps{Log: log, Identity: id, Verify: verify, Version: thisBuild().String(), Ready: func() {
				if err := systemd.Ready(); err != nil {
					log.Warn("the service manager was not told", "err", err)
				}
			}})
			if err != nil {
				return err
			}
			defer context.AfterFunc(cmd.Context(), stopping)()
			return signalled{heard: heard, reload: func() { readAgain(log, id, cfg.TLS.Cert) }}.run(cmd.Context(), c.Run)
		}),
	}
	f.register(cmd, "/etc/lifeboat/coordinator.yaml")
	return cmd
}

// readAgain takes up a certificate that was put in the place of the one in use.
func readAgain(log *slog.Logger, id *certs.Identity, file string) {
	if err := id.Reload(); err != nil {
		log.Error("the certificate's files are not in order: what was read before stays in use", "file", file, "err", err)
		return
	}
	log.Info("certificate read again; other settings need a restart", "file", file, "until", id.Expires())
}

// verifier checks documents of the clouds that the settings name; nil: they name none. A certificate file that cannot be read is only warned
// of, because it may be there by the time that a machine joins.
func verifier(cfg coordinator.Config, log *slog.Logger) (coordinator.Verifier, error) {
	if !cfg.Join.Set() {
		return nil, nil
	}
	authority, err := certs.LoadAuthority(cfg.TLS.CA, cfg.Issue.CAKey)
	if err != nil {
		return nil, fmt.Errorf("issue.ca_key: %w", err)
	}
	if err := cfg.Join.Check(); err != nil {
		log.Warn("no machine can join by its cloud's document until this is mended", "err", err)
	}
	pin := authority.Pin()
	return attest.New(cfg.Join, pin[:]).Verify, nil
}
