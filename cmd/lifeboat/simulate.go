package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/cmd/lifeboat/show"
	"github.com/lifeboat/lifeboat/preemption"
)

func simulateCommand() *cobra.Command {
	var to reach
	var out show.Format
	var in time.Duration
	var reason string
	var dry bool
	cmd := &cobra.Command{
		Use:   "simulate KIND",
		Short: "Rehearse a notice on this machine",
		Long: `Sends a pretended notice the way of a real one, through the agent or the sidecar of this machine: policy, journal, drain,
manifest. The node really leaves; it is taken back at the deadline, or by ` + "`lifeboat cancel`" + `.

Workloads are told, in words that say it is a rehearsal, and waited for; none is stopped.

With --dry-run nothing is done: it says how far the node would go, from when on, what it would carry, how much of that its cap
lets through in the time and peers have room for, and whom it would tell, wait for and stop. It exits with 4 when something
would be lost, but for what others have already: by the cap, for want of room, or because it cannot be carried, as a
file whose name cannot be an id. The peers are asked what they would take now, and a fallback's directory what it has room
for; a bucket does not tell. Nodes that leave at the same time share that room: lifeboat nodes --room says what there is. That the rest would be there in time is not said: a rehearsal shows it.

KIND is one of ` + kindWords() + `.`,
		Example: `  lifeboat simulate terminate --in 120s
  lifeboat simulate retirement --in 72h --dry-run
  lifeboat simulate preempt --in 30s --reason "game day" && lifeboat status --watch`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("simulate: name one kind of notice: %s", kindWords())
			}
			if _, err := preemption.ParseKind(args[0]); err != nil {
				return usagef("simulate: kind %q is not known: use one of %s", args[0], kindWords())
			}
			return nil
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return strings.Split(kindWords(), ", "), cobra.ShellCompDirectiveNoFileComp
		},
	}
	to.socketFlags(cmd)
	out.Flag(cmd)
	f := cmd.Flags()
	f.DurationVar(&in, "in", 0, "`TIME` until the machine would go, as 120s (default: no deadline is known)")
	f.StringVar(&reason, "reason", "", "`TEXT` shown to those who ask")
	f.BoolVar(&dry, "dry-run", false, "stop before acting, and say what would be done")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		agent, l, err := to.agent()
		if err != nil {
			return err
		}
		defer l.Close()
		req := &api.SimulateRequest{Kind: args[0], Reason: reason, DryRun: dry}
		if cmd.Flags().Changed("in") {
			req.In = durationpb.New(in)
		}
		reply, err := agent.Simulate(cmd.Context(), req) // without a limit of its own: it looks through all stores
		if err != nil {
			told := l.rpcError("simulate "+args[0], err)
			if !dry && unanswered(l, err) {
				told = fmt.Errorf("%w; it may have begun, and then it goes on: `lifeboat status%s` shows it, `lifeboat cancel%[2]s` takes it back", told, to.again())
			}
			return told
		}
		if out == show.JSON {
			err = show.WriteJSON(cmd.OutOrStdout(), simulationToJSON(args[0], dry, reply))
		} else {
			err = printSimulation(cmd.OutOrStdout(), args[0], dry, to.again(), reply)
		}
		if err == nil && dry && (reply.GetLostBytes() > 0 || stays(reply) != "") {
			return incompletef("simulate %s: %s", args[0], forecast(reply))
		}
		return err
	}
	return cmd
}

// unanswered reports whether an agent may do what it was asked, though err came in place of its answer: the caller was interrupted, say.
func unanswered(l *link, err error) bool {
	switch status.Code(err) {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.Unknown:
		return l.dialError() == nil
	}
	return false
}

// stays says what would be lost even if peers have room, since it cannot be carried; empty: nothing.
func stays(r *api.SimulateReply) string {
	var all []string
	if n := r.GetStayingBlocks(); n > 0 {
		all = append(all, fmt.Sprintf("%s (%s) that cannot be carried", show.Count(n, "block"), show.Size(r.GetStayingBytes())))
	}
	if n := r.GetUnreadDirectories(); n > 0 {
		all = append(all, fmt.Sprintf("what is in directories that cannot be read (%d)", n))
	}
	return strings.Join(all, ", and ")
}

