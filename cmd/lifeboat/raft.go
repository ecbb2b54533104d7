package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/cmd/lifeboat/show"
	"github.com/lifeboat/lifeboat/coordinator"
	"github.com/lifeboat/lifeboat/durable"
)

func raftCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "raft",
		Short: "Look after several coordinators, and save and restore what they know",
		Long: `Looks after the coordinators of a fleet that has three or five of them: who there is, who leads, who comes and goes; and saves
and restores what they know durably. Give --coordinator the addresses of all of them: whichever leads answers.`,
		Example: `  lifeboat raft members
  lifeboat raft transfer --to c2
  lifeboat raft snapshot fleet.snapshot`,
		Args: cobra.ArbitraryArgs,
		RunE: needsVerb,
	}
	cmd.AddCommand(raftMembersCommand(), raftAddCommand(), raftRemoveCommand(), raftTransferCommand(), raftSnapshotCommand(), raftRestoreCommand())
	return cmd
}

func raftMembersCommand() *cobra.Command {
	var to reach
	var out show.Format
	var watch bool
	cmd := &cobra.Command{
		Use:   "members",
		Short: "List the coordinators, who leads, and how far behind the others are",
		Long: `Lists the coordinators as the leader knows them, or, while there is no leader, as any does that answers. LAG is how many
decisions one has yet to apply, CLOCK how far its clock is ahead of the answering one's. One whose machine is leaving hands the
lead over and takes it only where nobody else can.`,
		Example: `  lifeboat raft members
  lifeboat raft members --watch`,
		Args: cobra.NoArgs,
	}
	to.coordinatorFlags(cmd)
	out.Flag(cmd)
	show.WatchFlag(cmd, &watch)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return look(cmd, to.operator, watch, "raft members", func(ctx context.Context, operator api.OperatorClient, w io.Writer) error {
			s, err := leaderStatus(ctx, operator)
			if err != nil {
				return err
			}
			if out == show.JSON {
				return show.WriteJSON(w, api.ListToJSON(s.GetMembers(), memberToJSON))
			}
			if len(s.GetMembers()) == 0 {
				_, err := fmt.Fprintf(w, "%s is the only coordinator\n", s.GetName())
				return err
			}
			return memberTable(s.GetMembers()).Print(w)
		})
	}
	return cmd
}

// leaderStatus asks the leader, whose view of the members is the best; while there is none, the first coordinator that answers.
func leaderStatus(ctx context.Context, operator api.OperatorClient) (*api.CoordinatorStatus, error) {
	s, err := operator.GetStatus(ctx, &api.GetStatusRequest{OfLeader: true})
	if err == nil || ctx.Err() != nil {
		return s, err
	}
	if _, follows := api.LeaderOf(err); follows {
		return operator.GetStatus(ctx, &api.GetStatusRequest{})
	}
	return nil, err
}

// completeMembers offers the coordinators that are not named yet.
func (r *reach) completeMembers(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return r.complete(cmd, args, func(ctx context.Context, operator api.OperatorClient, offer func(name, about string)) {
		s, _ := operator.GetStatus(ctx, &api.GetStatusRequest{})
		for _, m := range s.GetMembers() {
			offer(m.GetName(), m.GetAddress())
		}
	})
}

func raftAddCommand() *cobra.Command {
	var to reach
	var replacing []string
	var reason string
	cmd := &cobra.Command{
		Use:   "add NAME=ADDRESS... [--replacing NAME]...",
		Short: "Add coordinators, or put them in the place of others",
		Long: `Adds coordinators. Each runs already, with an empty data_dir and with the new list of peers in its settings, in which it is not
the first; give the others the new list, too, with their next restart. What there is afterwards must be an odd number: add two,
or one in the place of another. One that lost its disk is put in its own place, and started after that; one that has another
address is added again with that.`,
		Example: `  lifeboat raft add c4=10.0.0.4:7411 c5=10.0.0.5:7411
  lifeboat raft add c4=10.0.0.4:7411 --replacing c2
  lifeboat raft add c2=10.0.0.2:7411 --replacing c2   # its disk was lost
  lifeboat raft add c2=10.0.0.22:7411                 # it moved`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			r := &api.ChangeMembersRequest{Remove: replacing, Reason: reason}
			for _, arg := range args {
				name, address, ok := strings.Cut(arg, "=")
				if !ok {
					return usagef("raft add: %q: must be NAME=ADDRESS, as in c4=10.0.0.4:7411", arg)
				}
				r.Add = append(r.Add, &api.NewMember{Name: name, Address: address})
			}
			return changeMembers(cmd, &to, r)
		},
	}
	to.coordinatorFlags(cmd)
	reasonFlag(cmd, &reason)
	cmd.Flags().StringSliceVar(&replacing, "replacing", nil, "remove the coordinator `NAME` before")
	_ = cmd.RegisterFlagCompletionFunc("replacing", to.completeMembers) // the flag is there
	return cmd
}

