package migration

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"net/http"

	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/vault"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// serveFallback is a reader's last hope: no node served the block, because of why.
func (rd *Reader) serveFallback(w http.ResponseWriter, req *http.Request, id inventory.BlockID, why error) {
	f := rd.Fallback
	if f == nil {
		refuseRead(w, id, why)
		return
	}
	c, err := f.open(req.Context(), id)
	if err == nil {
		err = verifyStart(c)
	}
	switch members, several := errors.AsType[*membersError](err); {
	case err == nil:
		w.Header().Set("Lifeboat-Node", f.Peer())
		rd.serve(w, req, id, c)
	case several:
		w.Header().Set("Lifeboat-Node", f.Peer())
		members.serve(w)
	case missing(err):
		refuseRead(w, id, why)
	case errors.Is(err, wire.ErrCorrupt), errors.Is(err, errForgotten):
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

// open finds a block, or a file of one. What has a record is verified by it; what Spark put there itself has none, and
// nothing vouches for its bytes but the storage.
func (f *Fallback) open(ctx context.Context, id inventory.BlockID) (*content, error) {
	for _, base := range id.OnRecord() {
		r, err := f.record(ctx, base)
		if missing(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return f.openRecorded(ctx, id, r)
	}
	if f.Layout == FallbackSpark && inventory.ApplicationDir.MatchString(id.Scope()) && inventory.MapOutput.MatchString(id.Block().Name()) {
		return f.openSparks(ctx, id)
	}
	return nil, fs.ErrNotExist
}

func (f *Fallback) openRecorded(ctx context.Context, id inventory.BlockID, r fallbackRecord) (*content, error) {
	if id == r.ID && len(r.Members) > 1 {
		e := &membersError{}
		for _, m := range r.Members {
			e.add(id.Sibling(m.Name), m.Bytes)
		}
		return nil, e
	}
	for i, name := range r.memberNames() {
		m := r.Members[i]
		if m.Name != id.Name() {
			continue
		}
		get := func(from int64, into []byte) (int, error) { return f.Objects.Get(ctx, name, from, into) }
		return &content{ReadSeekCloser: &fallbackReader{name: name, bytes: m.Bytes, sums: m.Chunks, get: get}, etag: fmt.Sprintf(`"%s-%d"`, r.Sum, i), modified: r.Modified}, nil
	}
	return nil, fs.ErrNotExist
}

// openSparks opens what Spark's own fallback storage put there, as it does since 3.2 or as it did in 3.1. It writes the
// index before the data and renames nothing, so a map output counts only when the two agree.
func (f *Fallback) openSparks(ctx context.Context, id inventory.BlockID) (*content, error) {
	base := id.Block().Name()
	for _, where := range []func(app, name string) string{sparkFallbackName, sparkFirstFallbackName} {
		index, data := base+".index", base+".data"
		bytes, _, _, err := f.Objects.Stat(ctx, where(id.Scope(), index))
		if missing(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		get := func(from int64, into []byte) (int, error) {
			return f.Objects.Get(ctx, where(id.Scope(), index), from, into)
		}
		end, err := inventory.ReadIndex(&fallbackReader{name: index, bytes: bytes, get: get}, bytes)
		if err != nil {
			return nil, fs.ErrNotExist // half written
		}
		e := &membersError{}
		for _, name := range []string{data, index} {
			bytes, tag, at, err := f.Objects.Stat(ctx, where(id.Scope(), name))
			if missing(err) && end == 0 {
				continue // all partitions are empty
			}
			if err != nil {
				return nil, err
			}
			if name == data && bytes != end {
				return nil, fs.ErrNotExist
			}
			e.add(id.Sibling(name), bytes)
			if name == id.Name() {
				get := func(from int64, into []byte) (int, error) {
					return f.Objects.Get(ctx, where(id.Scope(), name), from, into)
				}
				return &content{ReadSeekCloser: &fallbackReader{name: name, bytes: bytes, get: get}, etag: fmt.Sprintf("%q", "fallback-"+tag), modified: at}, nil
			}
		}
		if id.Block() == id {
			return nil, e
		}
	}
	return nil, fs.ErrNotExist
}

// fallbackReader reads a content of the fallback, and lets no byte out before its chunk was verified.
type fallbackReader struct {
	name  string
	bytes int64
	sums  []byte // of each chunk; nil: there are none
	get   func(from int64, into []byte) (int, error)

	pos   int64
	at    int64 // of buf, a multiple of a chunk
	buf   []byte
	ahead int64 // chunks to ask for at once
}

// mostAhead is how much is asked for at once when a content is read through: an answer takes a bucket some 30 ms however
// short it is, and 4 MiB each make that more than 1 Gbit/s.
const mostAhead = 16

func (r *fallbackReader) Read(p []byte) (int, error) {
	if r.pos >= r.bytes {
		return 0, io.EOF
	}
	if r.pos < r.at || r.pos >= r.at+int64(len(r.buf)) {
		if err := r.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(p, r.buf[r.pos-r.at:])
	r.pos += int64(n)
	return n, nil
}

func (r *fallbackReader) fill() error {
	first := r.pos / wire.ChunkBytes
	if first*wire.ChunkBytes == r.at+int64(len(r.buf)) && r.ahead > 0 {
		r.ahead = min(2*r.ahead, mostAhead)
	} else {
		r.ahead = 1
	}
	at := first * wire.ChunkBytes
	size := min(r.ahead*wire.ChunkBytes, r.bytes-at)
	if int64(cap(r.buf)) < size {
		r.buf = make([]byte, size)
	}
	buf := r.buf[:size]
	r.at, r.buf = at, buf[:0]
	n, err := r.get(at, buf)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if int64(n) < size {
		return fmt.Errorf("%s is shorter than it was: %w", r.name, wire.ErrCorrupt)
	}
	for i := int64(0); r.sums != nil && i*wire.ChunkBytes < size; i++ {
		chunk := buf[i*wire.ChunkBytes : min((i+1)*wire.ChunkBytes, size)]
		if crc32.Checksum(chunk, wire.Castagnoli) != binary.BigEndian.Uint32(r.sums[(first+i)*4:]) {
			return fmt.Errorf("%s at byte %d: %w", r.name, at+i*wire.ChunkBytes, wire.ErrCorrupt)
		}
	}
	r.buf = buf
	return nil
}

func (r *fallbackReader) Seek(offset int64, whence int) (int64, error) {
	return vault.Seek(&r.pos, r.bytes, offset, whence)
}

func (r *fallbackReader) Close() error { return nil }
