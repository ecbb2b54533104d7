package coordinator

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/lifeboat/lifeboat/accepted"
	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/attest"
	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/coordinator/registry"
)

const (
	// maxJoin bounds the body of a request to join. It is far more than a certificate request, a token and a cloud's document take.
	maxJoin = 64 << 10
	// joinPatience bounds the time of one request of a machine without a certificate.
	joinPatience = 30 * time.Second
)

// Verifier checks a cloud's document and says which machine it is of. key is the machine's public key (SubjectPublicKeyInfo). The error,
// why the machine may not join, is sent to the machine.
type Verifier func(d *api.Document, key []byte) (attest.Machine, error)

// porch serves machines without a certificate that want to join: HTTP at the port for calls, on connections that named
// api.JoinProtocol in their handshake.
type porch struct {
	log     *slog.Logger
	ledger  *ledger
	access  *access
	denials *denials
	quotas  *quotas
	life    time.Duration // of the certificates
	verify  Verifier      // nil: documents open nothing
	*accepted.Listener
}

func newPorch(f *fleet, verify Verifier) *porch {
	return &porch{
		log: f.log, ledger: f.ledger, access: f.access, denials: f.denials, quotas: f.quotas, life: f.cfg.Issue.Life,
		verify: verify, Listener: accepted.At(textAddr(api.JoinProtocol)),
	}
}

// serve answers until ctx ends.
func (p *porch) serve(ctx context.Context) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ca", func(w http.ResponseWriter, _ *http.Request) { w.Write(p.access.authority.PEM()) })
	mux.HandleFunc("POST /join", p.join)
	s := &http.Server{
		Handler: mux, ReadTimeout: joinPatience, WriteTimeout: joinPatience, IdleTimeout: joinPatience, MaxHeaderBytes: 16 << 10, ConnState: accepted.NewStrangers(p.log).Note,
		ErrorLog: slog.NewLogLogger(p.log.Handler(), slog.LevelDebug),
	}
	defer context.AfterFunc(ctx, func() { s.Close() })()
	if err := s.Serve(p.Listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func (p *porch) join(w http.ResponseWriter, r *http.Request) {
	reply, no := p.admitted(w, r)
	if no != nil {
		host, _, _ := net.SplitHostPort(r.RemoteAddr)
		if times := p.denials.count("join from "+host, time.Now()); times > 0 {
			p.log.Warn("a machine was not let in", "from", r.RemoteAddr, "times", times, "why", no.Error())
		}
		answer, code := api.JoinRefusal{Error: no.Error()}, http.StatusForbidden
		switch {
		case errors.Is(no, errFollows), errors.Is(no, errDeposed):
			_, answer.Leader = p.ledger.leader()
			code = http.StatusServiceUnavailable
		case errors.Is(no, errNoLog):
			code = http.StatusServiceUnavailable
		case errors.Is(no, errManyJoin):
			code = http.StatusTooManyRequests // it asks again
		}
		writeJSON(w, code, answer)
		return
	}
	writeJSON(w, http.StatusOK, reply)
}

// admitted issues a certificate to the machine, or says why not.
func (p *porch) admitted(w http.ResponseWriter, r *http.Request) (*api.JoinReply, error) {
	var asked api.JoinRequest
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxJoin))
	if err := d.Decode(&asked); err != nil {
		return nil, fmt.Errorf("read the request: %w", err)
	}
	if _, err := p.ledger.lead(); err != nil {
		return nil, err
	}
	key, err := publicKeyOf(asked.Request)
	if err != nil {
		return nil, err
	}
	j := &registry.Joining{Name: certs.Name{Role: certs.RoleNode, Name: asked.Name}, Key: keySum(key)}
	if err := p.vouch(&asked, key, j); err != nil {
		return nil, err
	}
	if err := j.Name.Check(); err != nil {
		return nil, fmt.Errorf("name %q: %w", asked.Name, err)
	}
	cert, err := p.access.authority.Sign(asked.Request, j.Name, p.life, nil, nil)
	if err != nil {
		return nil, err
	}
	if err := p.write(j); err != nil {
		return nil, err
	}
	reply := &api.JoinReply{Name: j.Name.String(), Certificate: string(cert), CA: string(p.access.authority.PEM())}
	reply.Coordinators = p.ledger.coordinators()
	return reply, nil
}

// write records in the log that the machine has joined. It bounds how often one token is used: a token may be good for any number of
// machines, and may leak.
func (p *porch) write(j *registry.Joining) error {
	who := "token " + j.Token
	if j.Token != "" && !p.quotas.take(who, joinEvery, time.Now()) {
		return errManyJoin
	}
	events, err := p.quotas.do(registry.Command{Do: registry.DoPass, Pass: &registry.Pass{Join: j}})
	if j.Token != "" && (err == nil && len(events) == 0 || undecided(err)) {
		p.quotas.giveBack(who, joinEvery)
	}
	return err
}

// vouch checks the machine's token or its cloud's document, and notes in j which of them it joins by, and with a token the role.
func (p *porch) vouch(asked *api.JoinRequest, key []byte, j *registry.Joining) error {
	switch {
	case asked.Token != "":
		t, err := certs.ParseToken(asked.Token)
		if err != nil {
			return err
		}
		kept, ok := p.access.token(t.ID)
		if !ok || !t.Is(kept.Sum) {
			return registry.ErrNoToken
		}
		j.Token, j.Name.Role = t.ID, kept.Role
		return nil
	case asked.Document == nil:
		return errors.New("nothing says why this machine should join: give a token")
	case p.verify == nil:
		return errors.New("no cloud's documents are believed here: set join in the coordinator's settings, or give a token")
	}
	machine, err := p.verify(asked.Document, key)
	if err != nil {
		return err
	}
	if err := machine.MayBe(asked.Name); err != nil {
		return err
	}
	if j.As = machine.ID; p.access.has(j) {
		return nil
	}
	return machine.Late()
}

// token is a token that has not expired. Whether it has uses left is for the registry to say.
func (ac *access) token(id string) (t registry.JoinToken, ok bool) {
	ac.ledger.view(func(m *registry.Registry) { t, ok = m.Door.Tokens[id] })
	return t, ok && time.Now().Before(t.Expires)
}

// has reports whether the machine has joined before with the same key.
func (ac *access) has(j *registry.Joining) (known bool) {
	ac.ledger.view(func(m *registry.Registry) {
		was, ok := m.Door.Given[j.Name.String()]
		known = ok && was.By == j.As && was.Key == j.Key
	})
	return known
}

// publicKeyOf is the public key of a certificate request (SubjectPublicKeyInfo). It checks no signature: Sign checks that the sender has
// the private key.
func publicKeyOf(request []byte) ([]byte, error) {
	asked, err := x509.ParseCertificateRequest(request)
	if err != nil {
		return nil, fmt.Errorf("request for a certificate: %w", err)
	}
	return asked.RawSubjectPublicKeyInfo, nil
}

// keySum is the SHA-256 by which the log knows a key.
func keySum(publicKeyInfo []byte) string {
	sum := sha256.Sum256(publicKeyInfo)
	return hex.EncodeToString(sum[:])
}
