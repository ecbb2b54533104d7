package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/attest"
	"github.com/lifeboat/lifeboat/await"
	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/config"
	"github.com/lifeboat/lifeboat/enrol"
	"github.com/lifeboat/lifeboat/preemption"
	"github.com/lifeboat/lifeboat/systemd"
)

// Join is how a machine without a certificate gets one by itself: with a token that somebody put into a file, or with a
// document that its cloud signs. Pin is the pin of the fleet's CA; a token brings its own.
type Join struct {
	TokenFile string `yaml:"token_file"`
	Pin       string `yaml:"pin"`
	Cloud     bool   `yaml:"cloud"`
}

func (j Join) set() bool { return j != Join{} }

// tls is where the certificate lies. One that the agent gets for itself lies in data_dir.
func (c *Config) tls() config.TLS {
	if c.Join.set() && c.TLS == (config.TLS{}) {
		return ownTLS(c.DataDir)
	}
	return c.TLS
}

func ownTLS(dataDir string) config.TLS {
	f := enrol.In(dataDir)
	return config.TLS{CA: f.CA, Cert: f.Cert, Key: f.Key}
}

func (c *Config) validateJoin(report config.Report) {
	j := c.Join
	if !j.set() {
		return
	}
	if c.tls() != ownTLS(c.DataDir) {
		report("tls", nil, "cannot stand beside join: what the agent gets for itself lies in "+filepath.Join(c.DataDir, "tls"), "remove one of the two")
	}
	switch {
	case j.TokenFile != "" && j.Cloud:
		report("join.cloud", true, "cannot stand beside join.token_file", "choose one")
	case j.TokenFile == "" && !j.Cloud:
		report("join.cloud", false, "leaves nothing to join by", "set it to true, or name a token_file")
	case j.Cloud && j.Pin == "":
		report("join.pin", nil, "must say whose fleet this machine may believe", "lifeboat tls pin CA.pem prints it")
	case j.Cloud && c.Cloud.Provider == "none":
		report("join.cloud", true, "needs a cloud, and cloud.provider is none", "set cloud.provider to auto")
	}
	if _, err := certs.ParsePin(j.Pin); j.Pin != "" && err != nil {
		report("join.pin", j.Pin, err.Error(), "lifeboat tls pin CA.pem")
	}
}

const (
	// After a definite no, or while there is no token, something must be mended or must arrive. The agent tries again soon,
	// and less often after a while.
	mendFirst = 5 * time.Second
	mendMost  = time.Minute

	// startMore is the start-up time that the agent asks the service manager for with each line about why it takes so long:
	// enrol writes one at least every 50 s, this package every mendMost.
	startMore = 3 * time.Minute
)

// Dialer replaces the network in tests; nil: the real one.
type Dialer func(ctx context.Context, network, address string) (net.Conn, error)

// joinFleet gets a certificate for a machine that has none, however long that takes, and says what it waits for.
func (c Config) joinFleet(ctx context.Context, dial Dialer, log *slog.Logger, why error) error {
	said := ""
	say := func(err error) {
		// Their errors are dropped: the log has it all.
		_ = systemd.Status("waits to be let into the fleet: %v", err)
		_ = systemd.Starting(startMore)
		if err.Error() != said {
			said = err.Error()
			log.Warn("this machine cannot join the fleet yet: it asks again", "err", err)
		}
	}
	log.Info("this machine asks for a certificate", "why", why, "name", c.identity().Name, "coordinators", c.Coordinators, "cloud", c.Join.Cloud, "token_file", c.Join.TokenFile)
	asking, stop := context.WithCancel(ctx)
	defer stop()
	found := func() bool { // its clock was ahead and is right now, or somebody has put a certificate there
		_, err := c.Identity()
		if err == nil {
			stop()
		}
		return err == nil
	}
	for pause := mendFirst; ; pause = min(2*pause, mendMost) {
		_, err := c.ask(asking, dial, func(err error) { say(err); found() })
		switch {
		case err == nil:
			log.Info("this machine has joined the fleet", "name", c.identity().Name, "cert", c.TLS.Cert)
			return nil
		case found():
			log.Info("this machine has a certificate now", "cert", c.TLS.Cert)
			return nil
		case ctx.Err() != nil:
			return err
		}
		say(err)
		if !await.Sleep(ctx, pause-rand.N(pause/4)) {
			return ctx.Err()
		}
	}
}

// ask joins, once there is something to join by.
func (c Config) ask(ctx context.Context, dial Dialer, trouble func(error)) (*api.JoinReply, error) {
	e := enrol.Config{
		Coordinators: c.Coordinators, Name: c.identity().Name, Files: enrol.In(c.DataDir), Dial: dial, Trouble: trouble,
		Document: func(ctx context.Context, key []byte) (*api.Document, error) { return c.document(ctx, dial, key) },
	}
	var err error
	if c.Join.Pin != "" {
		if e.Pin, err = certs.ParsePin(c.Join.Pin); err != nil {
			return nil, fmt.Errorf("join.pin %w", err)
		}
	}
	if c.Join.TokenFile != "" {
		token, err := readToken(c.Join.TokenFile)
		if err != nil {
			return nil, err
		}
		if c.Join.Pin != "" && token.Pin != e.Pin {
			return nil, fmt.Errorf("the token in %s is of another fleet than join.pin", c.Join.TokenFile)
		}
		e.Pin, e.Token = token.Pin, token.String()
	}
	return enrol.Join(ctx, e)
}

// document asks the cloud for its signed document on this machine, bound to this fleet and this key where the cloud can do
// that.
func (c Config) document(ctx context.Context, dial Dialer, key []byte) (*api.Document, error) {
	pin, err := certs.ParsePin(c.Join.Pin)
	if err != nil {
		return nil, fmt.Errorf("join.pin %w", err)
	}
	provider, signed, err := c.Cloud.Document(ctx, dial, preemption.Purpose{Audience: attest.Audience(pin[:], key), Nonce: attest.Nonce(pin[:], key)})
	if err != nil {
		return nil, err
	}
	if provider == "" {
		return nil, errors.New("the machine's firmware names no cloud: set cloud.provider, or join with a token")
	}
	return &api.Document{Provider: provider, Signed: signed}, nil
}

// maxToken is far more than the 97 characters of a token.
const maxToken = 4 << 10

// readToken reads a token from a file. The file stays: it may be a credential of systemd's, or come back with the machine's
// configuration. A token expires by itself.
func readToken(file string) (certs.Token, error) {
	f, err := os.Open(file)
	if err != nil {
		return certs.Token{}, fmt.Errorf("join.token_file: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return certs.Token{}, fmt.Errorf("join.token_file: %w", err)
	}
	if info.Mode().Perm()&0o027 != 0 { // the rule for keys: the group may be the daemon's own
		return certs.Token{}, fmt.Errorf("join.token_file: %s has mode %04o, others may read it: chmod 600 %[1]s", file, info.Mode().Perm())
	}
	data, err := io.ReadAll(io.LimitReader(f, maxToken))
	if err != nil {
		return certs.Token{}, fmt.Errorf("join.token_file: %w", err)
	}
	token, err := certs.ParseToken(string(bytes.TrimSpace(data)))
	if err != nil {
		return certs.Token{}, fmt.Errorf("join.token_file: %s: %w", file, err)
	}
	return token, nil
}
