package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/cmd/lifeboat/show"
	"github.com/lifeboat/lifeboat/disks"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/preemption"
	"github.com/lifeboat/lifeboat/systemd"
)

// finding is the result of one check.
type finding struct {
	Check  string `json:"check"`
	State  string `json:"state"` // ok, warn, bad, unknown
	Found  string `json:"found"`
	Remedy string `json:"remedy"`
}

const (
	stateOK      = "ok"
	stateWarn    = "warn"    // it works, but could be better
	stateBad     = "bad"     // a notice would be missed, or be of no use
	stateUnknown = "unknown" // it cannot be checked here
)

const (
	// wantedDelay is how long a shutdown should wait for the node: as long as the notices of Google and Azure (30 s). logind's own default
	// is 5 s (InhibitDelayMaxSec in logind.conf(5)).
	wantedDelay = 30 * time.Second
	// wantedStop is how long the unit should have to stop: EC2's two minutes.
	wantedStop = 2 * time.Minute
	// skewLimit is how far the clock may be off: clouds give deadlines as instants in whole seconds.
	skewLimit = 2 * time.Second
	// blindAfter is how long ago a source's last good answer may be. The slowest path is asked once a minute.
	blindAfter = 2 * time.Minute
)

// diagnose turns what was seen into findings. It looks at nothing further.
func (x *examination) diagnose() (all []finding) {
	add := func(check, state, remedy, format string, args ...any) {
		all = append(all, finding{check, state, fmt.Sprintf(format, args...), remedy})
	}
	if x.config != nil {
		add("configuration", stateBad, "lifeboat config check "+x.file+" says it all", "%s", firstLine(x.config))
	}
	if x.kind == "coordinator" {
		x.diagnoseCoordinator(add)
		return all
	}
	x.diagnoseCloud(add)
	x.diagnoseAgent(add)
	x.diagnoseHost(add)
	x.diagnoseStores(add)
	x.diagnoseWorkloads(add)
	return all
}

type adder func(check, state, remedy, format string, args ...any)

func (x *examination) diagnoseCloud(add adder) {
	firmware := cmp.Or(x.firmware, "no cloud")
	switch {
	case x.provider == "none" && x.settings.Provider == "none":
		add("provider", stateOK, "", "none, as configured: only the operating system and people are heard (the firmware names %s)", firmware)
		return
	case x.provider == "none":
		add("provider", stateWarn, "on a cloud's machine set cloud.provider", "the firmware names no cloud: only the operating system and people are heard")
		return
	case x.firmware != "" && x.firmware != x.provider:
		add("provider", stateBad, "set cloud.provider: auto", "configured is %s, the firmware names %s", x.provider, firmware)
	default:
		add("provider", stateOK, "", "%s (the firmware names %s)", x.provider, firmware)
	}
	if x.instanceErr != nil {
		add("metadata", stateBad, x.metadataRemedy(), "%s", firstLine(x.instanceErr))
		return
	}
	i := x.instance
	about := strings.Join(slices.DeleteFunc([]string{i.ID, i.Type, i.Zone, i.LifeCycle}, func(s string) bool { return s == "" }), ", ")
	add("metadata", stateOK, "", "answers in %s: %s", x.took.Round(100*time.Microsecond), cmp.Or(about, "and says nothing of this machine"))
	if x.skewErr != nil {
		add("clock, to the cloud", stateUnknown, "", "%s", firstLine(x.skewErr))
		return
	}
	state, remedy := stateOK, ""
	if x.skew.Abs() > skewLimit {
		state, remedy = stateBad, "let a time server keep the clock: deadlines are instants"
	}
	add("clock, to the cloud", state, remedy, "off by %s, to the second", x.skew.Round(time.Second))
}

