package main

import (
	"cmp"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/cmd/lifeboat/show"
)

func tokenCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Let machines join the fleet",
		Example: `  lifeboat token create --uses 20 --life 2h
  lifeboat token list`,
		Args: cobra.ArbitraryArgs,
		RunE: needsVerb,
	}
	cmd.AddCommand(tokenCreateCommand(), tokenListCommand(), tokenRevokeCommand())
	return cmd
}

func tokenCreateCommand() *cobra.Command {
	var to reach
	var out show.Format
	var r api.CreateTokenRequest
	var life time.Duration
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Make a join token and print it, once",
		Long: `Makes a join token and prints it. The coordinators keep only a sum of it: whoever loses it makes another. A machine joins with
lifeboat join ADDRESS TOKEN, or finds it in the file that join.token_file of its settings names. The token holds the sum of the
fleet's CA as well, so it is told to no other fleet.`,
		Example: `  lifeboat token create                            # for one hour, any number of nodes
  lifeboat token create --uses 1 --name host-a
  lifeboat token create --role operator --name alice --uses 1`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r.Life = durationpb.New(life)
			reply, err := call(cmd.Context(), to.operator, "token create", api.OperatorClient.CreateToken, &r)
			if err != nil {
				return err
			}
			if out == show.JSON {
				return show.WriteJSON(cmd.OutOrStdout(), createdJSON{reply.GetToken(), tokenToJSON(reply.GetInfo())})
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), reply.GetToken())
			return err
		},
	}
	to.coordinatorFlags(cmd)
	out.Flag(cmd)
	f := cmd.Flags()
	f.StringVar(&r.Role, "role", "node", "what a certificate is for: node, coordinator, operator or app")
	f.StringVar(&r.Name, "name", "", "the one `NAME` that it is good for; by default any, for nodes")
	f.Int64Var(&r.Uses, "uses", 0, "how many machines may join with it; 0: any number")
	f.DurationVar(&life, "life", time.Hour, "for how long it is good")
	reasonFlag(cmd, &r.Reason)
	return cmd
}

// tokenJSON is a token without its secret.
type tokenJSON struct {
	ID        string  `json:"id"`
	Role      string  `json:"role"`
	Name      string  `json:"name"`
	UsesLeft  *int64  `json:"uses_left"` // null: any number
	Joined    int64   `json:"joined"`
	Remaining float64 `json:"remaining_seconds"`
	By        string  `json:"by"`
}

// createdJSON is a token with its secret.
type createdJSON struct {
	Token string `json:"token"`
	tokenJSON
}

func tokenToJSON(t *api.TokenInfo) tokenJSON {
	j := tokenJSON{ID: t.GetId(), Role: t.GetRole(), Name: t.GetName(), Joined: t.GetJoined(), Remaining: t.GetRemaining().AsDuration().Seconds(), By: t.GetBy()}
	if t.GetUsesLeft() > 0 {
		j.UsesLeft = &t.UsesLeft
	}
	return j
}

func tokenListCommand() *cobra.Command {
	var to reach
	var out show.Format
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the tokens that machines could join with now",
		Example: `  lifeboat token list`,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			reply, err := call(cmd.Context(), to.operator, "token list", api.OperatorClient.ListTokens, &api.ListTokensRequest{})
			if err != nil {
				return err
			}
			if out == show.JSON {
				return show.WriteJSON(cmd.OutOrStdout(), api.ListToJSON(reply.GetTokens(), tokenToJSON))
			}
			return printTokens(cmd.OutOrStdout(), reply.GetTokens())
		},
	}
	to.coordinatorFlags(cmd)
	out.Flag(cmd)
	return cmd
}

func printTokens(w io.Writer, tokens []*api.TokenInfo) error {
	t := show.Table{Wordy: true}
	t.Row("ID", "ROLE", "NAME", "USES LEFT", "JOINED", "EXPIRES IN", "MADE BY")
	for _, k := range tokens {
		uses := "any"
		if k.GetUsesLeft() > 0 {
			uses = fmt.Sprint(k.GetUsesLeft())
		}
		t.Row(k.GetId(), k.GetRole(), cmp.Or(k.GetName(), "any"), uses, fmt.Sprint(k.GetJoined()), show.Span(k.GetRemaining().AsDuration()), k.GetBy())
	}
	return t.Print(w)
}

func tokenRevokeCommand() *cobra.Command {
	var to reach
	var reason string
	cmd := &cobra.Command{
		Use:     "revoke ID",
		Short:   "End a token before its time; who joined with it stays",
		Example: `  lifeboat token revoke 0123456789ab --reason "was mailed to the wrong list"`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			_, err := call(cmd.Context(), to.operator, "token revoke", api.OperatorClient.RevokeToken, &api.RevokeTokenRequest{Id: args[0], Reason: reason})
			return err
		},
	}
	to.coordinatorFlags(cmd)
	reasonFlag(cmd, &reason)
	return cmd
}
