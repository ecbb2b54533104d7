package enrol

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/test/bufconn"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/certs"
)

// town is a fleet's coordinator, as far as machines that join see it.
type town struct {
	dir       string
	authority *certs.Authority
	token     certs.Token
	identity  *certs.Identity

	mu    sync.Mutex
	asked []api.JoinRequest
	// answer, if set, comes in place of a certificate.
	answer func(n int) (code int, no api.JoinRefusal)
}

func newTown(t *testing.T) *town {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "pki")
	if err := certs.InitCA(dir); err != nil {
		t.Fatal(err)
	}
	a, err := certs.LoadAuthority(filepath.Join(dir, "ca.pem"), filepath.Join(dir, "ca.key"))
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := certs.Issue(dir, certs.Name{Role: certs.RoleCoordinator, Name: "c1"}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	id, err := certs.Load(filepath.Join(dir, "ca.pem"), cert, key)
	if err != nil {
		t.Fatal(err)
	}
	return &town{dir: dir, authority: a, token: certs.NewToken(a.Pin()), identity: id}
}

// listen serves until the test ends, and returns how to dial it.
func (w *town) listen(t *testing.T) func(context.Context, string, string) (net.Conn, error) {
	t.Helper()
	l := bufconn.Listen(64 << 10)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ca", func(rw http.ResponseWriter, _ *http.Request) { rw.Write(w.authority.PEM()) })
	mux.HandleFunc("POST /join", w.join)
	server := &http.Server{Handler: mux, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)}
	var serving sync.WaitGroup
	serving.Go(func() {
		server.Serve(door{tls.NewListener(l, w.identity.Door(w.identity.Server([]string{"h2"}, certs.RoleNode), api.JoinProtocol))})
	})
	t.Cleanup(func() {
		server.Close()
		serving.Wait()
	})
	return func(ctx context.Context, _, _ string) (net.Conn, error) { return l.DialContext(ctx) }
}

// door hides what its connections are: net/http speaks no protocol of a name that it does not know.
type door struct{ net.Listener }

func (d door) Accept() (net.Conn, error) {
	conn, err := d.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return struct{ net.Conn }{conn}, nil
}

func (w *town) join(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var asked api.JoinRequest
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		http.Error(rw, err.Error(), http.StatusBadRequest)
		return
	}
	w.asked = append(w.asked, asked)
	if w.answer != nil {
		if code, no := w.answer(len(w.asked)); code != 0 {
			rw.WriteHeader(code)
			json.NewEncoder(rw).Encode(no)
			return
		}
	}
	n := certs.Name{Role: certs.RoleNode, Name: asked.Name}
	cert, err := w.authority.Sign(asked.Request, n, 30*24*time.Hour, nil, nil)
	if err != nil {
		http.Error(rw, err.Error(), http.StatusBadRequest)
		return
	}
	json.NewEncoder(rw).Encode(api.JoinReply{Name: n.String(), Certificate: string(cert), CA: string(w.authority.PEM()), Coordinators: []string{"10.0.0.1:7411"}})
}

func (w *town) config(t *testing.T) Config {
	return Config{
		Coordinators: []string{"c1:7411"}, Name: "host-a", Pin: w.token.Pin, Token: w.token.String(),
		Files: In(t.TempDir()), Dial: w.listen(t),
	}
}