// metadataRemedy guesses from the error's text why the metadata service does not answer.
func (x *examination) metadataRemedy() string {
	words := x.instanceErr.Error()
	has := func(word string) bool { return strings.Contains(words, word) }
	switch {
	case has("answered 403"):
		return "the service is turned off for this instance: turn it on (EC2: modify-instance-metadata-options --http-endpoint enabled)"
	case has("answered 50"), has("answered 429"):
		return "the service is in trouble, or asked too often by this host: ask again; EC2 counts linklocal_allowance_exceeded in ethtool -S"
	case x.provider == "ec2" && has("token") && x.container:
		return "in a container the token does not come back: raise the hop limit to 2, or use the host's network"
	case x.provider == "ec2" && has("token"):
		return "no token, no answer: look for a firewall before 169.254.169.254, and at the hop limit in containers"
	case has("refused"):
		return "nobody listens at " + x.settings.Address() + ": is this machine in that cloud?"
	default:
		return "see that this host reaches " + x.settings.Address() + " without a proxy or a firewall"
	}
}

func (x *examination) diagnoseAgent(add adder) {
	switch said := x.host.Unit.StatusText; {
	case errors.Is(x.agentErr, fs.ErrPermission): // the socket is there, so an agent is or was
		add("agent", stateUnknown, "ask as root, or as a member of its group", "%s: permission denied", x.socket)
		return
	case errors.Is(x.agentErr, errHangs):
		add("agent", stateBad, "its log says what it did last; a restart goes on with a drain: systemctl restart lifeboat-"+x.kind, "%s takes connections, and nobody answers: it may hang", x.socket)
		return
	case x.agentErr != nil && x.awaits != "" && x.host.UnitErr == nil && said != "":
		add("agent", stateBad, "see to that; the agent goes on by itself, and its log says more", "none answers on %s yet: it %s", x.socket, said)
		return
	case x.agentErr != nil && x.awaits != "":
		add("agent", stateBad, "its log says what it waits for to join; start it if it does not run: systemctl start lifeboat-agent",
			"none answers on %s yet: it has no good certificate (%s), and waits to be let into the fleet", x.socket, x.awaits)
		return
	case x.agentErr != nil && x.host.UnitErr == nil && slices.Contains([]string{"failed", "activating"}, x.host.Unit.ActiveState):
		add("agent", stateBad, "systemctl status "+x.host.Unit.Name+" says why, journalctl -u "+x.host.Unit.Name+" more", "none answers on %s: %s", x.socket, strings.TrimSuffix(x.host.Unit.Name+" is "+x.host.Unit.ActiveState+": "+said, ": "))
		return
	case x.agentErr != nil && x.unset != "": // systemctl start would do nothing, and say nothing
		add("agent", stateBad, "lifeboat join makes this machine a node; or write that file, then systemctl start lifeboat-"+x.kind+"; or name another file: --config",
			"none answers on %s, and there is no %s: nothing is set up", x.socket, x.unset)
		return
	case x.agentErr != nil:
		add("agent", stateBad, "start it: systemctl start lifeboat-"+x.kind+"; or name its socket: --socket", "none answers on %s", x.socket)
		return
	}
	s := x.agent
	add("agent", stateOK, "", "%s, version %s, up %s", s.GetNode(), cmp.Or(s.GetVersion(), "unknown"), show.Span(time.Since(s.GetStartedAt().AsTime())))
	if p := cmp.Or(s.GetProvider(), "none"); p != x.provider {
		add("agent's provider", stateWarn, "give doctor the agent's file: --config", "the agent listens to %s, this looks at %s", p, x.provider)
	}
	for _, h := range s.GetSources() {
		if h.GetSource() == preemption.SourceLogind && !x.host.Booted {
			continue // without systemd there is no logind; diagnoseHost says what that means
		}
		name := h.GetSource() + " " + path.Base(h.GetPath())
		switch good := h.GetLastGood(); {
		case good == nil && h.GetTrouble() == "":
			add(name, stateUnknown, "ask again in a moment", "not asked yet")
		case good == nil:
			add(name, stateBad, "it has never answered this agent", "%s", h.GetTrouble())
		case h.GetTrouble() != "":
			add(name, stateBad, "a notice would not be heard until it answers again", "last good answer %s ago: %s", show.Age(good), h.GetTrouble())
		case good.AsDuration() > blindAfter:
			add(name, stateBad, "restart the agent, and report this", "last good answer %s ago, and no trouble known", show.Age(good))
		default:
			add(name, stateOK, "", "last good answer %s ago", show.Age(good))
		}
	}
	if s.GetCoordinator() != "" || len(s.GetStatus().GetStores()) > 0 { // a sidecar has neither
		x.diagnoseFleet(add)
	}
}

