// Package enrol gets a machine its certificate and keeps it valid: Join obtains the first one with a token or a cloud's
// document, Keeper has it renewed before it expires.
//
// The machine's key is made on the machine and never leaves it. The coordinator decides which name the machine may have. The machine
// trusts a fleet by the pin of its CA alone, and sends the token only to a coordinator of that CA. The package starts no daemon and
// writes no settings.
package enrol

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/await"
	"github.com/lifeboat/lifeboat/certs"
)

const (
	// askLimit bounds one attempt at one coordinator.
	askLimit = 10 * time.Second
	// maxAnswer is far more than a chain of certificates.
	maxAnswer = 1 << 20

	backoffFirst = time.Second
	backoffMost  = 30 * time.Second
)

// Files are where a machine keeps its certificate.
type Files struct{ CA, Cert, Key string }

// In are the usual files in a data_dir.
func In(dataDir string) Files {
	dir := filepath.Join(dataDir, "tls")
	return Files{filepath.Join(dir, "ca.pem"), filepath.Join(dir, "node.pem"), filepath.Join(dir, "node.key")}
}

// Config is what it takes to join.
type Config struct {
	Coordinators []string // host:port each; those that do not lead name the leader
	Name         string   // the name that the machine asks for
	Pin          certs.Pin
	Token        string // empty: join by Document
	// Document gets the cloud's document on this machine. key is the machine's public key (SubjectPublicKeyInfo), for clouds that
	// make documents for one key. It is called anew at each attempt, because documents expire. Nil: there is none.
	Document func(ctx context.Context, key []byte) (*api.Document, error)
	Files    Files
	Dial     func(ctx context.Context, network, address string) (net.Conn, error) // nil: a plain net.Dialer
	// Trouble is called with the reason when an attempt fails and will be repeated after a pause; may be nil.
	Trouble func(error)
}

// Refused is a definite no, by a coordinator or by this machine: asking again would change nothing.
type Refused struct{ Why string }

func (r Refused) Error() string { return r.Why }

// errNobodyJoins says that the server at the address does not speak the join protocol: no token would help.
var errNobodyJoins = errors.New("nobody joins there: it is no coordinator's listen.grpc (by default port 7411), or that coordinator has no issue.ca_key")

// errSilent says that nothing answers at the address. The coordinator may not be up yet, or a firewall may drop the packets.
var errSilent = fmt.Errorf("it does not answer in %s: is it up, and does a firewall let us through to its listen.grpc (by default port 7411)?", askLimit)

// errFollowed says that the pinned CA is an old one: the coordinator still hands it out, but its own certificate is of the next CA.
var errFollowed = errors.New("its certificate is of another CA than the one that the token or join.pin names, as after a change of the CA: " +
	"lifeboat token create makes a new token, lifeboat tls pin prints the new pin")

// Join asks the coordinators until one gives the certificate or refuses it, or ctx ends. The certificate is on the disk when Join
// returns. An attempt that was cut short is repeated with the same key, and counts as one.
func Join(ctx context.Context, cfg Config) (*api.JoinReply, error) {
	if len(cfg.Coordinators) == 0 {
		return nil, errors.New("join: no coordinator's address is given")
	}
	key, err := certs.NewKey(cfg.Files.Key)
	if err != nil {
		return nil, fmt.Errorf("join: %w", err)
	}
	request, err := certs.Request(key)
	if err != nil {
		return nil, fmt.Errorf("join: %w", err)
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, fmt.Errorf("join: %w", err)
	}
	j := &joining{Config: cfg, public: public, request: request, last: map[string]error{}}
	led := false // the coordinator asked last was the one that another had named
	for n := 0; ; n++ {
		at := cmp.Or(j.leader, cfg.Coordinators[n%len(cfg.Coordinators)])
		j.leader, j.stranger = "", false
		reply, err := j.ask(ctx, at)
		if err == nil {
			if err := certs.Write(cfg.Files.CA, cfg.Files.Cert, []byte(reply.CA), []byte(reply.Certificate)); err != nil {
				return nil, fmt.Errorf("join: %w", err)
			}
			return reply, nil
		}
		err = fmt.Errorf("join at %s: %w", at, err)
		if before := j.last[at]; before != nil && ctx.Err() != nil {
			err = before // this attempt was cut short: the one before says more
		}
		j.last[at] = err
		if _, refused := errors.AsType[Refused](err); refused && (!j.stranger || n+1 >= len(cfg.Coordinators)) {
			return nil, j.withOthers(at, err)
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%w (%w)", j.withOthers(at, err), context.Cause(ctx))
		}
		if j.leader == at {
			j.leader = "" // the coordinator named itself: it is elected, and has not taken over yet
		}
		if led = j.leader != "" && !led; led {
			continue // ask the leader at once, which is no trouble; one that names another leader in turn may name the first
		}
		if cfg.Trouble != nil {
			cfg.Trouble(err)
		}
		if !await.Sleep(ctx, backoff(n/len(cfg.Coordinators))) {
			return nil, fmt.Errorf("%w (%w)", j.withOthers(at, err), context.Cause(ctx))
		}
	}
}