// joined has a machine join, and returns its files and identity.
func (w *town) joined(t *testing.T) (Files, *certs.Identity) {
	t.Helper()
	cfg := w.config(t)
	if _, err := Join(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	id, err := certs.Load(cfg.Files.CA, cfg.Files.Cert, cfg.Files.Key)
	if err != nil {
		t.Fatal(err)
	}
	return cfg.Files, id
}

// A machine with only a token and an address gets a certificate, and never sends its key.
func TestJoin(t *testing.T) {
	w := newTown(t)
	cfg := w.config(t)
	reply, err := Join(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	id, err := certs.Load(cfg.Files.CA, cfg.Files.Cert, cfg.Files.Key)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := id.Name(), (certs.Name{Role: certs.RoleNode, Name: "host-a"}); got != want || reply.Name != want.String() {
		t.Errorf("got %q and a certificate of %q, want %q", reply.Name, got, want)
	}
	key, err := os.ReadFile(cfg.Files.Key)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(w.asked[0].Request), string(key[40:80])) || w.asked[0].Token != w.token.String() {
		t.Errorf("got request %+v, want the token and no key", w.asked[0])
	}
}

// A machine does not send its token to another fleet than the one that made it.
func TestJoinTellsNoStranger(t *testing.T) {
	w := newTown(t)
	cfg := w.config(t)
	cfg.Pin = newTown(t).token.Pin
	ctx, cancel := context.WithCancel(t.Context())
	cfg.Trouble = func(error) { cancel() }
	_, err := Join(ctx, cfg)
	if err == nil || !strings.Contains(err.Error(), "another fleet") {
		t.Errorf("got error %v, want one that says that this is another fleet", err)
	}
	if len(w.asked) > 0 {
		t.Error("the token was sent to a stranger")
	}
}

// The address of a replaced coordinator may belong to another fleet by now: the machine asks the other addresses.
func TestJoinGoesPastAStranger(t *testing.T) {
	w, other := newTown(t), newTown(t)
	cfg := w.config(t)
	cfg.Coordinators = []string{"c1:7411", "c2:7411"}
	ours, theirs := cfg.Dial, other.listen(t)
	cfg.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		if address == "c1:7411" {
			return theirs(ctx, network, address)
		}
		return ours(ctx, network, address)
	}
	if _, err := Join(t.Context(), cfg); err != nil || len(other.asked) > 0 {
		t.Errorf("got %v, and the stranger was sent %d requests: want to be let in by the other, and none", err, len(other.asked))
	}
	cfg.Coordinators = []string{"c1:7411", "c1:7411"}
	if _, err := Join(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "another fleet") {
		t.Errorf("by strangers alone: got %v, want to be told", err)
	}
}

// While one CA replaces another, a token may have the pin of the old CA, which no coordinator has any more: the error says what to do.
func TestJoinWithATokenOfTheCABefore(t *testing.T) {
	w, before := newTown(t), newTown(t)
	cfg := w.config(t)
	cfg.Pin, cfg.Token = before.token.Pin, before.token.String()
	both := append(bytes.Clone(w.authority.PEM()), before.authority.PEM()...)
	if err := os.WriteFile(filepath.Join(w.dir, "ca.pem"), both, 0o644); err != nil {
		t.Fatal(err)
	}
	var err error
	if w.authority, err = certs.LoadAuthority(filepath.Join(w.dir, "ca.pem"), filepath.Join(w.dir, "ca.key")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cfg.Trouble = func(error) { cancel() }
	if _, err := Join(ctx, cfg); !errors.Is(err, errFollowed) || len(w.asked) > 0 {
		t.Errorf("got %v and %d requests, want %v and none", err, len(w.asked), errFollowed)
	}
}

// A coordinator without the CA's key, or an agent's port, refuses the handshake: the error says why.
func TestJoinWhereNobodyJoins(t *testing.T) {
	for name, protos := range map[string][]string{"other names": {"h2"}, "no names": nil} {
		t.Run(name, func(t *testing.T) {
			w := newTown(t)
			cfg := w.config(t)
			cfg.Dial = func(context.Context, string, string) (net.Conn, error) {
				near, far := net.Pipe()
				go io.Copy(io.Discard, tls.Server(far, w.identity.Server(protos, certs.RoleNode))) // ends with near
				return near, nil
			}
			ctx, cancel := context.WithCancel(t.Context())
			cfg.Trouble = func(error) { cancel() }
			if _, err := Join(ctx, cfg); !errors.Is(err, errNobodyJoins) {
				t.Errorf("got %v, want %v", err, errNobodyJoins)
			}
		})
	}
}

// With a wrong port, or an address where nothing listens, the error says that, and not only that time ran out.
func TestJoinTellsOfAnotherPort(t *testing.T) {
	for name, c := range map[string]struct {
		answers func(net.Conn)
		want    error
	}{
		"plain HTTP": {func(far net.Conn) {
			go io.Copy(io.Discard, far)
			io.WriteString(far, "HTTP/1.0 400 Bad Request\r\n\r\n")
		}, errNobodyJoins},
		"silence": {func(far net.Conn) { io.Copy(io.Discard, far) }, errSilent},
		"a closed door": {func(far net.Conn) {
			far.Read(make([]byte, 4096))
			far.Close()
		}, io.EOF},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := newTown(t).config(t)
				cfg.Dial = func(context.Context, string, string) (net.Conn, error) {
					near, far := net.Pipe()
					go c.answers(far)
					return near, nil
				}
				ctx, cancel := context.WithTimeoutCause(t.Context(), 45*time.Second, errors.New("enough"))
				defer cancel()
				cfg.Trouble = func(err error) {
					if !errors.Is(err, c.want) {
						t.Errorf("got %v, want %v", err, c.want)
					}
					if !strings.Contains(err.Error(), "7411") || strings.Contains(err.Error(), "EOF") {
						t.Errorf("got %v, want the usual port, and no word of Go's", err)
					}
				}
				if _, err := Join(ctx, cfg); !errors.Is(err, c.want) || !strings.HasSuffix(err.Error(), "(enough)") {
					t.Errorf("got %v, want to hear why it failed, and why no more is tried", err)
				}
			})
		})
	}
}