// endsSoon is how long before its expiry a certificate that was not renewed is bad.
const endsSoon = 7 * 24 * time.Hour

// overdue reports whether the certificate should have been renewed by now. Renewals begin between half and six tenths of its life (enrol),
// so less than a third of a life is late; endsSoon alone would not do, because a life may be as short as an hour.
func overdue(s *api.AgentStatus, now time.Time) bool {
	return due(s.GetCertificateBegins().AsTime(), s.GetCertificateEnds().AsTime(), now)
}

func due(from, until, now time.Time) bool {
	return until.Sub(now) < min(endsSoon, until.Sub(from)/3)
}

// again is the flag by which a following command asks the same agent.
func (x *examination) again() string {
	if x.socket == defaultSocket {
		return ""
	}
	return " --socket " + word(x.socket)
}

// issue is the command that makes a certificate for this node or coordinator.
func (x *examination) issue() string {
	n := certs.Name{Role: certs.RoleNode, Name: x.agent.GetNode()}
	if x.kind == "coordinator" {
		n = certs.Name{Role: certs.RoleCoordinator, Name: x.name}
	}
	return certs.IssueCommand(x.ca, n)
}

func (x *examination) diagnoseFleet(add adder) {
	s := x.agent
	if ends := s.GetCertificateEnds(); ends != nil {
		state, remedy := stateOK, ""
		switch {
		case time.Until(ends.AsTime()) <= 0:
			state, remedy = stateBad, "nobody talks to this node: put a new one there ("+x.issue()+", or lifeboat join), then systemctl reload lifeboat-agent"
		case overdue(s, time.Now()):
			state, remedy = stateBad, "the agent's log says why it was not renewed; without issue.ca_key at the coordinator: "+x.issue()+", put it there, then systemctl reload lifeboat-agent"
		}
		add("certificate", state, remedy, "good until %s", show.Instant(ends))
	}
	switch {
	case s.GetCoordinatorTrouble() != "":
		add("coordinator", stateBad, x.coordinatorRemedy(), "%s: %s", s.GetCoordinator(), coordinatorTrouble(s))
	case s.GetLastHeartbeat() == nil:
		add("coordinator", stateUnknown, "ask again in a moment", "%s has not answered yet", s.GetCoordinator())
	default:
		add("coordinator", stateOK, "", "%s answered %s ago", s.GetCoordinator(), show.Age(s.GetLastHeartbeat()))
	}
	if trouble := s.GetDataDirTrouble(); trouble != "" {
		add("data_dir", stateBad, "see to its disk; a drain goes on without it", "%s", trouble)
	}
	x.diagnoseRoom(add)
	x.diagnoseLarge(add)
	x.diagnoseCap(add)
	for _, d := range s.GetStatus().GetDisks() {
		switch {
		case d.GetUnwell():
			add("disk "+d.GetPath(), stateBad, "see to the disk; its blocks cannot leave faster than it gives them back", "%s: %s", d.GetHealth(), cmp.Or(d.GetWhy(), "no reason known"))
		case d.GetHealth() == disks.HighUsage.String():
			add("disk "+d.GetPath(), stateWarn, "make room there, or lower receive.reserve_bytes: until then no peer's block lands on it", "%s: %s", d.GetHealth(), d.GetWhy())
		case d.GetWhy() != "":
			add("disk "+d.GetPath(), stateWarn, "lifeboat disks"+x.again()+" shows how it goes on", "%s: %s", d.GetHealth(), d.GetWhy())
		}
	}
}

