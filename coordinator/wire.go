package coordinator

import (
	"cmp"
	"net"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/coordinator/hosts"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

// Bounds of what the coordinator takes off the wire. Each is several times what an honest agent sends.
const (
	maxMessageBytes = 4 << 20
	maxNodes        = 10_000 // named by one operator's call
	maxName         = 128    // as in certificates
	maxHost         = 253    // RFC 1035
	maxWord         = 128    // ids, kinds, zones, pools, versions
	maxUnfinished   = 17     // of a manifest's summary
	maxPath         = 4096   // PATH_MAX
	maxID           = 4096
	maxDisks        = 256
	maxStores       = 256
	maxPeers        = 1024
	maxBlocks       = 16 << 10 // in one message
	maxWorkloads    = 64
	maxExecutors    = 256 // of one workload
	maxSpan         = 10 * 365 * 24 * time.Hour
)

// fault is the error for a malformed message. It says what is wrong, and what would be right.
func fault(format string, args ...any) error {
	return status.Errorf(codes.InvalidArgument, format, args...)
}

func printable(s string) bool {
	if plain(s) {
		return true
	}
	if !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return true
}

// plain reports whether s is printable ASCII, as nearly all strings of the wire are.
func plain(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// checkWord bounds one string. Control characters would end up in people's terminals.
func checkWord(what, s string, most int) error {
	switch {
	case len(s) > most:
		return fault("%s of %d bytes: at most %d", what, len(s), most)
	case !printable(s):
		return fault("%s %q: must be printable UTF-8", what, s)
	}
	return nil
}

func checkCount(what string, got, most int) error {
	if got > most {
		return fault("%d %s in one message: at most %d, send more messages", got, what, most)
	}
	return nil
}

// checkEach is the first error of check among all.
func checkEach[T any](all []T, check func(T) error) error {
	for _, one := range all {
		if err := check(one); err != nil {
			return err
		}
	}
	return nil
}

// checkTexts bounds texts as checkText does.
func checkTexts(what string, all []string) error {
	return checkEach(all, func(s string) error { return checkText(what, s) })
}

func checkSizes(what string, sizes ...int64) error {
	for _, n := range sizes {
		if n < 0 {
			return fault("%s: %d is negative", what, n)
		}
	}
	return nil
}

// checkSpan bounds a span, so that adding it to an instant cannot overflow. An absent one is valid.
func checkSpan(what string, d *durationpb.Duration) error {
	if d == nil {
		return nil
	}
	if err := d.CheckValid(); err != nil {
		return fault("%s: %v", what, err)
	}
	if d.AsDuration().Abs() > maxSpan {
		return fault("%s of %s: at most %s", what, d.AsDuration(), maxSpan)
	}
	return nil
}

// checkAddress refuses an address that another machine cannot dial.
func checkAddress(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return fault("peer address %q: must be HOST:PORT", address)
	}
	if err := checkWord("peer address", host, 253); err != nil { // RFC 1035, 2.3.4
		return err
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fault("peer address %q: the port must be 1 to 65535", address)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		return fault("peer address %q: others cannot dial it: set listen.advertise at the agent", address)
	}
	return nil
}

func checkIncarnation(s string) error {
	if s == "" {
		return fault("incarnation is empty: an agent makes one for its data directory")
	}
	return checkWord("incarnation", s, maxWord)
}

func checkRegister(r *api.RegisterRequest) error {
	return cmp.Or(
		checkIncarnation(r.Incarnation),
		checkAddress(r.PeerAddress),
		checkWord("zone", r.Zone, maxWord),
		checkWord("pool", r.Pool, maxWord),
		checkWord("version", r.Version, maxWord),
		checkStatus(r.Status),
	)
}

func checkNotice(n *api.Notice) error {
	if n == nil {
		return nil
	}
	return cmp.Or(
		checkWord("incident", n.Incident, maxWord),
		checkWord("notice kind", n.Kind, maxWord),
		checkWord("notice source", n.Source, maxWord),
		checkWord("notice stance", n.Stance, maxWord),
		checkSpan("notice remaining", n.Remaining),
		checkText("notice reason", n.Reason),
	)
}

// checkText bounds a text that people wrote, which may have several lines.
func checkText(what, s string) error {
	if len(s) > registry.MaxText || !utf8.ValidString(s) {
		return fault("%s of %d bytes: must be UTF-8 of at most %d", what, len(s), registry.MaxText)
	}
	return nil
}

func checkStatus(s *api.Status) error {
	if s == nil {
		return nil
	}
	if err := cmp.Or(
		checkNotice(s.Notice),
		checkSpan("clock_ahead", s.ClockAhead),
		checkWord("fallback", s.Fallback, maxWord),
		checkWord("accounted", s.Accounted, maxWord),
		checkCount("disks", len(s.Disks), maxDisks),
		checkCount("stores", len(s.Stores), maxStores),
		checkSizes("room_bytes, held_taken_bytes, held_blocks, held_bytes", s.RoomBytes, s.HeldTakenBytes, s.HeldBlocks, s.HeldBytes),
		checkSizes("broken_blocks, vault_room_bytes", s.BrokenBlocks, s.GetVaultRoomBytes()),
		checkSizes("largest_room_bytes, largest_vault_room_bytes", s.LargestRoomBytes, s.LargestVaultRoomBytes),
		checkSizes("stored_blocks, stored_bytes, fallback_room_bytes", s.StoredBlocks, s.StoredBytes, s.GetFallbackRoomBytes()),
	); err != nil {
		return err
	}
	return cmp.Or(checkEach(s.Disks, checkDisk), checkEach(s.Stores, checkStore), checkDrain(s.Drain), checkWorkloads(s.Workloads))
}

func checkDisk(d *api.Disk) error {
	return cmp.Or(checkWord("disk path", d.GetPath(), maxPath), checkWord("disk health", d.GetHealth(), maxWord),
		checkText("disk why", d.GetWhy()), checkWord("disk mount", d.GetMount(), maxPath), checkWord("disk device", d.GetDevice(), maxWord),
		checkWord("disk filesystem", d.GetFilesystem(), maxWord), checkWord("disk kind", d.GetKind(), maxWord), checkSpan("disk since", d.GetSince()),
		checkSizes("disk "+d.GetPath(), d.GetTotalBytes(), d.GetUsableBytes(), d.GetFreeBytes(), d.GetReservedBytes(), d.GetInodes(), d.GetInodesFree(),
			d.GetSlots(), d.GetFreeSlots(), d.GetFlushBytesPerSecond(), d.GetFetchBytesPerSecond(), d.GetErrors()))
}

func checkStore(st *api.StoreInfo) error {
	return cmp.Or(checkWord("store name", st.GetName(), maxWord), checkWord("store kind", st.GetKind(), maxWord),
		checkWord("store layout", st.GetLayout(), maxWord), checkWord("store land", st.GetLand(), maxWord))
}

func checkDrain(p *api.DrainProgress) error {
	if err := cmp.Or(checkWord("drain phase", p.GetPhase(), maxWord), checkCount("peers", len(p.GetPeers()), maxPeers), checkCount("disks awaited", len(p.GetAwaits()), maxDisks),
		checkSizes("drain progress", p.GetBlocksTotal(), p.GetBlocksMoved(), p.GetBlocksLost(), p.GetBlocksSkipped(), p.GetBytesTotal(), p.GetBytesMoved(), p.GetBytesPerSecond()),
		checkTexts("disk awaited", p.GetAwaits())); err != nil {
		return err
	}
	return checkEach(p.GetPeers(), func(peer *api.PeerProgress) error {
		return cmp.Or(checkWord("peer", peer.GetNode(), maxName), checkText("trouble", peer.GetTrouble()),
			checkSizes("peer "+peer.GetNode(), peer.GetBlocks(), peer.GetBytes()))
	})
}

func checkWorkloads(all []*api.Workload) error {
	if err := checkCount("workloads", len(all), maxWorkloads); err != nil {
		return err
	}
	return checkEach(all, checkWorkload)
}

func checkWorkload(w *api.Workload) error {
	if err := cmp.Or(checkWord("workload name", w.GetName(), maxWord), checkWord("workload type", w.GetType(), maxWord),
		checkWord("workload state", w.GetState(), maxWord), checkSpan("workload since", w.GetSince()),
		checkSizes("processes of workload "+w.GetName(), w.GetProcesses()), checkText("workload trouble", w.GetTrouble()),
		checkCount("executors of one workload", len(w.GetExecutors()), maxExecutors),
		checkCount("apps of one workload", len(w.GetApps()), mostApps)); err != nil {
		return err
	}
	return cmp.Or(
		checkEach(w.GetExecutors(), func(e *api.Executor) error {
			return cmp.Or(checkWord("app", e.GetApp(), maxWord), checkWord("executor", e.GetId(), maxWord))
		}),
		checkEach(w.GetApps(), func(app string) error {
			if app == "" {
				return fault("workload %s runs an app without a name", w.GetName())
			}
			return checkWord("app", app, maxWord)
		}),
	)
}

func noticeFrom(n *api.Notice, now time.Time) *registry.Notice {
	said := &registry.Notice{Incident: n.GetIncident(), Kind: n.GetKind(), Source: n.GetSource(), Reason: n.GetReason()}
	if n.GetRemaining() != nil {
		said.Deadline = now.Add(n.Remaining.AsDuration()).UTC().Round(0)
	}
	return said
}

// nodeTo is a node as the API has it. All ways to ask for a node lead here, so that all answers agree.
func nodeTo(n registry.Node, p pulse, now time.Time) *api.Node {
	out := &api.Node{
		Name: n.Name, Id: n.ID, State: string(n.Shown()),
		Schedulable: n.State == registry.Active && !n.Excluded && !n.Deactivated && !watched(p.status),
		Deactivated: n.Deactivated, Excluded: n.Excluded, Maintenance: "UP",
		PeerAddress: n.PeerAddress, Incarnation: n.Incarnation, Zone: n.Zone, Pool: n.Pool, Version: n.Version,
		Now: timestamppb.New(now),
	}
	if p.heard {
		out.LastHeartbeat = durationpb.New(now.Sub(p.seen))
	}
	if p.status != nil {
		out.Status = p.status // not copied, as nothing writes to it: for ten thousand nodes with twenty disks each, copies were most of a list's cost
	}
	if p.status.GetNotice() != nil {
		out.Status = proto.CloneOf(p.status)
		if left := out.Status.Notice.GetRemaining(); left != nil {
			out.Status.Notice.Remaining = durationpb.New(left.AsDuration() - now.Sub(p.said)) // the status gave the rest at p.said
		}
	}
	if n.State == registry.Active && out.Status.GetNotice().GetKind() == registry.Echo { // the order was taken back, and the node has not heard that
		out.Status.Notice, out.Status.Drain = nil, nil
	}
	if d := n.Decommission; d != nil {
		out.Decommission, out.Reason = d.ID, d.Reason()
		if at := d.Deadline(); n.Leaving() && !at.IsZero() {
			out.Deadline = timestamppb.New(at)
			out.Remaining = durationpb.New(at.Sub(now))
		}
		if d.Notice != nil && n.Leaving() && out.Status.GetNotice() == nil {
			if out.Status = proto.CloneOf(out.Status); out.Status == nil { // after a restart the log knows what the agent has yet to repeat
				out.Status = &api.Status{}
			}
			out.Status.Notice = &api.Notice{Incident: d.Notice.Incident, Kind: d.Notice.Kind, Source: d.Notice.Source, Stance: "drain", Reason: d.Notice.Reason}
			if !d.Notice.Deadline.IsZero() {
				out.Status.Notice.Remaining = durationpb.New(d.Notice.Deadline.Sub(now))
			}
		}
	}
	if n.Accounted() {
		out.Manifest = n.Manifest.Account()
	}
	return out
}

func eventTo(e registry.Event) *api.Event {
	return &api.Event{Index: e.Index, Term: e.Term, Soft: e.Soft, Time: timestamppb.New(e.Time), Type: e.Type, Node: e.Node, Data: e.Data}
}

// timeoutsFrom are the timeouts for single nodes. Each of these nodes must be among the request's nodes.
func timeoutsFrom(r *api.DecommissionRequest) (map[string]time.Duration, error) {
	if len(r.GetTimeouts()) > maxNodes {
		return nil, fault("%d timeouts in one call: at most %d, make several calls", len(r.GetTimeouts()), maxNodes)
	}
	own := make(map[string]time.Duration, len(r.GetTimeouts()))
	named := make(map[string]bool, len(r.GetNodes()))
	for _, name := range r.GetNodes() {
		named[name] = true
	}
	for name, d := range r.GetTimeouts() {
		switch {
		case !named[name]:
			return nil, fault("a timeout for %q, which is not among the nodes: nothing was done, name it there too", name)
		case d == nil:
			return nil, fault("a timeout for %s without a value: leave it out, or give one", name)
		}
		if err := checkSpan("timeout of "+name, d); err != nil {
			return nil, err
		}
		own[name] = max(d.AsDuration(), hosts.Forever)
	}
	return own, nil
}

// distinct refuses a call that names a node twice: it was probably meant otherwise.
func distinct(names []string) ([]string, error) {
	if len(names) == 0 {
		return nil, fault("no node is named: name at least one")
	}
	if len(names) > maxNodes {
		return nil, fault("%d nodes in one call: at most %d, make several calls", len(names), maxNodes)
	}
	seen := make(map[string]bool, len(names))
	for _, name := range names {
		if err := checkWord("node", name, maxName); err != nil {
			return nil, err
		}
		if seen[name] {
			return nil, fault("node %s is named twice: nothing was done, name it once", name)
		}
		seen[name] = true
	}
	return names, nil
}

// checkID refuses an id that is not STORE/SCOPE/NAME.
func checkID(id string) error {
	if len(id) > maxID {
		return fault("block id of %d bytes: at most %d", len(id), maxID)
	}
	store, rest, _ := strings.Cut(id, "/")
	scope, name, _ := strings.Cut(rest, "/")
	if store == "" || scope == "" || name == "" {
		return fault("block id %q: must be STORE/SCOPE/NAME, with - for a scope that there is not", id)
	}
	if !plain(id) && (!utf8.ValidString(id) || strings.ContainsFunc(id, unicode.IsControl)) { // as agents take it: not all files have names that print
		return fault("block id %q: must be UTF-8 without control characters", id)
	}
	return nil
}
