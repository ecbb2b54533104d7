package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/lifeboat/lifeboat/certs"
)

func tlsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tls",
		Short: "Make the certificates by which nodes, coordinators and operators know each other",
		Example: `  lifeboat tls init --dir pki
  lifeboat tls issue --dir pki --node host-a`,
		Args: cobra.ArbitraryArgs,
		RunE: needsVerb,
	}
	cmd.AddCommand(tlsInitCommand(), tlsIssueCommand(), tlsPinCommand())
	return cmd
}

func tlsInitCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "init --dir DIR",
		Short: "Make a certificate authority and an operator's certificate",
		Long: `Makes DIR/ca.pem, DIR/ca.key, DIR/operator.pem and DIR/operator.key. An authority that is already there stays.
Keep ca.key off the nodes: who has it can be any of them.`,
		Example: `  lifeboat tls init --dir pki`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := certs.InitCA(dir); err != nil {
				return err
			}
			for _, name := range []string{"ca.pem", "ca.key", "operator.pem", "operator.key"} {
				fmt.Fprintln(cmd.OutOrStdout(), filepath.Join(dir, name))
			}
			return nil
		},
	}
	dirFlag(cmd, &dir)
	return cmd
}

func tlsIssueCommand() *cobra.Command {
	var dir string
	var ips []net.IP
	var dns []string
	names := map[certs.Role]*string{}
	cmd := &cobra.Command{
		Use:   "issue --dir DIR {--node | --coordinator | --operator | --app} NAME",
		Short: "Issue a certificate to a node, a coordinator, an operator or an app",
		Long: `Makes DIR/NAME.pem and DIR/NAME.key, signed by the authority in DIR. A node's NAME is its node.name.
Nodes and operators check names and roles; --ip and --dns are for programs that check addresses, such as browsers.`,
		Example: `  lifeboat tls issue --dir pki --node host-a
  lifeboat tls issue --dir pki --coordinator c1 --ip 10.0.0.1 --dns lifeboat.example.net`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var n certs.Name
			for role, name := range names {
				if cmd.Flags().Changed(string(role)) {
					n = certs.Name{Role: role, Name: *name}
				}
			}
			if err := n.Check(); err != nil {
				return usagef("tls issue: %w", err)
			}
			cert, key, err := certs.Issue(dir, n, ips, dns)
			if errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("%w: give the --dir that lifeboat tls init was given", err)
			}
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s\n%s\n", cert, key)
			return nil
		},
	}
	dirFlag(cmd, &dir)
	f := cmd.Flags()
	var kinds []string
	for _, role := range []certs.Role{certs.RoleNode, certs.RoleCoordinator, certs.RoleOperator, certs.RoleApp} {
		names[role] = f.String(string(role), "", "the `NAME` of "+article(string(role)))
		kinds = append(kinds, string(role))
	}
	cmd.MarkFlagsMutuallyExclusive(kinds...) // which completion heeds
	oneFlag(cmd, true, kinds...)
	f.IPSliceVar(&ips, "ip", nil, "an `ADDRESS` to put into the certificate; may be repeated")
	f.Lookup("ip").DefValue = "" // not "[]"
	f.StringSliceVar(&dns, "dns", nil, "a host `NAME` to put into the certificate; may be repeated")
	return cmd
}

func tlsPinCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "pin FILE",
		Short: "Print the pin of a fleet's CA: join.pin of machines that join by their cloud's word",
		Long: `Prints the SHA-256 of the key of each CA in FILE, as join tokens have it. It is no secret: a machine that has it in its
settings believes that fleet, and no other.`,
		Example: `  lifeboat tls pin /etc/lifeboat/tls/ca.pem`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			pins, err := certs.PinsOf(args[0])
			for _, p := range pins {
				fmt.Fprintln(cmd.OutOrStdout(), p)
			}
			return err
		},
	}
}

func article(noun string) string {
	switch noun[0] {
	case 'a', 'o':
		return "an " + noun
	}
	return "a " + noun
}

func dirFlag(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "dir", "", "the authority's `DIR`")
	oneFlag(cmd, true, "dir")
	_ = cmd.MarkFlagDirname("dir")
}
