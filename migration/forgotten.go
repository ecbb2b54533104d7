package migration

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"time"

	"github.com/lifeboat/lifeboat/migration/catalog"
	"github.com/lifeboat/lifeboat/migration/inventory"
)

// DELETE /blocks/{id} is between nodes alone: the node that a block was born on has a holder forget the version that If-Match
// names, as inventory.Tag does.
//
//	204   it is forgotten            404   it is not here
//	403   it is not the asker's      412   another version is here, or comes at this moment
//	503   its disk does not answer

// errNotForgotten says that a holder keeps a copy, and that another attempt would end alike.
var errNotForgotten = errors.New("it is kept")

var (
	errNotOwned = fmt.Errorf("%w: it was born on another node", errNotForgotten)
	errAnother  = fmt.Errorf("%w: another version is here", errNotForgotten)
)

// forget removes a version of a block that landed here, at the word of the node that it was born on.
func (r *Receiver) forget(node string, id inventory.BlockID, tag string) error {
	rec, err := r.cfg.Vault.Catalog.Get(id)
	switch {
	case err != nil:
		return err
	case rec.Origin != node:
		return errNotOwned
	case rec.Tag() != tag:
		return errAnother
	}
	gone, err := r.removeBatch([]catalog.Record{rec}, r.removed("it changed or was deleted on "+node))
	if err == nil && gone.Blocks == 0 {
		err = errAnother
	}
	return err
}

// ServeForget answers DELETE /blocks/{id} from a node.
func (r *Receiver) ServeForget(w http.ResponseWriter, req *http.Request, node string) {
	id, err := inventory.ParseBlockID(strings.TrimPrefix(req.URL.Path, "/blocks/"))
	tag := req.Header.Get("If-Match")
	if err == nil && tag == "" {
		err = errors.New("no If-Match: a version is forgotten, not a block")
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	switch err := r.forget(node, id, tag); {
	case err == nil:
		r.cfg.Log.Debug("a copy that was out of date is removed", "block", id, "from", node)
		w.WriteHeader(http.StatusNoContent)
	case errors.Is(err, fs.ErrNotExist):
		http.Error(w, string(id)+" is not here", http.StatusNotFound)
	case errors.Is(err, errNotOwned):
		http.Error(w, fmt.Sprintf("%s: %v", id, err), http.StatusForbidden)
	case errors.Is(err, errAnother):
		http.Error(w, fmt.Sprintf("%s: %v", id, err), http.StatusPreconditionFailed)
	default:
		http.Error(w, fmt.Sprintf("%s cannot be removed now: %v", id, err), http.StatusServiceUnavailable)
	}
}

// forgetTimeout is for one copy: a holder that takes longer has a disk that hangs.
const forgetTimeout = 2 * time.Second

// Forget has a holder forget a version of a block that was born here. fs.ErrNotExist says that it has none, errNotForgotten
// that it keeps what it has.
func (f *Fetcher) Forget(ctx context.Context, h Holder, id inventory.BlockID, tag string) error {
	ctx, cancel := context.WithTimeout(ctx, forgetTimeout)
	defer cancel()
	return f.forgetAt(ctx, h, id, tag)
}

// ForgetElsewhere has all holders but one forget a version of a block that was born here: that one may have handed it on. What
// another has of the block that is not that version stays.
func (f *Fetcher) ForgetElsewhere(ctx context.Context, but string, id inventory.BlockID, tag string) error {
	ctx, cancel := context.WithTimeout(ctx, forgetTimeout)
	defer cancel()
	at, err := f.Locate(ctx, id, false)
	if err != nil {
		return fmt.Errorf("%w: %w", errUnlocated, err)
	}
	var all error
	for _, h := range at.Holders {
		if h.Node == but {
			continue
		}
		if err := f.forgetAt(ctx, h, id, tag); !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errNotForgotten) {
			all = errors.Join(all, err)
		}
	}
	return all
}

// errUnlocated says that the coordinator does not tell who has a block.
var errUnlocated = errors.New("nobody says who has it")

func (f *Fetcher) forgetAt(ctx context.Context, h Holder, id inventory.BlockID, tag string) error {
	req, err := http.NewRequestWithContext(context.WithValue(ctx, holderKey{}, h), http.MethodDelete, blockURL(h, id), nil)
	if err != nil {
		return err
	}
	req.Header.Set("If-Match", tag)
	req.Header.Set(hopHeader, hopLast)
	resp, err := f.http().Do(req)
	if err != nil {
		return fmt.Errorf("have %s forget %s: %w", h.Node, id, err)
	}
	defer resp.Body.Close()
	why, _ := io.ReadAll(io.LimitReader(resp.Body, 300))
	switch resp.StatusCode {
	case http.StatusNoContent:
		return nil
	case http.StatusNotFound:
		return fs.ErrNotExist
	case http.StatusMethodNotAllowed:
		return fmt.Errorf("%s runs a version that forgets nothing: upgrade it", h.Node)
	case http.StatusForbidden:
		return fmt.Errorf("%s: %s: %w", resp.Status, strings.TrimSpace(string(why)), errNotOwned)
	case http.StatusPreconditionFailed:
		return fmt.Errorf("%s: %s: %w", resp.Status, strings.TrimSpace(string(why)), errAnother)
	}
	return fmt.Errorf("have %s forget %s: %s: %s", h.Node, id, resp.Status, strings.TrimSpace(string(why)))
}
