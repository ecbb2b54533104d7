package client

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"path"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lifeboat/lifeboat/await"
)

var (
	errEnded    = errors.New("the block was closed") // by its reader
	errNoAgents = errors.New("no agent is given: ask the one of this machine at unix:/run/lifeboat/agent.sock")
)

// BlocksConfig says whom to ask for blocks.
type BlocksConfig struct {
	// Agents are asked in this order until one answers; each answers for the whole fleet. One that did not answer comes last for a
	// while. "unix:" and a socket's path is the agent of this machine; HOST:PORT is any agent's listen.peer.
	Agents []string
	// TLS says who asks, and makes sure that the answer at HOST:PORT comes from a node of the fleet:
	// Identity.Client([]string{"http/1.1"}, certs.Name{Role: certs.RoleNode}).
	TLS *tls.Config
	// Patience is how long to wait for a block that is just being carried; 0: a minute.
	Patience time.Duration
	// Stall is how long to wait for the next byte of a block. Then the rest is asked for again, from another agent if there
	// is one; 0: DefaultStall.
	Stall time.Duration
}

// Blocks reads blocks from wherever they are, and goes on elsewhere when they move. It dials no agent before a block is
// asked for.
type Blocks struct {
	patience time.Duration
	agents   []*door
}

// door is an agent and the way to reach it.
type door struct {
	address string
	base    url.URL
	client  *http.Client
	stall   time.Duration
	rests   atomic.Int64 // until when it is asked after the others, in Unix nanoseconds
}

const (
	dialPatience = 5 * time.Second
	// firstByte is how long an agent may take to answer: it may have to ask others, and to reach a holder that is busy.
	firstByte = 30 * time.Second
	// mostWords is more than an agent says in a refusal.
	mostWords = 4 << 10
	// maxResumes bounds how often one reading goes on elsewhere without a byte in between. It goes on at once the first time, and
	// later after resumePause, in which a restarted agent is back.
	maxResumes  = 3
	resumePause = 2 * time.Second
	// idleConns is how many goroutines at once read without a handshake each time. idleFor is short, for the processes of an app share
	// one name, and an agent bounds how many connections of one name it takes.
	idleConns = 16
	idleFor   = 10 * time.Second
	// restFor is how long an agent that did not answer is asked after all others: its machine may be gone, and else each block would wait
	// for it anew.
	restFor = 30 * time.Second
)

// NewBlocks makes a reader of blocks.
func NewBlocks(cfg BlocksConfig) (*Blocks, error) {
	b := &Blocks{patience: cmp.Or(cfg.Patience, time.Minute)}
	if len(cfg.Agents) == 0 {
		return nil, errNoAgents
	}
	for _, a := range cfg.Agents {
		dialer := &net.Dialer{Timeout: dialPatience}
		t := &http.Transport{
			TLSClientConfig: cfg.TLS, TLSHandshakeTimeout: dialPatience, ResponseHeaderTimeout: firstByte,
			DisableCompression: true, DialContext: dialer.DialContext, MaxIdleConnsPerHost: idleConns, IdleConnTimeout: idleFor,
		}
		d := &door{address: a, base: url.URL{Scheme: "https", Host: a}, stall: cmp.Or(cfg.Stall, DefaultStall)}
		if path, local := strings.CutPrefix(a, "unix:"); local {
			d.base = url.URL{Scheme: "http", Host: "agent"}
			t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return dialer.DialContext(ctx, "unix", path) }
		} else if cfg.TLS == nil {
			return nil, fmt.Errorf("read blocks from %s: agents are reached with mutual TLS: give one, or the socket of this machine's", a)
		}
		d.client = &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
		b.agents = append(b.agents, d)
	}
	return b, nil
}

// Close closes idle connections.
func (b *Blocks) Close() error {
	for _, d := range b.agents {
		d.client.CloseIdleConnections()
	}
	return nil
}

// CheckID returns an error if an id cannot be a block's, so that no agent need be asked.
func CheckID(id string) error {
	if strings.Count(id, "/") < 2 || path.IsAbs(id) || path.Clean(id) != id || strings.HasPrefix(id, "../") {
		return errors.New("no block id: want STORE/SCOPE/NAME, with - for a scope that there is not")
	}
	return nil
}

