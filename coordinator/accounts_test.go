package coordinator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/coordinator/registry"
	"github.com/lifeboat/lifeboat/pipenet"
)

// withoutManifests is a coordinator that has no manifests.
type withoutManifests struct {
	api.UnimplementedCoordinationServer
	asked atomic.Int64
}

func (w *withoutManifests) FetchManifest(r *api.FetchManifestRequest, _ grpc.ServerStreamingServer[api.ManifestPart]) error {
	w.asked.Add(1)
	return status.Errorf(codes.NotFound, "manifest %s is not here", r.GetFile())
}

// withManifests is a coordinator that has every manifest.
type withManifests struct {
	api.UnimplementedCoordinationServer
}

func (withManifests) FetchManifest(r *api.FetchManifestRequest, stream grpc.ServerStreamingServer[api.ManifestPart]) error {
	return sendFile(r.GetFile(), strings.NewReader("{}\n"), stream.Send)
}

// hung is a coordinator whose disk hangs.
type hung struct {
	api.UnimplementedCoordinationServer
}

func (hung) FetchManifest(_ *api.FetchManifestRequest, stream grpc.ServerStreamingServer[api.ManifestPart]) error {
	<-stream.Context().Done()
	return stream.Context().Err()
}

// slowTaker is a coordinator whose disk takes a hundred manifests a second.
type slowTaker struct {
	api.UnimplementedCoordinationServer
}

func (slowTaker) KeepManifest(stream grpc.ClientStreamingServer[api.ManifestPart, api.KeepManifestReply]) error {
	for {
		if _, err := stream.Recv(); errors.Is(err, io.EOF) {
			time.Sleep(time.Second)
			return stream.SendAndClose(&api.KeepManifestReply{})
		} else if err != nil {
			return err
		}
	}
}

// besideColleagues returns the fleet of c1, one of so many coordinators, and its directory. c2 and those after it serve as given, and the
// others are away.
func besideColleagues(t *testing.T, members int, others ...api.CoordinationServer) (f *fleet, dir string) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	as := func(name string) *certs.Identity {
		return certs.Dev(certs.Name{Role: certs.RoleCoordinator, Name: name})
	}
	at := map[string]*pipenet.Listener{}
	for i, other := range others {
		here := pipenet.Listen()
		at[fmt.Sprintf("10.0.0.%d:7411", i+2)] = here
		server := grpc.NewServer(grpc.Creds(credentials.NewTLS(as(fmt.Sprint("c", i+2)).Server([]string{"h2"}, certs.RoleCoordinator))), grpc.MaxConcurrentStreams(maxStreams))
		api.RegisterCoordinationServer(server, other)
		ended := make(chan error, 1)
		go func() { ended <- server.Serve(here) }()
		t.Cleanup(func() { server.Stop(); <-ended })
	}

	dir = t.TempDir()
	l, err := openLedger(ledgerConfig{dir: dir, own: "c1", peers: peersNamed(members), election: time.Second, log: log, streams: newStreams(as("c1"), "c1:1", nowhere)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	f = &fleet{log: log, ledger: l}
	files, err := openManifests(filepath.Join(dir, "manifests"), log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { files.Close() })
	f.colleagues = &colleagues{identity: as("c1"), ledger: l, conns: map[Peer]*grpc.ClientConn{}, dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		if here := at[address]; here != nil {
			return here.Dial(ctx, network, address)
		}
		return nil, net.ErrClosed
	}}
	t.Cleanup(func() { f.colleagues.Close() })
	f.accounts = newAccounts(l, f.colleagues, files, log)
	return f, dir
}

// The manifests of three thousand nodes that go at once are all shared, although the other coordinators need longer for all of them than the
// leader waits for one.
func TestManyManifestsWaitForTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, dir := besideColleagues(t, 3, slowTaker{})
		if err := os.WriteFile(filepath.Join(dir, "manifests", "n.jsonl"), []byte("{}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		shares := make(chan error)
		for range 3000 {
			go func() { shares <- f.accounts.share(t.Context(), "n.jsonl") }()
		}
		failed := 0
		for range 3000 {
			if err := <-shares; err != nil {
				failed++
			}
		}
		if failed > 0 {
			t.Errorf("got %d of 3000 manifests refused, want none", failed)
		}
	})
}

// After a restore on new machines no coordinator has the manifests that the log refers to. They do not ask for them all the time, and keep
// no file that the log does not refer to.
func TestManifestThatNobodyHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const refs = 50
		colleague := &withoutManifests{}
		f, dir := besideColleagues(t, 3, colleague)
		is := &f.ledger.fsm.machine.Manifests
		for range refs {
			*is = append(*is, &registry.ManifestRef{File: "n-" + string(rune('a'+len(*is))) + ".jsonl"})
		}
		stray := filepath.Join(dir, "manifests", "old-z.jsonl")
		if err := os.WriteFile(stray, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(stray, time.Time{}, time.Now().Add(-2*strayAge)); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		kept := make(chan error, 1)
		go func() { kept <- f.accounts.run(ctx) }()
		time.Sleep(10*time.Minute + time.Second/2)
		if got := colleague.asked.Load() / refs; got < 10 || got > 20 {
			t.Errorf("got asked for each manifest %d times in ten minutes, want some 15", got)
		}
		if _, err := os.Stat(stray); err == nil {
			t.Error("a manifest that stands for nothing is still there")
		}
		cancel()
		if err := <-kept; err != nil {
			t.Error(err)
		}
	})
}

// A manifest that all coordinators say they do not have is not found, so that whoever asks goes on to the node's peers. While one of them does
// not answer, it may be there.
func TestManifestIsNotFoundOnceAllWereAsked(t *testing.T) {
	for members, want := range map[int]codes.Code{2: codes.NotFound, 3: codes.Unavailable} {
		synctest.Test(t, func(t *testing.T) {
			f, _ := besideColleagues(t, members, &withoutManifests{})
			err := f.accounts.obtain(t.Context(), &registry.ManifestRef{Node: "n", File: "n-a.jsonl", Moved: 3})
			if status.Code(err) != want {
				t.Errorf("got %v of %d coordinators, want %v", err, members, want)
			}
		})
	}
}

// A coordinator whose disk hangs, such as the one that led before, does not keep this one from the manifests that the next one has.
func TestManifestIsFetchedPastADiskThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _ := besideColleagues(t, 3, hung{}, withManifests{})
		began := time.Now()
		if err := f.accounts.obtain(t.Context(), &registry.ManifestRef{Node: "n", File: "n-a.jsonl"}); err != nil || time.Since(began) > 5*time.Second {
			t.Errorf("got %v after %s, want the manifest of c3", err, time.Since(began))
		}
	})
}
