package coordinator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/coordinator/registry"
	"github.com/lifeboat/lifeboat/migration/lastresort"
	"github.com/lifeboat/lifeboat/migration/manifest"
)

// A manifest may have a million entries: too many for raft's log, whose entries pass through every coordinator's memory.
// So its file is sent ahead. A majority of the coordinators has it on disk before the log refers to it, and the others fetch it.
const (
	manifestPart = 256 << 10
	// sharePatience bounds the sending of one manifest to the others; after that the node has to say goodbye again.
	sharePatience = 15 * time.Second

	// shared is how many manifests are sent at a time. When thousands of nodes leave at once, thousands of manifests at a time would all
	// take longer than sharePatience, and all would come again. Waiting for a turn costs nothing.
	shared = maxStreams / 2

	// missPace is how soon a manifest that no coordinator had is asked for again, and lookPace how often all are checked.
	missPace = time.Second
	lookPace = time.Minute

	// strayAge is how old a manifest that the log does not refer to must be to count as left by a crash: a younger one may be on its
	// way into the log, or the log entry on its way here.
	strayAge = time.Hour
)

// accounts are the manifests that the log names: their files here, and at the other coordinators.
type accounts struct {
	log        *slog.Logger
	ledger     *ledger
	colleagues *colleagues
	files      *manifests
	handing    chan struct{} // holds one for each manifest that is being sent to other coordinators

	mu      sync.Mutex         // held while manifests are kept, or those that the log no longer names are dropped; guards what follows
	doubted map[string]doubted // by node; see doubt
}

// doubted is a manifest of which it is not known yet whether the log has it.
type doubted struct {
	ref  *registry.ManifestRef
	lost []uint64
}

func newAccounts(l *ledger, c *colleagues, files *manifests, log *slog.Logger) *accounts {
	return &accounts{log: log, ledger: l, colleagues: c, files: files, handing: make(chan struct{}, shared), doubted: map[string]doubted{}}
}

// begin takes stock of the files of a coordinator on its own, for its term as the leader. One of several does so all the time (run).
func (a *accounts) begin(refs []*registry.ManifestRef) {
	if !a.ledger.alone() {
		return
	}
	a.files.prune(refs)
	for _, ref := range a.files.load(refs) {
		a.log.Warn("a manifest is missing: the blocks that it names as lost are answered as unknown", "node", ref.Node, "file", ref.File)
	}
}

// keep takes a manifest into account that the log has just been told of. The log takes many goodbyes with one write. With the lock, the log as
// it is read here names every file that was kept before.
func (a *accounts) keep(ref *registry.ManifestRef, lost []uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.doubted, ref.Node)
	a.files.keep(ref, lost)
	var refs []*registry.ManifestRef
	a.ledger.view(func(m *registry.Registry) { refs = m.Manifests })
	if a.ledger.alone() {
		a.files.prune(refs)
	} else {
		a.files.forget(refs) // files stay: other coordinators may be behind in the log, and fetch them. pruneStray removes them later
	}
}

// doubt is for a manifest that may come into the log yet, because its disk hangs: the node may be gone by then, and not give its account again.
// Of several coordinators each looks at the log for such manifests (run).
func (a *accounts) doubt(ref *registry.ManifestRef, lost []uint64) {
	if !a.ledger.alone() {
		return
	}
	a.mu.Lock()
	a.doubted[ref.Node] = doubted{ref, lost}
	a.mu.Unlock()
	a.settle(ref.Node)
}

// settle takes a node's doubted manifest into account if the log has it now.
func (a *accounts) settle(node string) {
	a.mu.Lock()
	d, doubts := a.doubted[node]
	a.mu.Unlock()
	if !doubts {
		return
	}
	if n, _ := a.ledger.node(node); n.Manifest != nil && n.Manifest.File == d.ref.File {
		a.keep(d.ref, d.lost)
	}
}

// lost returns the manifest that names the block as lost; nil: none does, or its node has come back with it.
func (a *accounts) lost(id string) (by *registry.ManifestRef) {
	if ref := a.files.namedLost(id); ref != nil {
		a.ledger.view(func(m *registry.Registry) {
			if m.InForce(ref) {
				by = ref
			}
		})
	}
	return by
}

