package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/cmd/lifeboat/show"
)

func revokeCommand() *cobra.Command {
	var to reach
	var out show.Format
	r := &api.RevokeRequest{}
	cmd := &cobra.Command{
		Use:   "revoke [{node | operator | app} NAME]",
		Short: "Shut out whoever has the key of a node, an operator or an app, or list those who are",
		Long: `Has the certificates refused that were made for a name until now: a machine was stolen, or a person is not to change anything any more.
The coordinators refuse them at once, and renew none of them; the agents from their next heartbeat on, and end what such a one had
open. Whoever gets a certificate of that name afterwards, with a key of its own, is welcome.

A node that is shut out is LOST once its lease is over. It may hold a join token, too: lifeboat token list, and token revoke. What it
has carried to others, or said of blocks, stays as it is. Without NAME it lists what is revoked.`,
		Example: `  lifeboat revoke node host-a --reason "stolen"
  lifeboat revoke operator alice
  lifeboat revoke
  lifeboat revoke node host-a --undo`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 0 && len(args) != 2 {
				return usagef("revoke: say whose, as node host-a, operator alice or app etl; lifeboat revoke alone lists those that are revoked")
			}
			if len(args) == 0 && r.Undo {
				return usagef("revoke --undo: say whose")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return listRevoked(cmd, &to, out)
			}
			r.Role, r.Name = args[0], args[1]
			err := ask(cmd.Context(), to.operator, "revoke "+r.Role+" "+r.Name, askTimeout, func(ctx context.Context, operator api.OperatorClient) error {
				if _, err := operator.Revoke(ctx, r); err != nil || r.Role != string(certs.RoleNode) || r.Undo {
					return err
				}
				// Its certificate may be out and the node not registered yet, so that is no error. But a stolen machine is not shut out by a wrong name.
				if _, err := operator.GetNode(ctx, &api.GetNodeRequest{Node: r.Name}); status.Code(err) == codes.NotFound {
					fmt.Fprintf(cmd.ErrOrStderr(), "%s: no node of that name is known: is that its name? If not, revoke node %[1]s --undo takes it back\n", show.Plain(r.Name))
				}
				return nil
			})
			if err != nil || out != show.JSON {
				return err
			}
			return listRevoked(cmd, &to, out)
		},
	}
	to.coordinatorFlags(cmd)
	out.Flag(cmd)
	cmd.Flags().BoolVar(&r.Undo, "undo", false, "have them accepted again")
	reasonFlag(cmd, &r.Reason)
	return cmd
}

// revokedJSON says that certificates of this name are refused that were made before.
type revokedJSON struct {
	Role string    `json:"role"`
	Name string    `json:"name"`
	At   time.Time `json:"at"`
}

func listRevoked(cmd *cobra.Command, to *reach, out show.Format) error {
	reply, err := call(cmd.Context(), to.operator, "revoke", api.OperatorClient.ListRevoked, &api.ListRevokedRequest{})
	if err != nil {
		return err
	}
	if out == show.JSON {
		return show.WriteJSON(cmd.OutOrStdout(), api.ListToJSON(reply.GetRevoked(), func(r *api.Revoked) revokedJSON {
			return revokedJSON{r.GetRole(), r.GetName(), r.GetAt().AsTime()}
		}))
	}
	t := show.Table{Wordy: true}
	t.Row("ROLE", "NAME", "MADE BEFORE")
	for _, r := range reply.GetRevoked() {
		t.Row(r.GetRole(), r.GetName(), show.Instant(r.GetAt()))
	}
	return t.Print(cmd.OutOrStdout())
}
