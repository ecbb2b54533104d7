// Package reading brings blocks to readers: from this node's stores and vault, through from the node that has a block, or from the last
// resort. Nodes also use it to ask each other about blocks: who has a block, is it as it was, forget it. A byte is given only if its
// checksum vouches for it, or for an engine's own file that the file has not changed. A block that cannot be had is named as lost, as never
// known or as out of reach now: for the asker those are three different things.
//
// It does not decide who may read. Which node has a block it learns only by asking: the agent gives it the coordinator's
// answers.
//
// The files: reader, own, through, lastresort (what a reader gets), hops, patience (how); fetch, seek, unheard, ask_many (from others);
// where (many at once); home, forget (between nodes alone).
package reading

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/lifeboat/lifeboat/migration/catalog"
	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/lastresort"
	"github.com/lifeboat/lifeboat/migration/vault"
	"github.com/lifeboat/lifeboat/migration/wire"
)

// Reader serves GET and HEAD /blocks/{id} with ranges: from this node's stores and vault, else through from the node that
// has the block, else from the fallback.
//
//	200, 206   the bytes, with a strong ETag
//	300        the id is a map output's: a JSON list of its members
//	307        with ?redirect=true: where the holder serves it
//	404        never known        410  known to be lost: recompute; Lifeboat-Why says why, where it is known
//	503        a node that may have it cannot be asked now; Retry-After says when to try again
//
// POST /blocks/ asks where many blocks are (where.go).
//
// Who may read is decided before a request comes here.
type Reader struct {
	Node   string // the node that it serves
	Stores []*inventory.Store
	Vault  *vault.Vault
	Disks  diskio.Disks // nil: disks are taken to be well, and told nothing
	Fetch  *Fetcher     // nil: only blocks that are here are served
	// Broken is told of blocks that landed here and turn out to be corrupt. Nil: nobody is told.
	Broken func(id inventory.BlockID)
	// Fallback has the blocks that no peer took. Nil: there is no fallback.
	Fallback *lastresort.Storage
	Log      *slog.Logger
}

// content is an open member.
type content struct {
	io.ReadSeekCloser
	etag     string
	born     string // how its ETag began at the node that it was born on; "": unknown
	modified time.Time
	landed   string       // vault or place, if the block landed here
	dir      string       // the directory that it lies in
	disks    diskio.Disks // nil: nothing is told

	mu     sync.Mutex // held while it is read, and guards what follows: http.ServeContent does not wait for who reads it several ranges
	closed bool
	fault  error // of the last read
	bytes  int64
	took   time.Duration
}

// Close tells the disk how much was read and how long that took, and of a fault. It waits for a read that is under way.
func (c *content) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.disks != nil && c.bytes > 0 {
		c.disks.Fetched(c.dir, c.bytes, c.took)
	}
	if c.disks != nil && diskio.IsFault(c.fault) {
		c.disks.Fault(c.dir, c.fault)
	}
	return c.ReadSeekCloser.Close()
}

func (c *content) failed() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.fault
}

func (c *content) Read(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return 0, fs.ErrClosed
	}
	began := time.Now()
	n, err := c.ReadSeekCloser.Read(p)
	c.took += time.Since(began)
	c.bytes += int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		c.fault = err
	}
	return n, err
}

func several(err error) bool {
	_, is := errors.AsType[*inventory.MembersError](err)
	return is
}