// moved are the manifests by which these nodes moved blocks, the newest first; without nodes, those of all.
func (a *accounts) moved(nodes ...string) (refs []*registry.ManifestRef) {
	a.ledger.view(func(m *registry.Registry) {
		for _, ref := range slices.Backward(m.Manifests) {
			if ref.Moved > 0 && (len(nodes) == 0 || slices.Contains(nodes, ref.Node)) {
				refs = append(refs, ref)
			}
		}
	})
	return refs
}

// spilled are the hashes of the blocks that a node put into a fallback, and when the last manifest that says so came.
func (a *accounts) spilled(node string) map[uint64]time.Time {
	last := map[uint64]time.Time{}
	for _, ref := range a.moved(node) {
		for e, err := range a.files.entries(ref) {
			if err != nil || e.Outcome != manifest.Moved || !strings.HasPrefix(e.Peer, lastresort.PeerPrefix) {
				continue
			}
			if h := a.files.hash(e.ID); last[h].Before(ref.At) {
				last[h] = ref.At
			}
		}
	}
	return last
}

// lostAfter reports whether a manifest names the block as lost that came no sooner than at.
func (a *accounts) lostAfter(id string, at time.Time) bool {
	lost := a.lost(id)
	return lost != nil && !lost.At.Before(at)
}

