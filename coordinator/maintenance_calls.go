package coordinator

import (
	"cmp"
	"context"
	"net/netip"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/coordinator/hosts"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

// ScheduleMaintenance implements the operators' call.
func (s *operator) ScheduleMaintenance(ctx context.Context, r *api.ScheduleMaintenanceRequest) (*api.Maintenance, error) {
	if err := cmp.Or(checkWindows(r.GetWindows()), checkText("reason", r.GetReason())); err != nil {
		return nil, err
	}
	windows := windowsFrom(r.GetWindows())
	c := registry.Command{Do: registry.DoSchedule, Windows: windows, Add: r.GetAdd(), After: s.cfg.MaintenanceLead, Reason: r.GetReason()}
	if c.Add && !s.auditor.repeats(ctx) { // a repeated call would be refused because of the windows that its first try added
		var err error
		if c.Renews, err = s.maintenance.checkAdded(windows, time.Now()); err != nil {
			return nil, err
		}
	}
	if _, err := s.auditor.decide(ctx, c); err != nil {
		return nil, asStatus(err)
	}
	return s.maintenance.shown(), nil
}

// ChangeMachines implements the operators' call.
func (s *operator) ChangeMachines(ctx context.Context, r *api.ChangeMachinesRequest) (*api.Maintenance, error) {
	if len(r.GetMachines()) == 0 {
		return nil, fault("no machine is named")
	}
	if err := cmp.Or(checkMachines("", r.Machines, map[[2]string]bool{}), checkSpan("timeout", r.Timeout), checkText("reason", r.Reason)); err != nil {
		return nil, err
	}
	if r.Timeout != nil && r.Up {
		return nil, fault("a timeout of %s for machines that come up: nothing leaves them", r.Timeout.AsDuration())
	}
	c := registry.Command{Do: registry.DoMachinesUp, After: s.cfg.MaintenanceLead, Reason: r.Reason}
	if !r.Up {
		c.Do, c.Unsaid, c.Order = registry.DoMachinesDown, r.Timeout == nil, &registry.Order{Timeout: s.cfg.DecommissionTimeout}
		if r.Timeout != nil {
			c.Order.Timeout = max(r.Timeout.AsDuration(), hosts.Forever)
		}
	}
	for _, m := range r.Machines {
		c.Machines = append(c.Machines, scheduledFrom(m))
	}
	if _, err := s.auditor.decide(ctx, c); err != nil {
		return nil, asStatus(err)
	}
	return s.maintenance.shown(), nil
}

// GetMaintenance implements the operators' call.
func (s *operator) GetMaintenance(context.Context, *api.GetMaintenanceRequest) (*api.Maintenance, error) {
	return s.maintenance.shown(), nil
}

// checkWindows checks a schedule by the rules of Mesos's master: a start may be at any time, a duration may be zero but not negative. Other
// than Mesos it takes IPv6 addresses too.
func checkWindows(windows []*api.MaintenanceWindow) error {
	if err := checkCount("windows", len(windows), maxNodes); err != nil {
		return err
	}
	seen := map[[2]string]bool{}
	for i, w := range windows {
		if len(w.GetMachines()) == 0 {
			return fault("windows[%d]: has no machines: name some, or leave it out", i)
		}
		if w.DurationNanoseconds != nil && *w.DurationNanoseconds < 0 {
			return fault("windows[%d].unavailability.duration: %d ns is negative: leave it out where nobody knows", i, *w.DurationNanoseconds)
		}
		if err := checkMachines("windows["+strconv.Itoa(i)+"].", w.Machines, seen); err != nil {
			return err
		}
		if len(seen) > maxNodes {
			return fault("more than %d machines in one schedule", maxNodes)
		}
	}
	return nil
}

// checkAdded refuses to add windows that are over, and machines that have an appointment. renews says that some of the machines have one that
// is past. A call that replaces the whole schedule is not checked so: windows stay in the schedule after they are over until somebody
// takes them out, and Mesos's master takes any.
func (mt *maintenance) checkAdded(windows []registry.Outage, now time.Time) (renews bool, err error) {
	has := map[[2]string]registry.Appointment{}
	if plan := mt.scheduled(); plan != nil {
		for i := range plan.Windows {
			w := &plan.Windows[i]
			for j := range w.Machines {
				has[w.Machines[j].Key()] = registry.Appointment{Scheduled: &w.Machines[j], Of: w}
			}
		}
	}
	for _, w := range windows {
		if w.Over(now) {
			return false, fault("the window of %s from %s on is over: it would have no node leave", *w.Duration, registry.Stamp(w.From()))
		}
		for _, m := range w.Machines {
			switch a := has[m.Key()]; {
			case a.Mode() == registry.ModeUp:
			case a.Past(now):
				renews = true
			case a.Down:
				return false, status.Errorf(codes.FailedPrecondition, "machine %s is DOWN: lifeboat maintenance up comes first", m)
			default:
				return false, status.Errorf(codes.FailedPrecondition, "machine %s has an appointment already, from %s on: to move it, edit the schedule (lifeboat maintenance show -o json > FILE, then lifeboat maintenance schedule FILE)",
					m, registry.Stamp(a.Of.From()))
			}
		}
	}
	return renews, nil
}

// checkMachines refuses a machine without a valid name or address, or one that is in seen, and adds the machines to seen.
func checkMachines(where string, machines []*api.Machine, seen map[[2]string]bool) error {
	if err := checkCount("machines", len(machines), maxNodes); err != nil {
		return err
	}
	for i, m := range machines {
		at, s := where+"machine_ids["+strconv.Itoa(i)+"]", scheduledFrom(m)
		if err := cmp.Or(checkWord(at+".hostname", s.Hostname, maxHost), checkWord(at+".ip", s.IP, maxHost)); err != nil {
			return err
		}
		_, noIP := netip.ParseAddr(s.IP)
		switch {
		case s.Hostname == "" && s.IP == "":
			return fault("%s: has neither hostname nor ip", at)
		case s.IP != "" && noIP != nil:
			return fault("%s.ip: %q is no IP address", at, s.IP)
		case seen[s.Key()]:
			return fault("%s: machine %s is named twice", at, s)
		}
		seen[s.Key()] = true
	}
	return nil
}

func scheduledFrom(m *api.Machine) registry.Scheduled {
	return registry.Scheduled{Hostname: m.GetHostname(), IP: m.GetIp()}
}

func windowsFrom(said []*api.MaintenanceWindow) (windows []registry.Outage) {
	for _, w := range said {
		to := registry.Outage{Start: w.StartNanoseconds}
		if w.DurationNanoseconds != nil {
			to.Duration = new(time.Duration(*w.DurationNanoseconds))
		}
		for _, m := range w.Machines {
			to.Machines = append(to.Machines, scheduledFrom(m))
		}
		windows = append(windows, to)
	}
	return windows
}

// shown is the schedule as the API has it, with the nodes of its machines.
func (mt *maintenance) shown() *api.Maintenance {
	plan, now := mt.scheduled(), time.Now()
	all := &api.Maintenance{Now: timestamppb.New(now)}
	if plan == nil {
		return all
	}
	on := map[*registry.Scheduled][]*api.MachineNode{}
	for _, n := range mt.ledger.nodes() {
		if a := plan.Of(n.Name, n.PeerAddress, now); a.Scheduled != nil {
			on[a.Scheduled] = append(on[a.Scheduled], &api.MachineNode{Node: n.Name, State: string(n.Shown()), Answer: registry.Answer(n), Since: timestamppb.New(n.Since)})
		}
	}
	for i := range plan.Windows {
		w := &plan.Windows[i]
		to := &api.MaintenanceWindow{StartNanoseconds: w.Start}
		if w.Duration != nil {
			to.DurationNanoseconds = new(w.Duration.Nanoseconds())
		}
		for j := range w.Machines {
			m := &w.Machines[j]
			id := &api.Machine{Hostname: m.Hostname, Ip: m.IP}
			to.Machines = append(to.Machines, id)
			all.Machines = append(all.Machines, &api.MachineState{Machine: id, Mode: registry.Appointment{Scheduled: m, Of: w}.Mode(), Window: int32(i), Nodes: on[m]})
		}
		all.Windows = append(all.Windows, to)
	}
	return all
}
