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

	"github.com/lifeboat/lifeboat/client"
)

const (
	// resumes bounds how often a reading goes on elsewhere without a byte in between, and resumePause is between two of them:
	// a coordinator hears within a beat or two who has what.
	resumes     = 4
	resumePause = 2 * time.Second
)

// resumed is what was asked for of a block, from one holder after the other: when one goes in the middle, as a node does
// that the cloud takes, the next goes on that has the same bytes.
type resumed struct {
	ctx    context.Context
	g      *getter
	id     string
	asked  http.Header // of the first holder
	first  *http.Response
	body   io.ReadCloser
	had    int64
	so     hash.Hash // of what was had
	length int64     // of all; negative where the holder did not say it
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
			return n, nil // an error that came with bytes comes again
		case r.had == r.length || r.length < 0 || r.g.others == nil || tries == resumes:
			return 0, err
		case tries > 0 && !sleep(r.ctx, resumePause):
			return 0, err
		}
		r.goOn()
	}
}

// goOn looks for somebody who has the rest. When nobody does the body stays as it is, and says once more why it ended.
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

// rest asks a holder for what is missing of the same version. It returns nil if it has not that.
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

// again asks a holder for all once more: a file that has not moved is of a version by its times, and one that has by its
// bytes. Where those that came before are the same, so far it is what was read.
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

// open asks a holder for a block. Its answer ends when no byte comes for long.
func (h *holder) open(ctx context.Context, id string, header http.Header) (*http.Response, error) {
	req, err := h.request(ctx, http.MethodGet, id)
	if err != nil {
		return nil, err
	}
	maps.Copy(req.Header, header)
	return client.Ask(h.client, req, client.DefaultStall)
}