// share sends a manifest to so many others that any leader has it, or can fetch it.
func (a *accounts) share(ctx context.Context, file string) error {
	others := a.colleagues.all()
	need := (len(others) + 1) / 2
	if need == 0 {
		return nil
	}
	select {
	case a.handing <- struct{}{}:
		defer func() { <-a.handing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	var hands sync.WaitGroup
	defer hands.Wait()
	ctx, cancel := context.WithTimeout(ctx, sharePatience)
	defer cancel() // the others fetch it when the log tells them of it
	done := make(chan error, len(others))
	for _, p := range others {
		hands.Go(func() { done <- a.hand(ctx, p, file) })
	}
	var errs []error
	for range others {
		err := <-done
		if err == nil {
			if need--; need == 0 {
				return nil
			}
			continue
		}
		errs = append(errs, err)
	}
	return fmt.Errorf("too few coordinators have the manifest: %w", errors.Join(errs...))
}

func (a *accounts) hand(ctx context.Context, to Peer, file string) error {
	client, err := a.colleagues.ask(to)
	if err != nil {
		return err
	}
	from, err := a.files.root.Open(file)
	if err != nil {
		return err
	}
	defer from.Close()
	stream, err := client.KeepManifest(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", to.Name, err)
	}
	if err := sendFile(file, from, stream.Send); err != nil && !errors.Is(err, io.EOF) { // EOF: the reply says why
		return fmt.Errorf("%s: %w", to.Name, err)
	}
	if _, err := stream.CloseAndRecv(); err != nil {
		return fmt.Errorf("%s: %w", to.Name, err)
	}
	return nil
}

func sendFile(name string, from io.Reader, send func(*api.ManifestPart) error) error {
	if err := send(&api.ManifestPart{File: name}); err != nil {
		return err
	}
	buf := make([]byte, manifestPart)
	for {
		n, err := io.ReadFull(from, buf)
		if n > 0 {
			if err := send(&api.ManifestPart{Data: buf[:n]}); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// run fetches manifests that the log refers to and that are not here, and loads new ones, so that a coordinator that takes
// over knows which blocks are lost. It ends with ctx.
func (a *accounts) run(ctx context.Context) error {
	pause := time.NewTimer(0)
	defer pause.Stop()
	var missed absentees
	var told int
	for {
		news := a.ledger.fsm.coming()
		select {
		case <-ctx.Done():
			return nil
		case <-pause.C:
		}
		var refs []*registry.ManifestRef
		a.ledger.view(func(m *registry.Registry) { refs = m.Manifests })
		var why error
		missed, why = a.fetchMissing(ctx, refs, missed)
		if len(missed) != told && ctx.Err() == nil {
			if told = len(missed); told > 0 {
				a.log.Warn("manifests are missing here: the blocks that they name as lost are answered as unknown", "files", told, "err", why)
			}
		}
		a.files.load(refs)
		a.files.pruneStray(refs)
		a.mu.Lock()
		a.ledger.view(func(m *registry.Registry) { refs = m.Manifests })
		a.files.forget(refs)
		a.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil
		case <-news:
			pause.Reset(missPace) // when a zone leaves there are many goodbyes: gather some
		case <-time.After(missed.next(time.Now())):
			pause.Reset(0)
		}
	}
}

// absentees are manifests that no coordinator had when asked, by file. Each is asked for less and less often. A coordinator that was cut
// off may have it in a moment; a manifest that a restore did not bring along is nowhere.
type absentees map[string]absentee

type absentee struct {
	pause time.Duration
	due   time.Time // when it is asked for again
	err   error
}

// next is the time until the next absentee is due, lookPace at most.
func (a absentees) next(now time.Time) time.Duration {
	pause := lookPace
	for _, one := range a {
		pause = min(pause, one.due.Sub(now))
	}
	return pause
}

// fetchMissing fetches the manifests of refs that are not here and are due. It returns those that are still missing, and why one of them is.
func (a *accounts) fetchMissing(ctx context.Context, refs []*registry.ManifestRef, were absentees) (missed absentees, why error) {
	missed = absentees{}
	for _, ref := range a.files.load(refs) {
		one := were[ref.File]
		if !time.Now().Before(one.due) {
			if one.err = a.fetch(ctx, ref.File); one.err == nil {
				continue
			}
			one.pause = min(max(2*one.pause, missPace), lookPace)
			one.due = time.Now().Add(one.pause)
		}
		missed[ref.File], why = one, one.err
	}
	return missed, why
}

// errNowhere is of a manifest that is not here, and that no other coordinator has: all were asked.
var errNowhere = errors.New("no coordinator has it, and a restored snapshot brings none along")

// fetch gets a manifest from the first coordinator that has it.
func (a *accounts) fetch(ctx context.Context, file string) error {
	var errs []error
	lacking := 0
	for _, p := range a.colleagues.all() {
		err := a.fetchFrom(ctx, p, file)
		if err == nil {
			return nil
		}
		if status.Code(err) == codes.NotFound {
			lacking++
		}
		errs = append(errs, fmt.Errorf("%s: %s", p.Name, api.Why(err)))
	}
	if lacking == len(errs) {
		return errNowhere
	}
	return errors.Join(errs...)
}

// fetchFrom gets a manifest from one coordinator. One that says nothing, because its disk hangs or its machine is gone, leaves time for the
// others.
func (a *accounts) fetchFrom(ctx context.Context, from Peer, file string) error {
	ctx, cancel := context.WithTimeout(ctx, sharePatience)
	defer cancel()
	client, err := a.colleagues.ask(from)
	if err != nil {
		return err
	}
	silent := time.AfterFunc(dialPatience, cancel)
	stream, err := client.FetchManifest(ctx, &api.FetchManifestRequest{File: file})
	if err == nil {
		_, err = stream.Recv() // the name
	}
	if !silent.Stop() {
		return fmt.Errorf("no answer within %s", dialPatience)
	}
	if err != nil {
		return err
	}
	return a.files.take(file, func() ([]byte, error) {
		part, err := stream.Recv()
		return part.GetData(), err
	})
}

// obtain makes sure that a manifest's file is here: a new leader may not have fetched it yet. Where no coordinator has the file, the answer is
// NotFound: whoever asked goes on to the account that the node left with a peer.
func (a *accounts) obtain(ctx context.Context, ref *registry.ManifestRef) error {
	if a.files.has(ref.File) {
		return nil
	}
	switch err := a.fetch(ctx, ref.File); {
	case errors.Is(err, errNowhere):
		return status.Errorf(codes.NotFound, "the manifest of %s is not here: %v. It named %d blocks as moved, %d as lost and %d as skipped",
			ref.Node, err, ref.Moved, ref.Lost, ref.Skipped)
	case err != nil:
		return status.Errorf(codes.Unavailable, "the manifest of %s is not here, and nobody who has it was reached: %v: ask again", ref.Node, err)
	}
	return nil
}
