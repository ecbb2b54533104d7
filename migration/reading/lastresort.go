package reading

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"

	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/lastresort"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// serveFallback serves a block from the fallback. why is why no node served it, which the reader is told if the
// fallback does not have it.
func (rd *Reader) serveFallback(w http.ResponseWriter, req *http.Request, id inventory.BlockID, why error) {
	f := rd.Fallback
	if f == nil {
		refuseRead(w, id, why)
		return
	}
	there, err := f.Open(req.Context(), id)
	var c *content
	if err == nil {
		c = &content{ReadSeekCloser: there, etag: there.ETag, modified: there.Modified}
		err = verifyStart(c)
	}
	switch members, several := errors.AsType[*inventory.MembersError](err); {
	case err == nil:
		w.Header().Set("Lifeboat-Node", f.Peer())
		rd.serve(w, req, id, c)
	case several:
		w.Header().Set("Lifeboat-Node", f.Peer())
		serveMembers(w, members)
	case errors.Is(err, fs.ErrNotExist):
		refuseRead(w, id, why)
	case errors.Is(err, wire.ErrCorrupt), errors.Is(err, lastresort.ErrForgotten):
		if errors.Is(err, wire.ErrCorrupt) {
			rd.Log.Error("a block in the fallback is corrupt and is not served", "block", id, "peer", f.Peer(), "err", err)
		}
		if errors.Is(why, errNeverKnown) {
			why = errLost // it was known, and this was the last of it
		}
		refuseRead(w, id, why)
	default:
		refuseRead(w, id, fmt.Errorf("%w: read %s: %s: %w", errUnreachable, id, f.Peer(), err))
	}
}