func raftRemoveCommand() *cobra.Command {
	var to reach
	var reason string
	cmd := &cobra.Command{
		Use:   "remove NAME...",
		Short: "Remove coordinators for good",
		Long: `Removes coordinators from the vote. One that leads hands over first. Stop them then: one that runs on knows no leader and answers
nobody. What is left must be an odd number: to replace one that is dead, use add with --replacing.`,
		Example: `  lifeboat raft remove c4 c5`,
		Args:    cobra.MinimumNArgs(1),

		ValidArgsFunction: to.completeMembers,
		RunE: func(cmd *cobra.Command, args []string) error {
			return changeMembers(cmd, &to, &api.ChangeMembersRequest{Remove: args, Reason: reason})
		},
	}
	to.coordinatorFlags(cmd)
	reasonFlag(cmd, &reason)
	return cmd
}

func changeMembers(cmd *cobra.Command, to *reach, r *api.ChangeMembersRequest) error {
	return ask(cmd.Context(), to.operator, "raft "+cmd.Name(), time.Minute, func(ctx context.Context, operator api.OperatorClient) error {
		reply, err := operator.ChangeMembers(ctx, r)
		if err != nil {
			return err
		}
		fmt.Fprintln(cmd.ErrOrStderr(), survives(len(reply.GetMembers())))
		return memberTable(reply.GetMembers()).Print(cmd.OutOrStdout())
	})
}

// survives says how many failures so many coordinators survive.
func survives(coordinators int) string {
	failures := (coordinators - 1) / 2
	if failures < 1 {
		return "one coordinator is left, and while it is away nothing is decided: three survive the failure of one (lifeboat raft add)"
	}
	return fmt.Sprintf("%s survive the failure of %d", show.Count(int64(coordinators), "coordinator"), failures)
}

func raftTransferCommand() *cobra.Command {
	var to reach
	var whom, reason string
	cmd := &cobra.Command{
		Use:   "transfer [--to NAME]",
		Short: "Have another coordinator lead",
		Long: `Hands the lead over, to the coordinator that is furthest or to the one named. It takes milliseconds; a leader that dies costs the
fleet an election. Do it before the leader's machine goes; one that is stopped does it by itself.`,
		Example: `  lifeboat raft transfer
  lifeboat raft transfer --to c2`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			reply, err := call(cmd.Context(), to.operator, "raft "+cmd.Name(), api.OperatorClient.TransferLeadership, &api.TransferLeadershipRequest{To: whom, Reason: reason})
			if err == nil {
				fmt.Fprintf(cmd.OutOrStdout(), "handed over to %s\n", show.Dash(reply.GetLeader()))
			}
			return err
		},
	}
	to.coordinatorFlags(cmd)
	reasonFlag(cmd, &reason)
	cmd.Flags().StringVar(&whom, "to", "", "the `NAME` of the coordinator that is to lead")
	_ = cmd.RegisterFlagCompletionFunc("to", to.completeMembers) // the flag is there
	return cmd
}

func raftSnapshotCommand() *cobra.Command {
	var to reach
	cmd := &cobra.Command{
		Use:   "snapshot FILE",
		Short: "Save what the coordinators know durably into a file",
		Long: `Saves nodes, orders with their deadlines, events and host lists, as decided up to now, into FILE, whole or not at all; -: to
standard output. The entries of manifests are files of their own, in manifests below data_dir, and are not in it.`,
		Example: `  lifeboat raft snapshot fleet.snapshot`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var all []byte
			err := ask(cmd.Context(), to.operator, "raft "+cmd.Name(), time.Minute, func(ctx context.Context, operator api.OperatorClient) error {
				for part, err := range api.Received(operator.SaveSnapshot(ctx, &api.SaveSnapshotRequest{})) {
					if err != nil {
						return err
					}
					all = append(all, part.GetData()...)
				}
				return nil
			})
			switch {
			case err != nil:
				return err
			case args[0] == "-":
				_, err := cmd.OutOrStdout().Write(all)
				return err
			}
			if err := durable.WriteFile(args[0], all); err != nil {
				return fmt.Errorf("raft snapshot: save it here: %w", err)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "saved %s into %s\n", show.Size(int64(len(all))), args[0])
			return nil
		},
	}
	to.coordinatorFlags(cmd)
	return cmd
}

