package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"hash"
	"io"
	"maps"
	"net/http"
	"time"

	"github.com/lifeboat/lifeboat/await"
	"github.com/lifeboat/lifeboat/client"
)

const (
	// resumes bounds how often a read tries other holders without getting a byte. resumePause is the pause between two tries: the
	// coordinator learns within a heartbeat or two which nodes have the block.
	resumes     = 4
	resumePause = 2 * time.Second
)

// resumed reads a block, or the range that was asked for, from one holder after the other: when the cloud takes the node in the middle of
// the read, it goes on with another holder that has the same bytes.
type resumed struct {
	ctx    context.Context
	g      *getter
	id     string
	asked  http.Header // of the request to the first holder
	first  *http.Response
	body   io.ReadCloser
	had    int64     // bytes read so far
	so     hash.Hash // of the bytes read so far
	length int64     // of all that was asked for; negative: the holder did not say
}

func newResumed(ctx context.Context, g *getter, id string, asked http.Header, resp *http.Response) *resumed {
	return &resumed{ctx: ctx, g: g, id: id, asked: asked, first: resp, body: resp.Body, so: sha256.New(), length: resp.ContentLength}
}

func (r *resumed) Close() error { return r.body.Close() }

// Read implements io.Reader.
func (r *resumed) Read(p []byte) (int, error) {
	for tries := 0; ; tries++ {
		n, err := r.body.Read(p)
		r.had += int64(n)
		r.so.Write(p[:n])
		switch {
		case n > 0 || err == nil:
			return n, nil // an error that came with bytes comes again at the next Read
		case r.had == r.length || r.length < 0 || r.g.others == nil || tries == resumes:
			return 0, err
		case tries > 0 && !await.Sleep(r.ctx, resumePause):
			return 0, err
		}
		r.goOn()
	}
}

// goOn looks for a holder that has the rest. If there is none the body stays, and its next Read returns the same error again.
func (r *resumed) goOn() {
	for _, h := range r.g.others(r.ctx, r.id) {
		body := r.rest(h)
		if body == nil {
			body = r.again(h)
		}
		if body != nil {
			r.body.Close()
			r.body = body
			return
		}
	}
}

// rest asks a holder for the missing bytes of the same version. It returns nil if the holder does not have that version.
func (r *resumed) rest(h *holder) io.ReadCloser {
	from := int64(0)
	if said := r.first.Header.Get("Content-Range"); said != "" {
		if n, _ := fmt.Sscanf(said, "bytes %d-", &from); n != 1 {
			return nil
		}
	}
	etag := r.first.Header.Get("ETag")
	if etag == "" {
		return nil
	}
	resp, err := h.open(r.ctx, r.id, http.Header{"Range": {fmt.Sprintf("bytes=%d-%d", from+r.had, from+r.length-1)}, "If-Match": {etag}})
	if err != nil {
		return nil
	}
	if resp.StatusCode != http.StatusPartialContent || resp.Header.Get("ETag") != etag || resp.ContentLength != r.length-r.had {
		resp.Body.Close()
		return nil
	}
	return resp.Body
}

// again asks a holder for everything once more, and returns the body at the point where the read ended. It serves where rest cannot: the
// ETag of a file that was never moved comes from its times, that of a moved one from its bytes, so the two may differ for the same bytes.
// The hash of the bytes up to that point must be that of the bytes read before.
func (r *resumed) again(h *holder) io.ReadCloser {
	resp, err := h.open(r.ctx, r.id, r.asked)
	if err != nil {
		return nil
	}
	so := sha256.New()
	if resp.StatusCode == r.first.StatusCode && resp.ContentLength == r.length && resp.Header.Get("Content-Range") == r.first.Header.Get("Content-Range") {
		if _, err := io.CopyN(so, resp.Body, r.had); err == nil && bytes.Equal(so.Sum(nil), r.so.Sum(nil)) {
			return resp.Body
		}
	}
	resp.Body.Close()
	return nil
}

// open asks a holder for a block. Reading the answer fails when no byte comes for client.DefaultStall.
func (h *holder) open(ctx context.Context, id string, header http.Header) (*http.Response, error) {
	req, err := h.request(ctx, http.MethodGet, id)
	if err != nil {
		return nil, err
	}
	maps.Copy(req.Header, header)
	return client.Ask(h.client, req, client.DefaultStall)
}