// backoff is the pause after round n. It doubles from a second to half a minute, with jitter, for images are booted by the hundred.
func backoff(n int) time.Duration {
	d := min(backoffFirst<<min(n, 10), backoffMost)
	return d/2 + rand.N(d/2+1)
}

// withOthers is the error of the coordinator that was asked last, followed by the last errors of the others.
func (j *joining) withOthers(at string, err error) error {
	var others []string
	for _, other := range j.Coordinators {
		if why := j.last[other]; why != nil && other != at {
			others = append(others, why.Error())
		}
	}
	if len(others) == 0 {
		return err
	}
	return fmt.Errorf("%w; %s", err, strings.Join(others, "; "))
}

type joining struct {
	Config
	public   []byte // the public key (SubjectPublicKeyInfo)
	request  []byte
	leader   string           // the leader's address, as the coordinator asked last named it
	last     map[string]error // each coordinator's error when it was last asked
	stranger bool             // the coordinator asked last is of another fleet; the next may be of the right one
}

// ask makes one attempt at one coordinator. It gets the CA from whatever answers there, and sends the token or document only over a second
// connection, on which the server has proven that it is of the pinned CA.
func (j *joining) ask(ctx context.Context, at string) (*api.JoinReply, error) {
	ctx, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	protos := []string{api.JoinProtocol}
	cas, err := j.call(ctx, certs.Unverified(protos), at, http.MethodGet, "/ca", nil)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, errSilent
	}
	if err != nil {
		return nil, err
	}
	ca, err := j.Pin.Pick(cas)
	if err != nil {
		j.stranger = true
		return nil, Refused{err.Error()} // by this machine
	}
	known, err := certs.Newcomer(ca, protos, certs.RoleCoordinator)
	if err != nil {
		return nil, err
	}
	body := api.JoinRequest{Name: j.Name, Request: j.request, Token: j.Token}
	if j.Token == "" && j.Document != nil {
		if body.Document, err = j.Document(ctx, j.public); err != nil {
			return nil, fmt.Errorf("ask the cloud which machine this is: %w", err)
		}
	}
	data, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	answer, err := j.call(ctx, known, at, http.MethodPost, "/join", data)
	if errors.Is(err, certs.ErrNotOurs) {
		return nil, errFollowed
	}
	if err != nil {
		return nil, err
	}
	reply := new(api.JoinReply)
	if err := json.Unmarshal(answer, reply); err != nil {
		return nil, fmt.Errorf("read its answer: %w", err)
	}
	return reply, nil
}

// call makes one request over a connection of its own.
func (j *joining) call(ctx context.Context, config *tls.Config, at, method, path string, body []byte) ([]byte, error) {
	dial := j.Dial
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	transport := &http.Transport{
		DialTLSContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			raw, err := dial(ctx, network, at)
			if err != nil {
				return nil, err
			}
			conn := tls.Client(raw, config)
			err = conn.HandshakeContext(ctx)
			if _, plain := errors.AsType[tls.RecordHeaderError](err); plain {
				return nil, errors.Join(errNobodyJoins, raw.Close())
			}
			// A server that speaks none of the protocols says so in an alert (RFC 7301, 3.2), for which crypto/tls has no error value.
			if err != nil && !strings.HasSuffix(err.Error(), "tls: no application protocol") {
				return nil, errors.Join(err, raw.Close())
			}
			if conn.ConnectionState().NegotiatedProtocol != api.JoinProtocol {
				return nil, errors.Join(errNobodyJoins, conn.Close())
			}
			return conn, nil
		},
		DisableKeepAlives: true,
	}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, method, "https://"+at+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	reply, err := transport.RoundTrip(request)
	if _, network := errors.AsType[*net.OpError](err); network || errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: is it up, and is this its listen.grpc (by default port 7411)?", api.Plain(err))
	}
	if err != nil {
		return nil, err
	}
	defer reply.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(reply.Body, maxAnswer))
	if err != nil {
		return nil, err
	}
	if reply.StatusCode == http.StatusOK {
		return answer, nil
	}
	var no api.JoinRefusal
	if err := json.Unmarshal(answer, &no); err != nil || no.Error == "" {
		return nil, fmt.Errorf("it answered %s", reply.Status)
	}
	j.leader = no.Leader
	if reply.StatusCode < 500 && reply.StatusCode != http.StatusTooManyRequests && no.Leader == "" {
		return nil, Refused{no.Error}
	}
	return nil, errors.New(no.Error)
}