// forecast says what would be lost for sure.
func forecast(r *api.SimulateReply) string {
	s := stays(r)
	if r.GetLostBytes() == 0 {
		return s + " would be lost"
	}
	if s != "" {
		s = ", among them " + s
	}
	return fmt.Sprintf("at least %s of %s would be lost%s", show.Size(r.GetLostBytes()), show.Size(r.GetBytes()+r.GetStayingBytes()), s)
}

func kindWords() string {
	var words []string
	for _, k := range slices.Backward(preemption.Kinds()) {
		words = append(words, string(k))
	}
	return strings.Join(words, ", ")
}

// unreachedShown is how many of the peers that take nothing are listed: on a cut network that is all peers.
const unreachedShown = 4

func printSimulation(w io.Writer, kind string, dry bool, at string, r *api.SimulateReply) error {
	var t show.Table
	title := "rehearsal"
	if dry {
		title = "dry run"
	}
	t.Row(title, kind)
	if r.GetIncident() != "" {
		t.Row("incident", r.GetIncident())
	}
	stance := r.GetStance()
	switch {
	case r.GetChanges() != nil:
		stance += fmt.Sprintf(" now, %s %s", r.GetGoes(), show.Left(r.GetChanges()))
	case r.GetGoes() == string(preemption.StanceIgnore):
		stance = "ignore: the policy does nothing about this kind"
	}
	t.Row("stance", stance)
	if r.GetSendFor() != nil {
		t.Row("time to send in", show.Span(r.GetSendFor().AsDuration()))
	}
	carryRows(&t, r)
	t.List("actions", r.GetActions()...)
	if err := t.Print(w); err != nil {
		return err
	}
	if !dry && r.GetIncident() != "" {
		_, err := fmt.Fprintf(w, "\nwatch it: lifeboat status --watch%s    take it back: lifeboat cancel%s\n", at, at)
		return err
	}
	return nil
}

// carryRows adds what would be carried, to whom, and what would be lost.
func carryRows(t *show.Table, r *api.SimulateReply) {
	if r.GetBlocks() > 0 || r.GetSendFor() != nil { // a sidecar carries nothing and says neither
		carry := fmt.Sprintf("%s, %s", show.Count(r.GetBlocks(), "block"), show.Size(r.GetBytes()))
		if r.GetTakenBytes()-r.GetBytes() > r.GetBytes()/16 { // tiny blocks: their records count
			carry += fmt.Sprintf(", that take %s at a peer with their records", show.Size(r.GetTakenBytes()))
		}
		t.Row("to carry", carry)
	}
	if r.CapBytes != nil {
		t.Row("by the cap", fmt.Sprintf("%s of that at most go in time: drain.max_bytes_per_second", show.Size(r.GetCapBytes())))
	}
	if r.GetPeers() > 0 || r.GetLostBytes() > 0 {
		t.Row("to whom", takers(r))
	}
	var unreached []string
	for i, one := range r.GetUnreached() {
		if i == unreachedShown {
			unreached = append(unreached, fmt.Sprintf("and %d more: -o json has all", len(r.GetUnreached())-i))
			break
		}
		unreached = append(unreached, "takes nothing now: "+one)
	}
	t.List("WARNING", unreached...)
	if r.GetLostBytes() > 0 {
		t.Row("WARNING", fmt.Sprintf("%s at least would be lost, but for what others have already", show.Size(r.GetLostBytes())))
	}
	if n := r.GetLargeBlocks(); n > 0 {
		where, what := "WARNING", "larger than any peer has room for in one place"
		if r.GetFallback() != "" {
			where, what = "too large", what+": for the fallback"
		}
		t.Row(where, fmt.Sprintf("%s (%s) %s", show.Count(n, "block"), show.Size(r.GetLargeBytes()), what))
		t.List("", r.GetLarge()...)
	}
	if s := stays(r); s != "" {
		t.Row("WARNING", s+": lost whoever has room")
		t.List("", r.GetStaying()...)
	}
}

