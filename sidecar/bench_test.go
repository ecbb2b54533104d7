package sidecar

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/pipenet"
	"github.com/lifeboat/lifeboat/preemption"
	"github.com/lifeboat/lifeboat/preemption/ec2fake"
	"github.com/lifeboat/lifeboat/workloads"
)

// dialOut is a network without unix sockets: dialling one fails.
func dialOut(to *pipenet.Listener) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if network == "unix" {
			return nil, errors.New("nobody listens")
		}
		return to.Dial(ctx, network, address)
	}
}

// heard is what a fake action was told.
type heard struct {
	workloads.Word
	at       time.Time // by the clock of the bubble
	deadline time.Time // of the context
	ended    error     // what ended it, once it ended
}

// fake is an action that records what it is told. tell, if set, is what it then does.
type fake struct {
	again bool // telling is retried after a failure

	tell func(ctx context.Context, w workloads.Word) error

	mu  sync.Mutex // guards all
	all []heard
}

func (f *fake) String() string { return "a fake" }

func (f *fake) Tell(ctx context.Context, w workloads.Word) error {
	h := heard{Word: w, at: time.Now()}
	h.deadline, _ = ctx.Deadline()
	f.mu.Lock()
	f.all = append(f.all, h)
	at := len(f.all) - 1
	f.mu.Unlock()
	if f.tell == nil {
		return nil
	}
	err := f.tell(ctx, w)
	f.mu.Lock()
	f.all[at].ended = err
	f.mu.Unlock()
	return err
}

func (f *fake) heard() []heard {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.all)
}

func (f *fake) phases() []workloads.Phase {
	var phases []workloads.Phase
	for _, h := range f.heard() {
		phases = append(phases, h.Phase)
	}
	return phases
}

// hang waits until it is told to stop, like a hook that goes on by itself.
func hang(ctx context.Context, _ workloads.Word) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

// machine is a host with a cloud and sidecars, one after the other, in one bubble.
type machine struct {
	t       *testing.T
	cloud   *ec2fake.Service
	network *pipenet.Listener
	booted  time.Time
	cfg     Config
	logind  *preemption.Logind
	source  preemption.Source // an additional source, if it is not nil

	*Sidecar
	stop func() error // ends it as SIGTERM does
}

// bubble runs a test on a machine. The fakes are the machine's actions, named in the order of names.
func bubble(t *testing.T, test func(t *testing.T, m *machine)) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		m := &machine{t: t, cloud: ec2fake.New(ec2fake.Instance{ID: "i-1", LifeCycle: "spot"}), network: pipenet.Listen(), booted: time.Now()}
		server := &http.Server{Handler: m.cloud}
		var serving sync.WaitGroup
		serving.Go(func() {
			if err := server.Serve(m.network); !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
				t.Errorf("the cloud ended with %v", err)
			}
		})
		m.cfg = Default()
		m.cfg.Node.Name = "host-a"
		m.cfg.DataDir = filepath.Join(dir, "data")
		m.cfg.Listen = Listen{Socket: filepath.Join(dir, "socket")}
		m.cfg.Cloud = preemption.Settings{Provider: "ec2", Endpoint: "http://metadata.test", Poll: time.Second}
		t.Cleanup(func() {
			if m.stop != nil {
				m.end()
			}
			server.Close()
			m.network.Close()
			serving.Wait()
		})
		test(t, m)
	})
}

// action adds an action to the configuration of the next sidecar.
func (m *machine) action(a Action) {
	a.Webhook.URL = "http://replaced.test"
	m.cfg.Actions = append(m.cfg.Actions, a)
}

// start starts a sidecar whose actions are the fakes, in the order of the configuration.
func (m *machine) start(fakes ...*fake) {
	m.t.Helper()
	s, err := New(m.t.Context(), m.cfg, Deps{
		Log: slog.New(slog.DiscardHandler), Logind: m.logind, Dial: dialOut(m.network),
		Listen: func(string, string) (net.Listener, error) { return pipenet.Listen(), nil },
		Clock: func() preemption.Moment {
			return preemption.Moment{Wall: time.Now(), Boot: m.booted.String(), SinceBoot: time.Since(m.booted)}
		},
	})
	if err != nil {
		m.t.Fatal(err)
	}
	for i, f := range fakes {
		s.actions[i].Action, s.actions[i].again = f, f.again
	}
	if m.source != nil {
		s.notices = preemption.NewWatcher(s.log, s.manual, s.cloud, m.source)
	}
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan error, 1)
	go func() { over <- s.Run(ctx) }()
	m.Sidecar, m.stop = s, func() error { cancel(); return <-over }
}

// end stops the sidecar as SIGTERM does.
func (m *machine) end() {
	m.t.Helper()
	if err := m.stop(); err != nil {
		m.t.Errorf("Run ended with %v, want nil", err)
	}
	m.stop = nil
}

// crash keeps the disk as kill -9 would leave it at this moment, for the next sidecar. The dying one goes on with a disk
// that nobody reads any more.
func (m *machine) crash() {
	m.t.Helper()
	synctest.Wait()
	after := m.cfg.DataDir + "+"
	if err := os.CopyFS(after, os.DirFS(m.cfg.DataDir)); err != nil {
		m.t.Fatal(err)
	}
	m.end()
	m.cfg.DataDir = after
}

// pass lets time go by.
func (m *machine) pass(d time.Duration) {
	m.t.Helper()
	time.Sleep(d)
	synctest.Wait()
}

// told fails the test unless a fake was told exactly these phases.
func (m *machine) told(who string, f *fake, want ...workloads.Phase) []heard {
	m.t.Helper()
	synctest.Wait()
	if got := f.phases(); !slices.Equal(got, want) {
		m.t.Fatalf("%s was told %v, want %v", who, got, want)
	}
	return f.heard()
}

// shortDir is a directory for sockets, whose paths must be short.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "lb")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}
