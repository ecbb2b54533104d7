package main

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/cmd/lifeboat/show"
)

func maintenanceCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "maintenance",
		Short: "Plan when machines are worked on: their nodes leave in time",
		Long: `Plans when machines are worked on, as Mesos does. A machine in the schedule is DRAINING: its node is not schedulable, nothing lands
there in the hour before, and it leaves by itself ten minutes before (maintenance_lead), or at once where that is past. DOWN, it is being worked on: its node
leaves if it has not, and none of it is let in. Up again, it is out of the schedule, and its node is taken back. Nothing but
these verbs takes a machine from one to another, whatever the schedule says.

The same is at the coordinator's HTTP address, in Mesos's JSON: POST and GET /maintenance/schedule, GET /maintenance/status, POST
/machine/down and /machine/up.`,
		Example: `  lifeboat maintenance schedule --at 2026-12-01T02:00:00Z --for 1h host-a host-b
  lifeboat maintenance status --watch
  lifeboat maintenance down host-a host-b --wait      # until all that they had is elsewhere
  lifeboat maintenance up host-a host-b`,
		Args: cobra.ArbitraryArgs,
		RunE: needsVerb,
	}
	cmd.AddCommand(maintenanceScheduleCommand(), maintenanceShowCommand(), maintenanceStatusCommand(),
		machinesCommand("down", false), machinesCommand("up", true))
	return cmd
}

func maintenanceScheduleCommand() *cobra.Command {
	var s scheduling
	cmd := &cobra.Command{
		Use:   "schedule FILE | schedule --at WHEN MACHINE... | schedule --cancel",
		Short: "Say which machines are to be worked on, and when",
		Long: `Replaces the schedule by what a file says, in Mesos's JSON ("-" reads it from the standard input), adds a window to it, or cancels
it. A machine is the name of a node or the IP address of its peer address; it need not be known, and one that is not is named on the
standard error. It stands in the schedule once: --at gives it another appointment where the one that it has is over, and refuses to else.
Machines that are DOWN must stand in the new one, too: maintenance up comes first.

Nodes that had begun to leave for an appointment that is cancelled, or put off, are taken back. For one that has begun (--at now) they
leave at once, with decommission_timeout. One that is over has nobody leave, and is refused; a file may have some from before.`,
		Example: `  lifeboat maintenance schedule --at 2026-12-01T02:00:00Z --for 1h host-a host-b
  lifeboat maintenance schedule --at 90m host-c          # in an hour and a half
  lifeboat maintenance schedule plan.json --reason "new kernels"
  lifeboat maintenance show -o json > plan.json          # to edit it`,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
			if s.at == "" {
				return nil, cobra.ShellCompDirectiveDefault // a file
			}
			return s.to.completeNodes(cmd, args, prefix)
		},
		Args: s.check,
		RunE: s.run,
	}
	s.to.coordinatorFlags(cmd)
	s.out.Flag(cmd)
	cmd.Flags().StringVar(&s.at, "at", "", "add the machines, to be worked on from `WHEN`: an instant, a time from now such as 90m, or now")
	cmd.Flags().DurationVar(&s.long, "for", 0, "how long, as far as anybody knows (with --at)")
	cmd.Flags().BoolVar(&s.cancel, "cancel", false, "schedule nothing")
	reasonFlag(cmd, &s.reason)
	return cmd
}

// scheduling is the verb `maintenance schedule`.
type scheduling struct {
	to         reach
	out        show.Format
	at, reason string
	long       time.Duration
	cancel     bool
}

func (s *scheduling) check(cmd *cobra.Command, args []string) error {
	switch {
	case s.cancel && (s.at != "" || len(args) > 0):
		return usagef("--cancel leaves nothing in the schedule: name neither machines nor a file")
	case s.at != "" && len(args) == 0:
		return usagef("--at: name the machines")
	case s.at == "" && !s.cancel && len(args) != 1:
		return usagef("name one file, or say with --at when the machines are worked on")
	case s.at == "" && cmd.Flags().Changed("for"):
		return usagef("--for is how long a window lasts that --at begins")
	}
	return nil
}