// Info is what is known of a block before it is read.
type Info struct {
	Bytes int64
	ETag  string // strong: the same for the same bytes wherever they landed
	Node  string // the node that has it, if an agent says so
}

// Stat asks for a block without its bytes.
func (b *Blocks) Stat(ctx context.Context, id string) (Info, error) {
	resp, _, err := b.ask(ctx, 0, http.MethodHead, id, nil)
	if err != nil {
		return Info{}, fmt.Errorf("look for %s: %w", id, err)
	}
	resp.Body.Close()
	return infoOf(resp), nil
}

func infoOf(resp *http.Response) Info {
	return Info{resp.ContentLength, resp.Header.Get("ETag"), resp.Header.Get("Lifeboat-Node")}
}

// Open begins to read a block. The caller reads the Block to its end, or from wherever Seek says, and closes it; ctx holds
// for all of that. While the block is known only to be under way, Open waits, like Stat, for up to BlocksConfig.Patience.
func (b *Blocks) Open(ctx context.Context, id string) (*Block, error) {
	resp, at, err := b.ask(ctx, 0, http.MethodGet, id, nil)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", id, err)
	}
	if resp.ContentLength < 0 {
		resp.Body.Close()
		return nil, fmt.Errorf("read %s: the answer does not say how long it is: its end could not be told from a cut", id)
	}
	return &Block{Info: infoOf(resp), ctx: ctx, from: b, at: at, id: id, body: resp.Body, so: sha256.New()}, nil
}

// ask finds an agent that serves the block, beginning with the agent at first, and waits while the block is being
// carried.
func (b *Blocks) ask(ctx context.Context, first int, method, id string, header http.Header) (resp *http.Response, at int, err error) {
	if err := CheckID(id); err != nil {
		return nil, first, err
	}
	until := time.Now().Add(b.patience)
	for {
		wait := time.Duration(0)
		var inFlight error
		var troubles []error
		for _, at = range b.order(first) {
			d := b.agents[at]
			resp, err := d.ask(ctx, method, id, header)
			flight, carried := errors.AsType[*InFlightError](err)
			switch {
			case err == nil:
				return resp, at, nil
			case carried:
				wait, inFlight = max(wait, flight.Retry), err
			case final(err):
				return nil, at, err
			default:
				if !errors.Is(ctx.Err(), context.Canceled) { // that would say nothing of the agent
					d.rests.Store(time.Now().Add(restFor).UnixNano())
				}
				if ctx.Err() != nil {
					return nil, at, context.Cause(ctx)
				}
				troubles = append(troubles, fmt.Errorf("ask %s: %w", d.address, err))
			}
		}
		if wait == 0 {
			return nil, at, errors.Join(troubles...)
		}
		if time.Now().Add(wait).After(until) {
			return nil, at, inFlight
		}
		if !await.Sleep(ctx, wait) {
			return nil, at, context.Cause(ctx)
		}
	}
}

// order returns in which order the agents are asked, by their indexes.
func (b *Blocks) order(first int) (order []int) {
	var last []int
	now := time.Now().UnixNano()
	for i := range b.agents {
		if at := (first + i) % len(b.agents); b.agents[at].rests.Load() > now {
			last = append(last, at)
		} else {
			order = append(order, at)
		}
	}
	return append(order, last...)
}

// final reports whether no other agent could answer better.
func final(err error) bool {
	_, several := errors.AsType[*MembersError](err)
	return several || errors.Is(err, ErrUnknown) || errors.Is(err, ErrLost) || errors.Is(err, ErrChanged)
}

func (d *door) ask(ctx context.Context, method, id string, header http.Header) (*http.Response, error) {
	u := d.base
	u.Path = "/blocks/" + id
	req, err := http.NewRequestWithContext(ctx, method, u.String(), nil)
	if err != nil {
		return nil, err
	}
	maps.Copy(req.Header, header)
	resp, err := Ask(d.client, req, d.stall)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusPartialContent || resp.StatusCode == http.StatusOK && header.Get("Range") == "" {
		return resp, nil
	}
	defer resp.Body.Close()
	err = Refused(resp)
	_, _ = io.CopyN(io.Discard, resp.Body, min(resp.ContentLength, mostWords)) // a connection of which something is unread is of no use to the next question
	return nil, err
}