// foreign guesses from the error's text whether this node and its coordinator are of two fleets: one refuses the other's certificate.
func (x *examination) foreign() bool {
	words := x.agent.GetCoordinatorTrouble()
	return strings.Contains(words, "not signed by our CA") || strings.Contains(words, refused)
}

// refused is in the error if the coordinator refuses this node's certificate. It does not say why to one that it does not let in.
const refused = "refuses this certificate"

// coordinatorRemedy guesses from the error's text what keeps the node and its coordinator apart.
func (x *examination) coordinatorRemedy() string {
	words := x.agent.GetCoordinatorTrouble()
	switch {
	case x.foreign():
		remedy := "they are of two fleets: fetch the ca.pem that tls.ca of that coordinator names to where this node's does, and a certificate of its making " +
			"(lifeboat tls issue there, or lifeboat join); or name the right coordinators. lifeboat tls pin CA.pem tells one CA from another"
		if strings.Contains(words, refused) {
			remedy = "ask an operator for lifeboat revoke: if it lists this node, its certificate was revoked, and lifeboat tls issue makes one with another key. If not, " + remedy
		}
		return remedy
	case strings.Contains(words, "another incarnation"), strings.Contains(words, "registered with incarnation"):
		return "another machine has this one's name: stop that one (lifeboat node " + x.agent.GetNode() + " shows its address), or give this one " +
			"a certificate under another name: lifeboat tls issue --dir DIR --node NAME"
	}
	return "see that it runs, that coordinators names its listen.grpc (by default port " + coordinatorPort + "), and that nothing is in the way; a drain goes on without it, to the peers last heard of"
}

// noPeers is the remedy for a node without peers. Nodes that are there may be no peers, for instance without room.
const noPeers = "start agents on other nodes, or see in lifeboat nodes why those that are there take nothing: not ACTIVE, deactivated, or without room (receive.max_bytes, receive.paths)"