func raftRestoreCommand() *cobra.Command {
	var f daemonFlags
	var reason string
	cmd := &cobra.Command{
		Use:   "restore FILE --config FILE",
		Short: "Have a coordinator that does not run begin with what a snapshot says",
		Long: `Makes the data_dir of the settings begin with what the snapshot FILE says, and puts aside what was there. The coordinator must not
run. Of several, restore the first of peers, empty data_dir of the others, and start them all: they take everything from it.

What was revoked after the snapshot is good again: agents refuse it until something else is revoked, and coordinators do not, and
renew it. So revoke it again at once, and look which join tokens there are.`,
		Example: `  lifeboat raft restore fleet.snapshot --config /etc/lifeboat/coordinator.yaml`,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			log, end, err := f.logger(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			defer end()
			cfg, err := coordinator.Load(f.config)
			if err != nil {
				return badConfig(err)
			}
			from, err := os.Open(args[0])
			if err != nil {
				return fmt.Errorf("raft restore: %w", err)
			}
			defer from.Close()
			done, err := coordinator.Restore(cfg, bufio.NewReader(from), coordinator.Restorer{Who: localUser(), Reason: reason}, log)
			if err != nil {
				return fmt.Errorf("raft restore: %s: %w", filepath.Base(args[0]), err)
			}
			w := cmd.OutOrStdout()
			fmt.Fprintf(w, "restored %s, as of %s, into %s\n", show.Count(int64(done.Nodes), "node"), done.SavedAt.Format(time.RFC3339), cfg.DataDir)
			fmt.Fprintf(w, "revoked by then: %s; what was revoked since is good again: once it runs, lifeboat revoke again at once\n", show.Count(int64(done.Revoked), "name"))
			if done.Tokens > 0 {
				fmt.Fprintf(w, "%s can be joined with, also what was used up or revoked since then: lifeboat token list, and token revoke\n", show.Count(int64(done.Tokens), "token"))
			}
			if done.Aside != "" {
				fmt.Fprintf(w, "what was there is in %s\n", done.Aside)
			}
			if len(done.Members) > 0 {
				fmt.Fprintf(w, "members: %s; start the others with an empty data_dir\n", strings.Join(done.Members, ", "))
			}
			return nil
		},
	}
	f.register(cmd, "/etc/lifeboat/coordinator.yaml")
	reasonFlag(cmd, &reason)
	return cmd
}

// localUser names the user who runs this command, for the audit: a restore makes no call, and so shows no certificate.
func localUser() string {
	name := "uid " + strconv.Itoa(os.Getuid())
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	return "local:" + name
}

func memberTable(members []*api.Member) *show.Table {
	t := &show.Table{}
	t.Row("COORDINATOR", "ADDRESS", "ROLE", "LAG", "CLOCK", "VERSION")
	for _, m := range members {
		role, lag, clock := "follower", fmt.Sprint(m.GetLag()), "-"
		if m.GetLeader() {
			role = "leader"
		}
		if m.GetSkew() != nil {
			clock = m.GetSkew().AsDuration().Round(time.Millisecond).String()
		}
		if !m.GetReached() {
			role, lag = "away", "-"
		}
		if m.GetLeaving() {
			role += ", leaving"
		}
		t.Row(m.GetName(), m.GetAddress(), role, lag, clock, show.Dash(m.GetVersion()))
	}
	return t
}

type memberJSON struct {
	Name    string   `json:"name"`
	Address string   `json:"address"`
	Leader  bool     `json:"leader"`
	Reached bool     `json:"reached"`
	Lag     *uint64  `json:"lag"` // null: not known, since it does not answer
	Skew    *float64 `json:"skew_seconds"`
	Version string   `json:"version"`
	Leaving bool     `json:"leaving"`
}

func memberToJSON(m *api.Member) memberJSON {
	var lag *uint64
	if m.GetReached() {
		lag = new(m.GetLag())
	}
	return memberJSON{m.GetName(), m.GetAddress(), m.GetLeader(), m.GetReached(), lag, api.Seconds(m.GetSkew()), m.GetVersion(), m.GetLeaving()}
}