func (rd *Reader) ServeHTTP(answer http.ResponseWriter, req *http.Request) {
	w := newPatient(answer)
	defer w.end()
	if req.Method == http.MethodPost && req.URL.Path == "/blocks/" {
		rd.serveWhere(w, req)
		return
	}
	if req.Method != http.MethodGet && req.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		if req.URL.Path == "/blocks/" {
			w.Header().Set("Allow", "POST")
		}
		http.Error(w, "blocks are read with GET or HEAD; POST /blocks/ asks where they are", http.StatusMethodNotAllowed)
		return
	}
	id, err := inventory.ParseBlockID(strings.TrimPrefix(req.URL.Path, "/blocks/"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c, err := rd.open(id)
	if err == nil {
		err = verifyStart(c)
	}
	switch members, several := errors.AsType[*inventory.MembersError](err); {
	case err == nil:
		rd.serve(w, req, id, c)
		return
	case several:
		serveMembers(w, members)
		return
	case !errors.Is(err, fs.ErrNotExist):
		rd.unserved(id, err)
	}
	switch asksAll := req.Header.Get(hopHeader) == ""; {
	case asksAll && (rd.Fetch != nil || rd.Fallback != nil):
		unknown := errNeverKnown
		switch {
		case errors.Is(err, wire.ErrCorrupt):
			unknown = errLost // it was known, and this was the last of it
		case unsure(err):
			unknown = fmt.Errorf("%w: %w", errUnreachable, err)
		}
		rd.serveThrough(w, req, id, unknown)
	case errors.Is(err, wire.ErrCorrupt) && rd.sendOn(w, req, id):
	case !errors.Is(err, wire.ErrCorrupt) && !unsure(err): // also of a directory, a link, an index without its data: asking again is of no use
		http.Error(w, string(id)+" is not here", http.StatusNotFound)
	case diskio.IsSilent(err):
		refuseRead(w, id, err)
	default:
		http.Error(w, fmt.Sprintf("%s cannot be read here: %v", id, err), http.StatusInternalServerError)
	}
}

// unserved logs that a block is here and cannot be read.
func (rd *Reader) unserved(id inventory.BlockID, err error) {
	switch {
	case diskio.IsSilent(err): // that is told once, of the disk: thousands may read from it, and each asks again
	case errors.Is(err, wire.ErrCorrupt):
		rd.Log.Error("a block here is corrupt and is not served", "block", id, "err", err)
		rd.broken(id)
	default:
		rd.Log.Warn("cannot read a block here", "block", id, "err", err)
	}
}

// unsure reports whether an error leaves it open that the block is here: its disk does not answer or is away, the block
// was written anew while we looked, or the system did not let us look.
func unsure(err error) bool {
	errno, of := errors.AsType[syscall.Errno](err)
	return diskio.IsSilent(err) || diskio.IsAway(err) || errors.Is(err, inventory.ErrChanged) || of && !slices.Contains([]syscall.Errno{syscall.ENOENT, syscall.ENOTDIR, syscall.ELOOP, syscall.ENAMETOOLONG}, errno)
}

// landedHeader says of a landed block whether it is a file in its place, where engines find it, or in the vault.
const landedHeader = "Lifeboat-Landed"

func (rd *Reader) serve(w http.ResponseWriter, req *http.Request, id inventory.BlockID, c *content) {
	defer c.Close()
	req = heeding(req, c)
	w.Header().Set("ETag", c.etagFor(req.Header))
	w.Header().Set("Content-Type", "application/octet-stream")
	if c.landed != "" {
		w.Header().Set(landedHeader, c.landed)
	}
	http.ServeContent(w, req, "", c.modified, c)
	switch fault := c.failed(); { // the body was cut short, and the reader sees that
	case fault == nil:
	case errors.Is(fault, inventory.ErrChanged):
		rd.Log.Info("a block was written anew while it was read: a reader is cut off", "block", id)
	default:
		rd.Log.Error("a block cannot be read to its end", "block", id, "err", fault)
		if errors.Is(fault, wire.ErrCorrupt) {
			rd.broken(id)
		}
	}
}

// mostRanges is how many ranges one request may have: each is read with its chunk and checked, so that thousands of a byte each would read
// far more than the block. Beyond it the block is sent whole, as RFC 9110 permits (14.2).
const mostRanges = 100

// beyond matches a place that is behind the end of every block, and more than http.ServeContent can count to: it would call such a range
// invalid, though a range may end behind the end (14.1.2).
var beyond = regexp.MustCompile(`[1-9][0-9]{18,}`)

// heeding returns a request that http.ServeContent answers as RFC 9110 has it. By itself it heeds only the first line of a list of ETags
// (5.3), answers a HEAD with a part (14.2: ranges are of GET alone), refuses units of ranges that it does not know, which are to be ignored,
// gives an empty range of a suffix of nothing and of an empty block (14.1.1, 14.1.2), and gives a part of another version of the same second
// to who says by a date which version it has (13.1.5).
func heeding(req *http.Request, c io.Seeker) *http.Request {
	heeded := *req
	heeded.Header = req.Header.Clone()
	for _, k := range []string{"If-Match", "If-None-Match"} {
		if lines := req.Header[k]; len(lines) > 1 {
			heeded.Header.Set(k, strings.Join(lines, ", "))
		}
	}
	unit, set, asked := strings.Cut(req.Header.Get("Range"), "=")
	if !asked {
		return &heeded
	}
	size, err := c.Seek(0, io.SeekEnd) // ServeContent seeks for itself, and answers for an error
	dated := req.Header.Get("If-Range") != "" && !strings.HasSuffix(req.Header.Get("If-Range"), `"`)
	if req.Method != http.MethodGet || dated || !strings.EqualFold(unit, "bytes") || err == nil && size == 0 || strings.Count(set, ",") >= mostRanges {
		heeded.Header.Del("Range")
		return &heeded
	}
	parts := strings.Split(beyond.ReplaceAllString(set, "999999999999999999"), ",")
	for i, p := range parts {
		if strings.TrimRight(strings.TrimSpace(p), "0") == "-" {
			parts[i] = fmt.Sprintf("%d-", size) // as little is there
		}
	}
	heeded.Header.Set("Range", "bytes="+strings.Join(parts, ","))
	return &heeded
}

// etagFor returns the ETag of a content. A reader that began to read on the node that the block was born on knows the
// ETag that the block had there. If that is the version that landed, the reader gets its own ETag back, so that it may go
// on here.
func (c *content) etagFor(asked http.Header) string {
	for _, k := range []string{"If-Match", "If-Range", "If-None-Match"} {
		for tag := range strings.SplitSeq(asked.Get(k), ",") {
			tag = strings.TrimSpace(tag)
			rest, is := strings.CutPrefix(tag, c.born)
			if ctime, ended := strings.CutSuffix(rest, `"`); c.born != "" && is && ended && strings.Trim(ctime, "0123456789abcdef") == "" {
				return tag
			}
		}
	}
	return c.etag
}

// broken tells Broken of a copy that is no longer whole, by the id that it is on record under.
func (rd *Reader) broken(id inventory.BlockID) {
	if rd.Broken == nil {
		return
	}
	for _, base := range id.OnRecord() {
		if _, err := rd.Vault.Catalog.Get(base); !errors.Is(err, fs.ErrNotExist) {
			rd.Broken(base)
			return
		}
	}
}

func serveMembers(w http.ResponseWriter, e *inventory.MembersError) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusMultipleChoices)
	_ = json.NewEncoder(w).Encode(e)
}