// Block is a block that is being read, by one goroutine. When its holder goes, or stands still, the reading goes on at
// another holder if that has the same bytes. It has if its ETag is the same, or if it gives the bytes once more that were
// read so far and they match; then ETag becomes the other's. If they do not match, or a Seek left out bytes that would have
// to be compared, Read returns ErrChanged.
type Block struct {
	Info

	ctx  context.Context
	from *Blocks
	at   int // of from's agents, the one in use
	id   string
	body io.ReadCloser // nil: it has to be asked for at pos
	pos  int64
	err  error

	since int64     // the offset at which the reading began
	so    hash.Hash // of the bytes from since to pos; nil: a Seek left some out
}

// Read implements io.Reader.
func (b *Block) Read(p []byte) (int, error) {
	for tries := 0; ; tries++ {
		switch {
		case b.err != nil:
			return 0, b.err
		case b.pos >= b.Bytes:
			return 0, io.EOF
		case len(p) == 0:
			return 0, nil
		}
		err := b.resume()
		if err == nil {
			var n int
			n, err = b.body.Read(p)
			b.pos += int64(n)
			if b.so != nil {
				b.so.Write(p[:n])
			}
			if n > 0 {
				return n, nil // an error that came with these bytes comes again
			}
			b.stop()
		}
		b.at++ // another agent may do better
		if final(err) || tries == maxResumes || tries > 0 && !await.Sleep(b.ctx, resumePause) || b.ctx.Err() != nil {
			if why := context.Cause(b.ctx); why != nil && !final(err) { // also if ctx ended between two tries
				err = why
			}
			b.err = fmt.Errorf("read %s at byte %d: %w", b.id, b.pos, err)
		}
	}
}

// resume asks for the rest of the block, unless that is being read already.
func (b *Block) resume() error {
	if b.body != nil {
		return nil
	}
	resp, err := b.ask(b.pos, http.Header{"If-Match": {b.ETag}})
	switch {
	case errors.Is(err, ErrChanged) && b.so != nil:
		return b.again()
	case err != nil:
		return err
	}
	b.body = resp.Body
	return nil
}

// again reads the bytes once more that were read so far, and compares them. A file that has not moved has an ETag of
// its times, and one that has moved an ETag of its bytes, so the same bytes may have different ETags.
func (b *Block) again() error {
	resp, err := b.ask(b.since, http.Header{})
	if err != nil {
		return err
	}
	so := sha256.New()
	if _, err = io.CopyN(so, resp.Body, b.pos-b.since); err == nil && !bytes.Equal(so.Sum(nil), b.so.Sum(nil)) {
		err = ErrChanged
	}
	if err != nil {
		resp.Body.Close()
		return err
	}
	b.body, b.ETag = resp.Body, resp.Header.Get("ETag")
	return nil
}

// ask asks for the block from a byte on.
func (b *Block) ask(from int64, header http.Header) (*http.Response, error) {
	header.Set("Range", fmt.Sprintf("bytes=%d-", from))
	resp, at, err := b.from.ask(b.ctx, b.at, http.MethodGet, b.id, header)
	if err != nil {
		return nil, err
	}
	b.at = at
	if want := header.Get("If-Match"); want != "" && resp.Header.Get("ETag") != want || resp.ContentLength != b.Bytes-from {
		resp.Body.Close()
		return nil, ErrChanged
	}
	return resp, nil
}

func (b *Block) stop() {
	if b.body != nil {
		b.body.Close()
		b.body = nil
	}
}

// Seek implements io.Seeker: the next Read asks for the bytes from there.
func (b *Block) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekStart:
	case io.SeekCurrent:
		offset += b.pos
	case io.SeekEnd:
		offset += b.Bytes
	default:
		return 0, fmt.Errorf("seek in %s: from where is %d?", b.id, whence)
	}
	if offset < 0 {
		return 0, fmt.Errorf("seek in %s to byte %d: there is none", b.id, offset)
	}
	if offset != b.pos {
		b.stop()
		if b.pos != b.since {
			b.so = nil
		}
		b.since, b.pos = offset, offset
	}
	return offset, nil
}

// Close ends the reading.
func (b *Block) Close() error {
	b.stop()
	b.err = errEnded
	return nil
}