func (s *scheduling) run(cmd *cobra.Command, args []string) (err error) {
	r := &api.ScheduleMaintenanceRequest{Reason: s.reason}
	var start func(now time.Time) time.Time
	switch {
	case s.at != "":
		w := &api.MaintenanceWindow{Machines: machinesNamed(args)}
		if start, err = instant(s.at); err != nil {
			return usagef("--at: %v", err)
		}
		if cmd.Flags().Changed("for") {
			w.DurationNanoseconds = new(s.long.Nanoseconds())
		}
		r.Windows, r.Add = []*api.MaintenanceWindow{w}, true
	case !s.cancel:
		if r.Windows, err = readSchedule(cmd.Context(), cmd.InOrStdin(), args[0]); err != nil {
			return err
		}
	}
	return ask(cmd.Context(), s.to.operator, "maintenance schedule", askTimeout, func(ctx context.Context, operator api.OperatorClient) error {
		if start != nil {
			m, err := operator.GetMaintenance(ctx, &api.GetMaintenanceRequest{})
			if err != nil {
				return err
			}
			r.Windows[0].StartNanoseconds = start(clockOf(m)).UnixNano()
		}
		m, err := operator.ScheduleMaintenance(ctx, r)
		if err != nil {
			return err
		}
		var named []*api.Machine
		for _, w := range r.Windows {
			named = append(named, w.GetMachines()...)
		}
		for _, name := range withoutNode(m, named) { // their nodes may join later, or the name is mistyped
			fmt.Fprintf(cmd.ErrOrStderr(), "%s: no node stands for it: is that its name? lifeboat nodes lists those that are known\n", show.Plain(name))
		}
		return printSchedule(cmd.OutOrStdout(), s.out, m)
	})
}

// instant parses a time as people write it: RFC 3339, a duration from now, or "now". at wants the coordinator's time, which is known later.
func instant(s string) (at func(now time.Time) time.Time, err error) {
	if s == "now" {
		s = "0"
	}
	if d, err := time.ParseDuration(strings.TrimPrefix(s, "+")); err == nil {
		return func(now time.Time) time.Time { return now.Add(d) }, nil
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return nil, fmt.Errorf("%q: want an instant such as 2026-12-01T02:00:00Z, a time from now such as 90m, or now", s)
	}
	return func(time.Time) time.Time { return t }, nil
}

// machinesNamed makes a Machine of each name: an IP address, or else a host name.
func machinesNamed(names []string) (all []*api.Machine) {
	for _, name := range names {
		m := &api.Machine{Hostname: name}
		if _, err := netip.ParseAddr(name); err == nil {
			m = &api.Machine{Ip: name}
		}
		all = append(all, m)
	}
	return all
}

// maxSchedule is how many bytes a coordinator takes in one message.
const maxSchedule = 4 << 20