// takers says which peers and fallback would take blocks, and how much room they have.
func takers(r *api.SimulateReply) string {
	room := fmt.Sprintf("%s with room for %s", show.Count(r.GetPeers(), "peer"), roomWords(r.GetRoomBytes(), r.VaultRoomBytes))
	if n := r.GetPoolRoomBytes(); n > 0 {
		room += fmt.Sprintf(", %s of it in its own pool", show.Size(n))
	}
	if n := r.GetAdvisedPeers(); n > 0 {
		room += fmt.Sprintf(", %d of which may leave too", n)
	}
	switch {
	case r.GetFallback() == "":
	case r.FallbackRoomBytes != nil:
		room += fmt.Sprintf(", and the fallback %s with %s", r.GetFallback(), show.Size(r.GetFallbackRoomBytes()))
	default:
		room += fmt.Sprintf(", and the fallback %s, which does not tell its room", r.GetFallback())
	}
	return room
}

type simulationJSON struct {
	Kind     string   `json:"kind"`
	DryRun   bool     `json:"dry_run"`
	Incident string   `json:"incident"`
	Stance   string   `json:"stance"`
	Goes     string   `json:"goes"`
	Changes  *float64 `json:"changes_seconds"`
	SendFor  *float64 `json:"send_for_seconds"`
	Blocks   int64    `json:"blocks"`
	Bytes    int64    `json:"bytes"`
	Actions  []string `json:"actions"`

	CapBytes  *int64 `json:"cap_bytes"` // of bytes, what the cap lets through in time
	Peers     int64  `json:"peers"`
	RoomBytes int64  `json:"room_bytes"`
	VaultRoom *int64 `json:"vault_room_bytes"` // of room_bytes, for blocks that can only go to a vault; null: as much
	Fallback  string `json:"fallback"`
	LostBytes int64  `json:"lost_bytes"` // at least

	StayingBlocks int64    `json:"staying_blocks"` // lost even if peers have room: in lost_bytes, but not in bytes
	StayingBytes  int64    `json:"staying_bytes"`
	Unread        int64    `json:"unread_directories"`
	Staying       []string `json:"staying"` // some of those blocks, and why

	TakenBytes   int64    `json:"taken_bytes"`         // what bytes takes at peers, with the records of the blocks
	FallbackRoom *int64   `json:"fallback_room_bytes"` // null: there is no fallback, or it does not tell, as a bucket
	AdvisedPeers int64    `json:"advised_peers"`       // of peers, those that may leave too
	PoolRoom     int64    `json:"pool_room_bytes"`     // of room_bytes, at peers of its own pool, which the cloud may take at the same time
	Unreached    []string `json:"unreached"`           // peers that take nothing now, and why: not in peers

	LargeBlocks int64    `json:"large_blocks"` // of blocks, those larger than any peer has room for in one place
	LargeBytes  int64    `json:"large_bytes"`
	Large       []string `json:"large"` // some of those blocks
}

func simulationToJSON(kind string, dry bool, r *api.SimulateReply) simulationJSON {
	return simulationJSON{
		Kind: kind, DryRun: dry, Incident: r.GetIncident(), Stance: r.GetStance(), Goes: r.GetGoes(),
		Changes: api.Seconds(r.GetChanges()), SendFor: api.Seconds(r.GetSendFor()), Actions: append([]string{}, r.GetActions()...),
		Blocks: r.GetBlocks(), Bytes: r.GetBytes(), TakenBytes: r.GetTakenBytes(), CapBytes: r.CapBytes, LostBytes: r.GetLostBytes(),
		Peers: r.GetPeers(), AdvisedPeers: r.GetAdvisedPeers(), Unreached: append([]string{}, r.GetUnreached()...),
		RoomBytes: r.GetRoomBytes(), VaultRoom: r.VaultRoomBytes, PoolRoom: r.GetPoolRoomBytes(),
		Fallback: r.GetFallback(), FallbackRoom: r.FallbackRoomBytes,
		StayingBlocks: r.GetStayingBlocks(), StayingBytes: r.GetStayingBytes(), Staying: append([]string{}, r.GetStaying()...),
		Unread:      r.GetUnreadDirectories(),
		LargeBlocks: r.GetLargeBlocks(), LargeBytes: r.GetLargeBytes(), Large: append([]string{}, r.GetLarge()...),
	}
}