// diagnoseRoom checks whether peers and the fallback have room for the blocks of this node.
func (x *examination) diagnoseRoom(add adder) {
	s := x.agent
	f := s.GetFallback()
	rescued := x.rescued()
	switch {
	case f == nil:
	case f.GetTrouble() != "":
		add("fallback", stateBad, "/usr/share/doc/lifeboat/docs/fallback.md says what it needs; it is tried again each minute", "%s takes nothing for %s: %s", f.GetName(), show.Age(f.GetSince()), f.GetTrouble())
	case f.GetDoubt() != "":
		add("fallback", stateBad, "mount it, and name a directory inside the mount: without the mount there is none, and the agent says so", "blocks there may go with this machine: %s", f.GetDoubt())
	case f.GetTried() == nil:
		add("fallback", stateUnknown, "ask again in a moment", "%s was not tried yet", f.GetName())
	case f.RoomBytes == nil:
		add("fallback", stateOK, "", "%s would take blocks, tried %s ago; it does not tell its room", f.GetName(), show.Age(f.GetTried()))
	default:
		add("fallback", stateOK, "", "%s would take blocks, tried %s ago, with room for %s then", f.GetName(), show.Age(f.GetTried()), show.Size(f.GetRoomBytes()))
	}
	var room, last space
	advised := 0
	for _, p := range s.GetPeers() {
		if p.GetAdvised() {
			advised++
			last.add(p, x.plainFiles())
		} else {
			room.add(p, x.plainFiles())
		}
	}
	here, files := x.here(), x.filesHere()
	found := fmt.Sprintf("%s with room for %s", show.Count(int64(len(s.GetPeers())-advised), "peer"), room)
	switch {
	case len(s.GetPeers()) == 0 && rescued:
		add("peers", stateWarn, noPeers, "none: blocks would go to the fallback alone")
	case len(s.GetPeers()) == 0:
		add("peers", stateBad, noPeers, "none: blocks would have nowhere to go")
	case room.takes(here, files) && x.foreign():
		add("peers", stateWarn, "first see to the coordinator", "%s, as last heard of: they may not let this node in either", found)
	case !rescued && room.files == 0 && len(s.GetPeers()) > advised && len(x.plainFiles()) > 0: // their index may have yet to be made
		add("peers", stateWarn, moreRoom, "%s, and none for plain files", found)
	case room.takes(here, files) && len(s.GetPeers()) > advised:
		add("peers", stateOK, "", "%s", found)
	case advised > 0 && room.plus(last).takes(here, files):
		add("peers", stateWarn, "see what they are advised of: lifeboat nodes", "%s, and %s that may leave too with %s: %s at least are here",
			found, show.Count(int64(advised), "peer"), last, show.Size(here))
	case rescued && f.RoomBytes != nil && f.GetRoomBytes() < max(here-room.most, files-room.files):
		add("peers", stateBad, moreRoom+", or in the fallback", "%s, the fallback for %s, and %s: the rest would be lost", found, show.Size(f.GetRoomBytes()), x.atLeast(room))
	case rescued:
		add("peers", stateWarn, moreRoom, "%s, and %s: the rest would go to the fallback", found, x.atLeast(room))
	default:
		add("peers", stateBad, moreRoom+", or a fallback (/usr/share/doc/lifeboat/docs/fallback.md)", "%s, and %s: the rest would be lost", found, x.atLeast(room))
	}
}

// here is how much room the blocks of this node take at least. Spark stores are not counted before a drain.
func (x *examination) here() int64 {
	st := x.agent.GetStatus()
	return x.filesHere() + inventory.Count{Blocks: st.GetHeldBlocks(), Bytes: st.GetHeldBytes()}.Takes()
}

func (x *examination) filesHere() int64 {
	ix := x.agent.GetIndex()
	return inventory.Count{Blocks: ix.GetBlocks(), Bytes: ix.GetBytes()}.Takes()
}

// diagnoseCap checks whether a drain under the configured cap can send this node's blocks in the time of the cloud's shortest notice.
func (x *examination) diagnoseCap(add adder) {
	lead, perSecond := preemption.LeastLead(x.provider), int64(x.drain.MaxBytesPerSecond)
	if lead == 0 || perSecond == 0 {
		return
	}
	i := preemption.Open(preemption.Notice{Source: x.provider})
	lead -= min(cmp.Or(x.drain.Tail, i.Tail()), lead/2) // a drain keeps the tail back in the same way
	state, remedy, through := stateOK, "", float64(perSecond)*lead.Seconds()
	here := x.agent.GetIndex().GetBytes() + x.agent.GetStatus().GetHeldBytes()
	if float64(here) > through {
		state, remedy = stateWarn, "raise drain.max_bytes_per_second: it takes effect with systemctl reload lifeboat-agent"
	}
	add("cap", state, remedy, "%s a second carry %s in the %s that %s gives to send in: %s at least are here", show.Size(perSecond), show.Size(int64(through)), show.Span(lead), x.provider, show.Size(here))
}

func (x *examination) diagnoseClock(add adder) {
	h := x.host
	switch {
	case h.ClockErr != nil:
		add("clock", stateUnknown, "", "%s", firstLine(h.ClockErr))
	case !h.ClockSynced:
		add("clock", stateWarn, "install chrony or turn systemd-timesyncd on", "no time server keeps it")
	default:
		add("clock", stateOK, "", "kept by a time server")
	}
}

