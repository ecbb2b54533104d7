package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/enrol"
)

// Enter gives this machine its identity. It claims data_dir for this machine, then reads the certificate or, where there is
// none, joins the fleet to get one, which lasts until a coordinator lets the machine in or ctx ends. Call it before New.
func (c Config) Enter(ctx context.Context, dial Dialer, log *slog.Logger) (*certs.Identity, error) {
	if err := os.MkdirAll(c.DataDir, 0o750); err != nil {
		return nil, fmt.Errorf("data_dir: %w", err)
	}
	here, err := c.moveIn(c.thisMachine(ctx, dial, slog.New(slog.DiscardHandler)), log)
	if err != nil {
		return nil, err
	}
	id, err := c.Identity()
	if c.Join.set() && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, certs.ErrExpired)) {
		if was, err := certs.NameOf(c.TLS.Cert); err == nil && was.Role == certs.RoleNode && c.Node.Name == "" {
			c.Node.Name = was.Name // it stays the same node when its host is renamed
		}
		if err := c.joinFleet(ctx, dial, log, err); err != nil {
			return nil, err
		}
		id, err = c.Identity()
	}
	if err != nil {
		return nil, err
	}
	if key := keySum(id); key != here.Key {
		here.Key = key
		here.write(c.DataDir, log)
	}
	return id, nil
}

// keySum is a checksum by which a key is recognised and that does not reveal it.
func keySum(id *certs.Identity) string {
	sum := sha256.Sum256(id.Leaf().RawSubjectPublicKeyInfo)
	return hex.EncodeToString(sum[:])
}

// keepCertificate renews the certificate in time, or logs that it is about to expire.
func (a *Agent) keepCertificate(ctx context.Context) error {
	t := a.cfg.TLS
	if t.Cert == "" {
		return nil
	}
	k := &enrol.Keeper{
		Identity: a.deps.Identity, Log: a.log, Files: enrol.Files{CA: t.CA, Cert: t.Cert, Key: t.Key},
		Ask: func(ctx context.Context, request []byte) (cert, ca []byte, err error) {
			// An operator renews a certificate in /etc: the unit may not write there.
			if err := unix.Access(filepath.Dir(t.Cert), unix.W_OK); err != nil {
				return nil, nil, fmt.Errorf("%w for %s, which this process may not write (%w): put it into %s", enrol.ErrNotOffered, t.Cert, err, filepath.Join(a.cfg.DataDir, "tls"))
			}
			if a.cfg.Join.set() && time.Now().After(a.deps.Identity.Expires()) {
				return a.joinAgain(ctx)
			}
			cert, ca, err = a.fleet.Renew(ctx, request)
			if status.Code(err) == codes.FailedPrecondition {
				err = fmt.Errorf("%w: %w", enrol.ErrNotOffered, err)
			}
			return cert, ca, err
		},
	}
	return k.Run(ctx)
}

// joinAgain gets a certificate, for the name and the key of the one that has ended, by which no coordinator lets this node in any more. Either
// the coordinators were away for as long as it lasted, or this machine was: one that hibernates runs on where it was.
func (a *Agent) joinAgain(ctx context.Context) (cert, ca []byte, err error) {
	c := a.cfg
	c.Coordinators = slices.Clone(c.Coordinators)
	rand.Shuffle(len(c.Coordinators), func(i, j int) { // ctx may have no time to go on from a silent one: begin with another each time
		c.Coordinators[i], c.Coordinators[j] = c.Coordinators[j], c.Coordinators[i]
	})
	reply, err := c.ask(ctx, a.deps.Dial, nil)
	if err != nil {
		return nil, nil, err
	}
	return []byte(reply.Certificate), []byte(reply.CA), nil
}