// Time runs out amid an attempt: the error has what the attempt before met, and not only that.
func TestJoinThatIsCutShortTellsWhatWasWrong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := newTown(t).config(t)
		cut, cancel := context.WithCancelCause(t.Context())
		tried := 0
		cfg.Dial = func(context.Context, string, string) (net.Conn, error) {
			if tried++; tried > 1 {
				cancel(errors.New("enough"))
			}
			return nil, errors.New("no route to host")
		}
		if _, err := Join(cut, cfg); err == nil || !strings.HasSuffix(err.Error(), "no route to host (enough)") {
			t.Errorf("got %v, want what was wrong, and why no more is tried", err)
		}
	})
}

// Each of several coordinators fails for its own reason, and the error has all of them.
func TestJoinTellsWhyEachGaveNone(t *testing.T) {
	w := newTown(t)
	cfg := w.config(t)
	cfg.Coordinators = []string{"a:1", "b:2"}
	cfg.Dial = func(_ context.Context, _, at string) (net.Conn, error) { return nil, errors.New("no way to " + at) }
	ctx, cancel := context.WithCancel(t.Context())
	tried := 0
	cfg.Trouble = func(error) {
		if tried++; tried == 2 {
			cancel()
		}
	}
	if _, err := Join(ctx, cfg); err == nil || !strings.Contains(err.Error(), "join at b:2: no way to b:2; join at a:1: no way to a:1") {
		t.Errorf("got %v, want why of each", err)
	}
}

// After a temporary failure the machine asks again, with the same key. If a follower names the leader it asks that at once. A final refusal
// ends it.
func TestJoinInsists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t)
		w.answer = func(n int) (int, api.JoinRefusal) {
			switch {
			case n <= 3:
				return http.StatusServiceUnavailable, api.JoinRefusal{Error: "there is no leader now"}
			case n == 4:
				return http.StatusMisdirectedRequest, api.JoinRefusal{Error: "c1 does not lead", Leader: "c2:7411"}
			}
			return 0, api.JoinRefusal{}
		}
		cfg := w.config(t)
		dial := cfg.Dial
		var dialled []string
		cfg.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			dialled = append(dialled, address)
			return dial(ctx, network, address)
		}
		troubles := 0
		cfg.Trouble = func(error) { troubles++ }
		began := time.Now()
		if _, err := Join(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
		if troubles != 3 {
			t.Errorf("told of trouble %d times, want 3: that another leads is none", troubles)
		}
		if got := time.Since(began); got < 3*time.Second || got > 8*time.Second {
			t.Errorf("took %s, want three pauses of 1, 2 and 4 s or up to half less", got)
		}
		if got := dialled[len(dialled)-1]; got != "c2:7411" {
			t.Errorf("asked %s last, want the leader c2:7411", got)
		}
		for _, r := range w.asked {
			if string(r.Request[:80]) != string(w.asked[0].Request[:80]) {
				t.Error("another key in a repeated request")
			}
		}

		w.answer = func(int) (int, api.JoinRefusal) {
			return http.StatusForbidden, api.JoinRefusal{Error: "the token was used up"}
		}
		asked := len(w.asked)
		_, err := Join(t.Context(), cfg)
		if no, ok := errors.AsType[Refused](err); !ok || no.Why != "the token was used up" || len(w.asked) != asked+1 {
			t.Errorf("got error %v after %d requests, want the refusal after one", err, len(w.asked)-asked)
		}
	})
}