func (x *examination) diagnoseHost(add adder) {
	h := x.host
	x.diagnoseClock(add)
	if !h.Booted {
		add("systemd", stateUnknown, "", "not the init of this host: a shutdown is heard of only by the socket or a signal")
		return
	}
	switch {
	case h.LoginErr != nil:
		add("logind", stateBad, "start systemd-logind and dbus: without them a shutdown does not wait", "%s", firstLine(h.LoginErr))
	case h.MaxDelay < wantedDelay:
		add("logind", stateWarn, "put InhibitDelayMaxSec=30 under [Login] in /etc/systemd/logind.conf.d/lifeboat.conf, then restart systemd-logind",
			"a shutdown waits %s at most for the node to be empty", show.Span(h.MaxDelay))
	default:
		add("logind", stateOK, "", "a shutdown waits %s at most for the node to be empty", show.Span(h.MaxDelay))
	}
	runs := x.agentErr == nil || errors.Is(x.agentErr, fs.ErrPermission)
	switch {
	case h.LoginErr != nil:
	case len(h.Locks) > 0:
		add("shutdown lock", stateOK, "", "held by process %d", h.Locks[0].PID)
	case runs: // else it lacks the lock because it lacks the agent
		add("shutdown lock", stateBad, "see the agent's log for logind; it tries again each 10 s", "nobody holds one: a shutdown would not wait")
	}
	x.diagnoseUnit(add)
}

func (x *examination) diagnoseUnit(add adder) {
	u := x.host.Unit
	if x.host.UnitErr != nil {
		add("unit", stateUnknown, "", "%s", firstLine(x.host.UnitErr))
		return
	}
	if !slices.ContainsFunc(u.After, func(name string) bool { return name == "network-online.target" || name == "network.target" }) {
		add("unit order", stateBad, "After=network-online.target: what starts after the network stops before it", "%s does not start after the network, so it loses its peers first", u.Name)
	} else {
		add("unit order", stateOK, "", "%s starts after the network, and stops before it", u.Name)
	}
	if u.StopTimeout != systemd.Forever && u.StopTimeout < wantedStop {
		add("unit stop", stateWarn, "TimeoutStopSec=150", "%s is killed %s after it is told to stop", u.Name, show.Span(u.StopTimeout))
	} else {
		add("unit stop", stateOK, "", "%s has %s to stop in", u.Name, show.Span(u.StopTimeout))
	}
	if u.KillMode != "mixed" && u.KillMode != "process" {
		add("unit kill mode", stateWarn, "KillMode=mixed", "%s: what the agent started is told to stop with it", cmp.Or(u.KillMode, "unknown"))
	}
}

// firstLine is the first line of an error.
func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return show.Plain(line)
}

func (x *examination) diagnoseWorkloads(add adder) {
	well, guide := "%s is found, and can be told what is configured", "/usr/share/doc/lifeboat/docs/workloads.md says what a workload must be for that"
	if x.kind == "sidecar" {
		well, guide = "%s: nothing seems to be in its way", "put it there, or name what is: actions in the file, /usr/share/doc/lifeboat/docs/sidecar.md"
	}
	for _, w := range x.told {
		switch {
		case w.err != nil:
			add(w.name, stateBad, "lifeboat config check says what is wrong with it", "%s", firstLine(w.err))
		case len(w.doubts) == 0:
			add(w.name, stateOK, "", well, w.what)
		}
		for _, d := range w.doubts {
			if d.Bad {
				add(w.name, stateBad, guide, "%s", d.Found)
			} else {
				add(w.name, stateWarn, "see that it is spelled right", "%s", d.Found)
			}
		}
	}
	for _, w := range x.agent.GetStatus().GetWorkloads() {
		if w.GetTrouble() != "" && w.GetState() == "UNKNOWN" {
			add("workload "+w.GetName()+", to the agent", stateBad, "the agent's unit lets it see and signal others with the drop-in of /usr/share/doc/lifeboat/docs/workloads.md", "%s", w.GetTrouble())
		}
	}
}
