package reading

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

// DELETE /blocks/{id} is between nodes only: the node that a block was born on has a holder forget the version that If-Match
// names, in the form of inventory.Tag.
//
//	204   it is forgotten            404   it is not here
//	403   it is not the asker's      412   another version is here, or comes at this moment
//	503   its disk does not answer

// ForgetTimeout is for one copy: the disk of a holder that takes longer hangs.
const ForgetTimeout = 2 * time.Second

// Forget has a holder forget a version of a block that was born here. fs.ErrNotExist means that the holder does not have
// the block, catalog.ErrKept that it keeps its copy.
func (f *Fetcher) Forget(ctx context.Context, h Holder, id inventory.BlockID, tag string) error {
	ctx, cancel := context.WithTimeout(ctx, ForgetTimeout)
	defer cancel()
	return f.forgetAt(ctx, h, id, tag)
}

// ForgetElsewhere has all holders except one forget a version of a block that was born here, for that one may have handed it
// on. A holder's copy of another version stays.
func (f *Fetcher) ForgetElsewhere(ctx context.Context, but string, id inventory.BlockID, tag string) error {
	ctx, cancel := context.WithTimeout(ctx, ForgetTimeout)
	defer cancel()
	at, err := f.Locate(ctx, id, false)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnlocated, err)
	}
	var all error
	for _, h := range at.Holders {
		if h.Node == but {
			continue
		}
		if err := f.forgetAt(ctx, h, id, tag); !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, catalog.ErrKept) {
			all = errors.Join(all, err)
		}
	}
	return all
}

// ErrUnlocated says that the coordinator does not tell who has a block.
var ErrUnlocated = errors.New("nobody says who has it")

func (f *Fetcher) forgetAt(ctx context.Context, h Holder, id inventory.BlockID, tag string) error {
	req, err := http.NewRequestWithContext(context.WithValue(ctx, holderKey{}, h), http.MethodDelete, blockURL(h, id), nil)
	if err != nil {
		return err
	}
	req.Header.Set("If-Match", tag)
	req.Header.Set(hopHeader, hopLast)
	resp, err := f.do(req)
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
		return fmt.Errorf("%s: %s: %w", resp.Status, strings.TrimSpace(string(why)), catalog.ErrNotOwned)
	case http.StatusPreconditionFailed:
		return fmt.Errorf("%s: %s: %w", resp.Status, strings.TrimSpace(string(why)), catalog.ErrAnother)
	}
	return fmt.Errorf("have %s forget %s: %s: %s", h.Node, id, resp.Status, strings.TrimSpace(string(why)))
}
