package reading

import (
	"errors"
	"io"
	"net/http"
	"strconv"

	"github.com/lifeboat/lifeboat/migration/inventory"
)

// serveThrough serves a block from another node. unknown is the answer if no node knows of it. While it is uncertain
// whether the block is here, unknown is also the answer to whatever goes wrong elsewhere.
func (rd *Reader) serveThrough(w http.ResponseWriter, req *http.Request, id inventory.BlockID, unknown error) {
	elsewhere := func(why error) {
		if errors.Is(why, errNeverKnown) || errors.Is(unknown, errUnreachable) {
			why = unknown
		}
		rd.serveFallback(w, req, id, why)
	}
	if rd.Fetch == nil {
		elsewhere(errNeverKnown)
		return
	}
	if redirected, _ := strconv.ParseBool(req.URL.Query().Get("redirect")); redirected {
		holders, _, err := rd.Fetch.resolve(req.Context(), id)
		if err != nil {
			elsewhere(err)
			return
		}
		redirect(w, holders[0], id)
		return
	}
	resp, holder, err := rd.Fetch.open(req.Context(), req.Method, id, req.Header)
	if err != nil {
		elsewhere(err)
		return
	}
	defer resp.Body.Close()
	for _, k := range []string{"Content-Type", "Content-Length", "Content-Range", "Accept-Ranges", "ETag", "Last-Modified", landedHeader} {
		if v := resp.Header.Get(k); v != "" {
			w.Header().Set(k, v)
		}
	}
	w.Header().Set("Lifeboat-Node", holder.Node)
	w.WriteHeader(resp.StatusCode)
	from := &faultReader{Reader: resp.Body}
	if n, err := io.Copy(w, from); err != nil {
		if from.fault != nil && req.Context().Err() == nil { // else it was the reader that went
			rd.Log.Warn("a holder broke off in the middle of a block: what the reader gets ends there", "block", id, "peer", holder.Node, "bytes", n, "err", from.fault)
		}
		// The status is out; the only way left to say that the bytes are incomplete is to cut the connection.
		panic(http.ErrAbortHandler)
	}
}

// faultReader notes why reading ended before the end.
type faultReader struct {
	io.Reader
	fault error
}

func (r *faultReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		r.fault = err
	}
	return n, err
}
