package enrol

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/lifeboat/lifeboat/await"
	"github.com/lifeboat/lifeboat/certs"
)

const (
	// warnBefore is how long before the expiry of a certificate that could not be renewed the warnings begin: a week has a working
	// day in it.
	warnBefore = 7 * 24 * time.Hour
	warnEach   = 24 * time.Hour

	// retryEach is the longest pause, above all after a renewal, failed or not. After a failure half of the certificate's life is left; as less is
	// left, the pauses become shorter. They do after a success too: a certificate that a CA gives in its own last hour is due again soon.
	retryEach  = time.Hour
	retryLeast = time.Minute
)

// ErrNotOffered is the error of Ask if the fleet renews no certificates: they are made by hand.
var ErrNotOffered = errors.New("the coordinator issues no certificates")

// Keeper renews an identity's certificate in time, and warns if it cannot.
type Keeper struct {
	Identity *certs.Identity
	Files    Files
	// Ask sends a certificate request (DER) to a coordinator, and returns the certificate and the CAs, both PEM. The name is that of the
	// present certificate.
	Ask func(ctx context.Context, request []byte) (cert, ca []byte, err error)
	Log *slog.Logger
}

// Run renews the certificate once half of its life is over, and up to a tenth of it later, at random, until ctx ends. Open connections stay;
// later ones show the new certificate.
func (k *Keeper) Run(ctx context.Context) error {
	var warned time.Time
	late := rand.Float64() / 10 // so that a fleet that was made in one minute is not renewed in one minute
	for {
		now := time.Now()
		from, until := k.Identity.Begins(), k.Identity.Expires()
		due := halfOf(from, until).Add(time.Duration(late * float64(until.Sub(from))))
		if wait := due.Sub(now); wait > 0 {
			// In steps: the file may be replaced by hand, and a clock that jumps, as when a machine that hibernates goes on, takes no timer along.
			if !await.Sleep(ctx, min(wait, retryEach)) {
				return nil
			}
			if err := k.Identity.Reload(); err != nil && now.Sub(warned) >= warnEach {
				warned = now
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
		if !await.Sleep(ctx, min(retryEach, max(left/10, retryLeast))) {
			return nil
		}
	}
}

func (k *Keeper) renew(ctx context.Context) error {
	if err := k.Identity.Reload(); err == nil && time.Now().Before(halfOf(k.Identity.Begins(), k.Identity.Expires())) {
		return nil // the file was replaced by hand
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