// verifyStart reads the first chunk, so that the commonest corruption is answered with a status and not with a cut.
func verifyStart(c *content) error {
	var b [1]byte
	if _, err := c.Read(b[:]); err != nil && !errors.Is(err, io.EOF) {
		c.Close()
		return err
	}
	_, err := c.Seek(0, io.SeekStart)
	return err
}

func refuseRead(w http.ResponseWriter, id inventory.BlockID, err error) {
	switch {
	case errors.Is(err, errLost):
		words := string(id) + " is lost: recompute it"
		if lost, ok := errors.AsType[*lostError](err); ok && lost.why != "" {
			w.Header().Set("Lifeboat-Why", lost.why)
			words += " (" + lost.why + ")"
		}
		http.Error(w, words, http.StatusGone)
	case errors.Is(err, errNeverKnown):
		http.Error(w, string(id)+" is not known to any node", http.StatusNotFound)
	default:
		w.Header().Set("Retry-After", "1")
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	}
}

// open finds a block's bytes on this node. It asks no disk that does not answer, for nobody could end the wait.
func (rd *Reader) open(id inventory.BlockID) (*content, error) {
	rd.Vault.Watch(rd.Disks)
	for _, s := range rd.Stores {
		s.Watch(rd.Disks)
	}
	c, err := rd.find(id)
	if err == nil {
		c.disks = rd.Disks
	}
	return c, err
}

// find takes the landed copy first, because its checksums are known, unless the block came home and its store has
// another version by now.
func (rd *Reader) find(id inventory.BlockID) (*content, error) {
	store := inventory.StoreOf(rd.Stores, id)
	for _, base := range id.OnRecord() {
		r, err := rd.Vault.Catalog.Get(base)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if r.Outdone(store, rd.Node) {
			break
		}
		c, err := rd.openLanded(store, id, r)
		if errors.Is(err, fs.ErrNotExist) {
			if now, err := rd.Vault.Catalog.Get(base); err == nil && now.Sum != r.Sum {
				return rd.find(id) // another version has landed since
			}
			if store != nil && r.Segment == 0 {
				rd.Vault.Unread.Suspect(base) // an engine removed or replaced its files: readers are sent here in vain
			}
			break
		}
		return rd.orOwn(store, id, r, c, err)
	}
	if store == nil {
		return nil, fs.ErrNotExist
	}
	return openOwn(store, id)
}

// orOwn returns the landed copy if that can be read, else the store's own file: a block that came home may be there, too.
func (rd *Reader) orOwn(s *inventory.Store, id inventory.BlockID, r catalog.Record, c *content, err error) (*content, error) {
	if s == nil || r.Segment == 0 {
		return c, err
	}
	if err == nil {
		c.disks = rd.Disks
		err = verifyStart(c)
	}
	if err == nil || several(err) {
		return c, err
	}
	own, lacks := openOwn(s, id)
	if lacks != nil && !several(lacks) {
		return nil, err
	}
	rd.unserved(id, err)
	return own, lacks
}

func (rd *Reader) openLanded(s *inventory.Store, id inventory.BlockID, r catalog.Record) (*content, error) {
	whole := string(id) == r.ID
	if whole && len(r.Members) > 1 {
		e := &inventory.MembersError{}
		for i, m := range r.Members {
			f, err := rd.Vault.OpenLanded(s, r, i, 0)
			if err != nil {
				return nil, err
			}
			f.Close()
			e.Add(id.Sibling(m.Name), m.Bytes)
		}
		return nil, e
	}
	for i, m := range r.Members {
		if !whole && m.Name != id.Name() {
			continue
		}
		f, err := rd.Vault.OpenLanded(s, r, i, 0)
		if err != nil {
			return nil, err
		}
		c := &content{ReadSeekCloser: f, etag: fmt.Sprintf(`"%s-%d"`, hex.EncodeToString(r.Sum[:]), i), modified: time.Unix(0, r.ModTime), dir: rd.Vault.LandedIn(s, r, i)}
		if c.landed = "place"; r.Segment != 0 {
			c.landed = "vault"
		}
		if len(r.Members) == 1 { // of several, the record has only the newest one's time
			c.born = inventory.TagPrefix(m.Bytes, r.ModTime)
		}
		return c, nil
	}
	return nil, fs.ErrNotExist
}
