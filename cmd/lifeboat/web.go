package main

import (
	"fmt"
	"net"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/pages"
)

// pagesPort is the port of the coordinators' listen.http by default.
const pagesPort = "7410"

func webCommand() *cobra.Command {
	var to reach
	var listen, at string
	cmd := &cobra.Command{
		Use:   "web",
		Short: "Show the fleet in a browser on this machine, without a certificate in it",
		Long: `Serves the coordinators' web page on this machine, with your operator's certificate towards them, until Ctrl-C. The address that
it prints has a key in it, without which nobody else on this machine comes in. It only shows.

A browser that has an operator's certificate needs none of this: https://COORDINATOR:7410/.`,
		Example: `  lifeboat web
  lifeboat web --listen 127.0.0.1:8080
  ssh -L 8080:127.0.0.1:8080 bastion lifeboat web --listen 127.0.0.1:8080`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			addresses := strings.FieldsFunc(at, func(c rune) bool { return c == ',' || c == ' ' })
			if at == "" {
				for _, a := range to.coordinatorAddrs() {
					host, _, _ := net.SplitHostPort(a)
					addresses = append(addresses, net.JoinHostPort(host, pagesPort))
				}
			}
			if len(addresses) == 0 {
				return usagef("web asks the coordinator: give --coordinator ADDR or set LIFEBOAT_COORDINATOR")
			}
			for _, a := range addresses {
				if _, _, err := net.SplitHostPort(a); err != nil {
					return usagef("--pages: %q: must be HOST:PORT", a)
				}
				if err := to.permit(a); err != nil {
					return err
				}
			}
			id, err := to.identity()
			if err != nil {
				return err
			}
			l, err := net.Listen("tcp", listen)
			if err != nil {
				return fmt.Errorf("listen: %w: say another address with --listen", err)
			}
			door, err := pages.New(l, addresses, id.Client(nil, certs.Name{Role: certs.RoleCoordinator}))
			if err != nil {
				l.Close()
				return usagef("--listen: %v", err)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s\n", door.URL())
			return door.Serve(cmd.Context(), l)
		},
	}
	to.coordinatorFlags(cmd)
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:0", "serve at `ADDR`, on loopback; port 0: any that is free")
	cmd.Flags().StringVar(&at, "pages", "", "the coordinators' HTTP `ADDRS` (default: port "+pagesPort+" where --coordinator is)")
	return cmd
}
