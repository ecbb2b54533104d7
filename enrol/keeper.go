package enrol

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/lifeboat/lifeboat/certs"
)

const (
	// warnBefore is how long before its end a certificate that could not be renewed is spoken of: a week has a working
	// day in it.
	warnBefore = 7 * 24 * time.Hour
	warnEach   = 24 * time.Hour

	// retryEach is the pause after a renewal that failed. A certificate has half its life left then; near the end it is
	// asked for more often. So it is after one that succeeded, for what an authority gives in its last hour has most of its life behind it.
	retryEach  = time.Hour
	retryLeast = time.Minute
)

// ErrNotOffered is what Ask answers when nobody renews certificates here: they are made by hand.
var ErrNotOffered = errors.New("the coordinator issues no certificates")

// Keeper has an identity's certificate renewed in time, and says so when it cannot be.
type Keeper struct {
	Identity *certs.Identity
	Files    Files
	// Ask sends a request for a certificate (DER) to a coordinator, and returns the certificate and the CAs, both PEM. The
	// certificate that there is says for whom.
	Ask func(ctx context.Context, request []byte) (cert, ca []byte, err error)
	Log *slog.Logger
}

// Run renews once half of the certificate's life is over, give or take a tenth of it, until ctx ends. Connections that
// are open stay; those that follow show the new one.
func (k *Keeper) Run(ctx context.Context) error {
	var warned time.Time
	late := rand.Float64() / 10 // a fleet that was made in one minute is not renewed in one
	for {
		now := time.Now()
		from, until := k.Identity.Begins(), k.Identity.Expires()
		due := halfOf(from, until).Add(time.Duration(late * float64(until.Sub(from))))
		if wait := due.Sub(now); wait > 0 {
			if !sleep(ctx, min(wait, warnEach)) { // in steps: the clock may be moved, and the file by hand
				return nil
			}
			if err := k.Identity.Reload(); err != nil {
				k.Log.Warn("the certificate's files are not in order: what was read before stays in use until a restart", "file", k.Files.Cert, "err", err)
			}
			continue
		}
		err := k.renew(ctx)
		if ctx.Err() != nil {
			return nil
		}
		left, ends := until.Sub(now), k.Identity.Expires()
		silent := now.Sub(warned) < warnEach
		switch {
		case err == nil && ends.After(until):
			k.Log.Info("the certificate was renewed", "name", k.Identity.Name().String(), "until", ends)
		case err == nil && !silent:
			warned = now
			k.Log.Warn("the certificate was renewed but ends no later, as the CA ends then and nobody will talk to this process any more: add a CA that follows it",
				"file", k.Files.CA, "until", ends, "left", left.Round(time.Minute))
		case err != nil && left <= warnBefore && !silent:
			warned = now
			k.Log.Warn("the certificate ends soon and is not renewed: nobody will talk to this process then", "file", k.Files.Cert,
				"until", until, "left", left.Round(time.Minute), "err", err)
		case err != nil && !errors.Is(err, ErrNotOffered):
			k.Log.Info("the certificate was not renewed yet", "until", until, "err", err)
		}
		if !sleep(ctx, min(retryEach, max(left/10, retryLeast))) {
			return nil
		}
	}
}

func (k *Keeper) renew(ctx context.Context) error {
	if err := k.Identity.Reload(); err == nil && time.Now().Before(halfOf(k.Identity.Begins(), k.Identity.Expires())) {
		return nil // somebody else put a new one there
	}
	key, err := certs.NewKey(k.Files.Key)
	if err != nil {
		return err
	}
	request, err := certs.Request(key)
	if err != nil {
		return err
	}
	asking, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	cert, ca, err := k.Ask(asking, request)
	if err != nil {
		return err
	}
	if err := certs.Write(k.Files.CA, k.Files.Cert, ca, cert); err != nil {
		return err
	}
	return k.Identity.Reload()
}

func halfOf(from, until time.Time) time.Time { return from.Add(until.Sub(from) / 2) }

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