// A coordinator that was elected and does not lead yet names itself as leader, and for a moment two may name each other: the machine waits
// before it asks again.
func TestJoinWaitsForALeaderThatTakesOver(t *testing.T) {
	for what, named := range map[string][]string{"itself": {"c1:7411"}, "each other": {"c1:7411", "c2:7411"}} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newTown(t)
				began := time.Now()
				w.answer = func(n int) (int, api.JoinRefusal) {
					if n < 100 && time.Since(began) < 3*time.Second {
						return http.StatusServiceUnavailable, api.JoinRefusal{Error: "this coordinator does not lead", Leader: named[n%len(named)]}
					}
					return 0, api.JoinRefusal{}
				}
				if _, err := Join(t.Context(), w.config(t)); err != nil || len(w.asked) > 8 {
					t.Errorf("got %v after %d requests in %s, want a pause between them", err, len(w.asked), time.Since(began))
				}
			})
		})
	}
}

// keep runs a keeper until the test ends.
func keep(t *testing.T, k *Keeper) {
	var running sync.WaitGroup
	running.Go(func() { k.Run(t.Context()) })
	t.Cleanup(running.Wait)
}

// Half a year of a machine whose certificates last a month: they are renewed at half their life, through an outage of ten days, and none
// ends before the next is there.
func TestKeeperRenews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t)
		files, id := w.joined(t)
		var renewed atomic.Int64
		var away atomic.Bool
		k := &Keeper{Identity: id, Files: files, Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
		k.Ask = func(_ context.Context, request []byte) (cert, ca []byte, err error) {
			if away.Load() {
				return nil, nil, errors.New("the coordinator is away")
			}
			renewed.Add(1)
			cert, err = w.authority.Sign(request, id.Name(), 30*24*time.Hour, nil, nil)
			return cert, w.authority.PEM(), err
		}
		keep(t, k)
		for day := range 180 {
			time.Sleep(24 * time.Hour)
			away.Store(day >= 108 && day < 118) // the eighth renewal would be in these
			if left := time.Until(id.Expires()); left < 24*time.Hour {
				t.Fatalf("day %d: %s left", day, left)
			}
		}
		if got := renewed.Load(); got < 9 || got > 12 {
			t.Errorf("got %d renewals in half a year, want about ten", got)
		}
	})
}

// A coordinator whose clock is hours ahead makes certificates that begin hours from now. They must not take the place of the good one, or a
// restart meanwhile would find none; once the clock is right the renewal succeeds.
func TestKeeperKeepsTheGoodCertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t)
		files, id := w.joined(t)
		ca, err := tls.LoadX509KeyPair(filepath.Join(w.dir, "ca.pem"), filepath.Join(w.dir, "ca.key"))
		if err != nil {
			t.Fatal(err)
		}
		first := id.Expires()
		var ahead atomic.Int64 // hours
		ahead.Store(5)
		k := &Keeper{Identity: id, Files: files, Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
		k.Ask = func(context.Context, []byte) (cert, cas []byte, err error) {
			theirs := time.Now().Add(time.Duration(ahead.Load()) * time.Hour)
			next := *id.Leaf()
			next.NotBefore, next.NotAfter = theirs.Add(-time.Hour), theirs.Add(30*24*time.Hour)
			der, err := x509.CreateCertificate(rand.Reader, &next, ca.Leaf, next.PublicKey, ca.PrivateKey)
			return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), w.authority.PEM(), err
		}
		keep(t, k)
		for range 20 * 24 { // half of the life is 15 days
			time.Sleep(time.Hour)
			if _, err := certs.Load(files.CA, files.Cert, files.Key); err != nil {
				t.Fatalf("a restart would fail: %v", err)
			}
		}
		if !id.Expires().Equal(first) {
			t.Errorf("got a certificate until %s, want the first one until the clock is right", id.Expires())
		}
		ahead.Store(0)
		time.Sleep(2 * time.Hour)
		if !id.Expires().After(first) {
			t.Error("the certificate was not renewed two hours after the clock was put right")
		}
	})
}