func readSchedule(ctx context.Context, in io.Reader, name string) ([]*api.MaintenanceWindow, error) {
	if name == "-" {
		in = typed(ctx, in)
	} else {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	b, err := io.ReadAll(io.LimitReader(in, maxSchedule+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if len(b) > maxSchedule {
		return nil, fmt.Errorf("%s: more than %s: no coordinator takes it", name, show.Size(maxSchedule))
	}
	var s api.ScheduleJSON
	if err := api.FromJSON(b, &s); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	windows, err := s.Windows()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return windows, nil
}

func maintenanceShowCommand() *cobra.Command {
	return lookAtMaintenance(printSchedule, &cobra.Command{
		Use:     "show",
		Short:   "Show the schedule; -o json is the form that schedule reads",
		Example: "  lifeboat maintenance show --watch\n  lifeboat maintenance show -o json > plan.json",
	})
}

func maintenanceStatusCommand() *cobra.Command {
	return lookAtMaintenance(printMachines, &cobra.Command{
		Use:   "status",
		Short: "Show where the machines of the schedule stand, and their nodes",
		Long: `Shows where the machines of the schedule stand, and their nodes. SAVED says of a node that has left whether all that it had is
elsewhere; of one that lost something, lifeboat manifest NODE says what. In -o json, which is Mesos's form, that is ACCEPT or DECLINE,
and UNKNOWN of a node that is there.`,
		Example: "  lifeboat maintenance status --watch",
	})
}

func lookAtMaintenance(print func(io.Writer, show.Format, *api.Maintenance) error, cmd *cobra.Command) *cobra.Command {
	var to reach
	var out show.Format
	var watch bool
	cmd.Args = cobra.NoArgs
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return look(cmd, to.operator, watch, "maintenance "+cmd.Name(), func(ctx context.Context, operator api.OperatorClient, w io.Writer) error {
			m, err := operator.GetMaintenance(ctx, &api.GetMaintenanceRequest{})
			if err != nil {
				return err
			}
			return print(w, out, m)
		})
	}
	to.coordinatorFlags(cmd)
	out.Flag(cmd)
	show.WatchFlag(cmd, &watch)
	return cmd
}

func machineName(m *api.Machine) string {
	switch {
	case m.GetIp() == "":
		return m.GetHostname()
	case m.GetHostname() == "":
		return m.GetIp()
	}
	return m.GetHostname() + " (" + m.GetIp() + ")"
}

// clockOf returns the coordinator's time when it replied. Windows begin and end by its clock; this machine's may be wrong.
func clockOf(m *api.Maintenance) time.Time {
	return m.GetNow().AsTime()
}

// begins says when a window begins, relative to now.
func begins(w *api.MaintenanceWindow, now time.Time) string {
	return whenever(time.Unix(0, w.GetStartNanoseconds()), now)
}

// whenever says how far an instant is from now: "in 5m0s", "3s ago".
func whenever(at, now time.Time) string {
	if d := at.Sub(now); d > 0 {
		return "in " + show.Span(d)
	}
	return show.Span(now.Sub(at)) + " ago"
}

func lasts(w *api.MaintenanceWindow, now time.Time) string {
	if w.DurationNanoseconds == nil {
		return "-"
	}
	long := time.Duration(*w.DurationNanoseconds)
	if !now.Before(time.Unix(0, w.GetStartNanoseconds()).Add(long)) {
		return show.Span(long) + ", over"
	}
	return show.Span(long)
}

const nothingScheduled = "no machine is scheduled for maintenance\n"

func printSchedule(w io.Writer, out show.Format, m *api.Maintenance) error {
	if out == show.JSON {
		return show.WriteJSON(w, api.ScheduleToJSON(m))
	}
	if len(m.GetWindows()) == 0 {
		_, err := io.WriteString(w, nothingScheduled)
		return err
	}
	t, now := show.Table{Folded: true}, clockOf(m)
	t.Row("AT", "BEGINS", "FOR", "MACHINES")
	for _, win := range m.GetWindows() {
		var names []string
		for _, id := range win.GetMachines() {
			names = append(names, machineName(id))
		}
		t.Row(time.Unix(0, win.GetStartNanoseconds()).UTC().Format(time.RFC3339), begins(win, now), lasts(win, now), strings.Join(names, ", "))
	}
	return t.Print(w)
}

func printMachines(w io.Writer, out show.Format, m *api.Maintenance) error {
	if out == show.JSON {
		return show.WriteJSON(w, api.MaintenanceToJSON(m))
	}
	if len(m.GetMachines()) == 0 {
		_, err := io.WriteString(w, nothingScheduled)
		return err
	}
	t, now := show.Table{Narrow: true}, clockOf(m)
	t.Row("MACHINE", "MODE", "BEGINS", "FOR", "NODE", "STATE", "SAVED")
	saved := map[string]string{"ACCEPT": "all", "DECLINE": "not all"}
	for _, s := range m.GetMachines() {
		win := &api.MaintenanceWindow{}
		if n := int(s.GetWindow()); n >= 0 && n < len(m.GetWindows()) {
			win = m.GetWindows()[n]
		}
		node, state, all := []string{}, []string{}, []string{}
		for _, n := range s.GetNodes() {
			node, state, all = append(node, n.GetNode()), append(state, n.GetState()), append(all, show.Dash(saved[n.GetAnswer()]))
		}
		t.Row(machineName(s.GetMachine()), s.GetMode(), begins(win, now), lasts(win, now),
			show.Dash(strings.Join(node, ",")), show.Dash(strings.Join(state, ",")), show.Dash(strings.Join(all, ",")))
	}
	return t.Print(w)
}
