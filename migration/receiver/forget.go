package receiver

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strings"

	"github.com/lifeboat/lifeboat/migration/catalog"
	"github.com/lifeboat/lifeboat/migration/inventory"
)

// forget removes one version of a landed block when the node that the block was born on says so.
func (r *removal) forget(node string, id inventory.BlockID, tag string) error {
	rec, err := r.cfg.Vault.Catalog.Get(id)
	if err == nil {
		err = catalog.Forgettable(node, tag, rec.Origin, rec.Tag())
	}
	if err != nil {
		return err
	}
	gone, err := r.removeBatch([]catalog.Record{rec}, r.removed("it changed or was deleted on "+node))
	if err == nil && gone.Blocks == 0 {
		err = catalog.ErrAnother
	}
	return err
}

// ServeForget answers DELETE /blocks/{id} from a node.
func (r *removal) ServeForget(w http.ResponseWriter, req *http.Request, node string) {
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
	case errors.Is(err, catalog.ErrNotOwned):
		http.Error(w, fmt.Sprintf("%s: %v", id, err), http.StatusForbidden)
	case errors.Is(err, catalog.ErrAnother):
		http.Error(w, fmt.Sprintf("%s: %v", id, err), http.StatusPreconditionFailed)
	default:
		http.Error(w, fmt.Sprintf("%s cannot be removed now: %v", id, err), http.StatusServiceUnavailable)
	}
}