// The last certificates of a CA end when it does, so that half of their life is over sooner and sooner; in the CA's last hour it is over when
// they are made, since they begin an hour earlier. A fleet that asked without a pause then would bring down the coordinator that it needs.
func TestKeeperIsCalmWhileTheCAEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t)
		files, id := w.joined(t)
		ends := id.Expires().Add(20 * 24 * time.Hour)
		said := make(chan string, 1000)
		var renewed atomic.Int64
		k := &Keeper{Identity: id, Files: files, Log: slog.New(slog.NewTextHandler(lines(said), nil))}
		k.Ask = func(ctx context.Context, request []byte) (cert, ca []byte, err error) {
			if renewed.Add(1) == 1000 {
				<-ctx.Done()
			}
			cert, err = w.authority.Sign(request, id.Name(), min(30*24*time.Hour, time.Until(ends)), nil, nil)
			return cert, w.authority.PEM(), err
		}
		keep(t, k)
		time.Sleep(time.Until(ends))
		if n := renewed.Load(); n < 5 || n > 60 {
			t.Errorf("got %d renewals until the CA ended, want some dozens", n)
		}
		warned := 0
		for range len(said) {
			if line := <-said; strings.Contains(line, "the CA ends") {
				warned++
			}
		}
		if warned < 3 || warned > 8 {
			t.Errorf("got %d warnings that the CA ends, want a few in its last weeks", warned)
		}
	})
}

// Files that an operator puts there long before the time to renew, above all the next CA, are loaded within a day or so.
func TestKeeperTakesUpWhatIsPutThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, next := newTown(t), newTown(t)
		files, id := w.joined(t)
		k := &Keeper{Identity: id, Files: files, Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
		k.Ask = func(context.Context, []byte) (cert, ca []byte, err error) { return nil, nil, ErrNotOffered }
		keep(t, k)
		time.Sleep(time.Hour)
		if err := os.WriteFile(files.CA, append(w.authority.PEM(), next.authority.PEM()...), 0o644); err != nil {
			t.Fatal(err)
		}
		time.Sleep(25 * time.Hour)
		now, err := id.Server([]string{"h2"}, certs.RoleNode).GetConfigForClient(nil)
		if err != nil {
			t.Fatal(err)
		}
		both := x509.NewCertPool()
		both.AppendCertsFromPEM(append(w.authority.PEM(), next.authority.PEM()...))
		if !now.ClientCAs.Equal(both) {
			t.Error("a day later the CA that was put beside the other is not known")
		}
	})
}

// The keeper does not wait until its certificate has ended for a coordinator that takes a request and never answers, as with a disk that
// hangs.
func TestKeeperAsksAgainWhereNobodyAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t)
		files, id := w.joined(t)
		ends := id.Expires()
		var asked atomic.Int64
		k := &Keeper{Identity: id, Files: files, Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
		k.Ask = func(ctx context.Context, request []byte) (cert, ca []byte, err error) {
			if asked.Add(1) == 1 {
				<-ctx.Done()
				return nil, nil, ctx.Err()
			}
			cert, err = w.authority.Sign(request, id.Name(), 30*24*time.Hour, nil, nil)
			return cert, w.authority.PEM(), err
		}
		keep(t, k)
		time.Sleep(29 * 24 * time.Hour)
		if asked.Load() < 2 || !id.Expires().After(ends) {
			t.Errorf("a day before the end it was asked %d times, and the certificate is good until %s: want a new one", asked.Load(), id.Expires())
		}
	})
}

// The end of a certificate that was made by hand is logged once a day in its last week, and not before.
func TestKeeperWarns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t)
		files, id := w.joined(t)
		said := make(chan string, 100)
		k := &Keeper{Identity: id, Files: files, Log: slog.New(slog.NewTextHandler(lines(said), nil))}
		k.Ask = func(context.Context, []byte) (cert, ca []byte, err error) { return nil, nil, ErrNotOffered }
		keep(t, k)
		time.Sleep(22 * 24 * time.Hour)
		if len(said) > 0 {
			t.Errorf("eight days before the end: got %q, want nothing said", <-said)
		}
		time.Sleep(4 * 24 * time.Hour)
		if got := len(said); got < 3 || got > 4 {
			t.Errorf("got %d warnings in three days, want one a day", got)
		}
		if line := <-said; !strings.Contains(line, "ends soon") {
			t.Errorf("got %q, want a warning that it ends soon", line)
		}
	})
}

type lines chan string

func (l lines) Write(p []byte) (int, error) {
	l <- string(p)
	return len(p), nil
}
