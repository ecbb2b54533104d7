package reading

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lifeboat/lifeboat/migration/inventory"
)

// Holder is a node that has a block, or may have it, and where its blocks are read.
type Holder struct {
	Node    string
	Address string
}

// Location is what the coordinator knows of where a block is.
type Location struct {
	Holders    []Holder
	Candidates []Holder // nodes whose stores may have it; only if no holder is known, or none answers
	Next       string   // further candidates come behind this node; empty: these are all
	Unheard    []Holder // LOST nodes that may have it, and may be in reach from here; named with the candidates
	Lost       bool     // its holder is gone, or its node left without it
	Why        string   // why no holder is known although there was one; empty: there never was one
}

// The errors that a read ends with.
var (
	// errNeverKnown: every node that could have the block was asked and none has it (404).
	errNeverKnown = errors.New("no node has it")
	// errLost: the block is known to be lost; recompute it (410).
	errLost = errors.New("it is lost: recompute it")
	// errUnreachable: a node that may have it could not be asked (503): not the same as no.
	errUnreachable = errors.New("a node that may have it cannot be reached now")
)

// hopHeader marks a request that an agent makes for a reader: the agent that receives it answers from what it has, and
// asks nobody else.
const hopHeader = "Lifeboat-Hop"

const (
	// firstByte is how long a holder may take to begin an answer. Readers wait longer, so there is time to ask another
	// holder.
	firstByte = 10 * time.Second
	// holderStall is how long a holder may say nothing amid an answer, as long as readers bear it (client.DefaultStall). An
	// idle connection's Read has begun already: when the connection is used again, more than firstByte of its time is left.
	holderStall = 30 * time.Second
	holderIdle  = 10 * time.Second
)

// Fetcher reads blocks from the nodes that have them.
type Fetcher struct {
	// Locate asks the coordinator where a block is. past: the holders were asked in vain, so the others that may have it
	// are to be named, too.
	Locate func(ctx context.Context, id inventory.BlockID, past bool) (Location, error)
	// LocateMore returns the candidates that come behind one node (Location.Next), and the node behind which there are
	// yet more.
	LocateMore func(ctx context.Context, id inventory.BlockID, after string) (some []Holder, next string, err error)
	// WhoHas asks the coordinator for a holder of each block; a holder without an address: none is known. Nil: the coordinator is not
	// asked.
	WhoHas func(ctx context.Context, ids []inventory.BlockID) ([]Holder, error)
	// Peers are the nodes that this node last heard of. They are asked while the coordinator does not answer. Nil: there are none.
	Peers func() []Holder
	// Dial connects to a holder whose identity it has verified, speaking HTTP/1.1.
	Dial func(ctx context.Context, h Holder) (net.Conn, error)

	once   sync.Once
	client *http.Client

	seeking sync.Mutex // held by a goroutine that asks a whole fleet

	unheard unheard
}

type holderKey struct{}

func (f *Fetcher) http() *http.Client {
	f.once.Do(func() {
		f.client = &http.Client{
			Transport: byNode{&http.Transport{
				DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
					c, err := f.Dial(ctx, ctx.Value(holderKey{}).(Holder))
					if err != nil {
						return nil, err
					}
					return holderConn{c}, nil
				},
				DisableCompression:    true,
				IdleConnTimeout:       holderIdle,
				MaxIdleConns:          256, // a whole fleet may have been asked
				MaxIdleConnsPerHost:   16,  // readers at once that need no handshake each time, such as Spark's driver (examples/spark)
				ResponseHeaderTimeout: firstByte,
			}},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
	})
	return f.client
}

// do sends a request. It takes the URL off an error: callers say themselves who was asked for what.
func (f *Fetcher) do(req *http.Request) (*http.Response, error) {
	resp, err := f.http().Do(req)
	if bare, is := errors.AsType[*url.Error](err); is {
		err = bare.Err
	}
	return resp, err
}

// byNode keeps the idle connections of each node apart. Two nodes may have had one address, and a connection belongs to the node
// whose identity was verified.
type byNode struct{ *http.Transport }

func (t byNode) RoundTrip(req *http.Request) (*http.Response, error) {
	to := req.Clone(req.Context())
	to.Host = cmp.Or(req.Host, req.URL.Host)
	to.URL.Host = req.Context().Value(holderKey{}).(Holder).Node + "@" + req.URL.Host // only idle connections are found by this name
	return t.Transport.RoundTrip(to)
}

// holderConn is a connection to a holder that may stop without a word, as a frozen or cut off machine does. Time in which
// nobody reads from it, because the reader is slow, does not count.
type holderConn struct{ net.Conn }

func (c holderConn) Read(p []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(holderStall)); err != nil {
		return 0, err
	}
	return c.Conn.Read(p)
}

// Close closes idle connections.
func (f *Fetcher) Close() { f.http().CloseIdleConnections() }

// resolve finds nodes that have a block: those that the coordinator knows, else the candidate that says so itself. all: every
// node that may have it was asked.
func (f *Fetcher) resolve(ctx context.Context, id inventory.BlockID) (holders []Holder, all bool, err error) {
	loc, err := f.Locate(ctx, id, false)
	if err != nil {
		if found, _ := f.probe(ctx, id, f.peers()); len(found) > 0 {
			return found, true, nil
		}
		return nil, false, fmt.Errorf("%w: %w", errUnreachable, err) // a node that this one has not heard of may have it
	}
	switch {
	case len(loc.Holders) > 0 && len(loc.Candidates) == 0:
		return loc.Holders, false, nil
	case len(loc.Holders) > 0:
		// The holders are away, perhaps for good. Meanwhile another node may have the block, such as the one that it came
		// from.
		if found, err := f.probe(ctx, id, slices.Concat(loc.Holders, without(loc.Candidates, loc.Holders))); err == nil {
			return found, true, nil
		}
		if found := f.askUnheard(ctx, id, loc.Unheard); len(found) > 0 {
			return found, true, nil
		}
		return loc.Holders, true, nil
	}
	found, err := f.probe(ctx, id, loc.Candidates)
	switch {
	case err != nil && loc.Lost, errors.Is(err, errNeverKnown) && loc.Why != "":
		// Its holder's lease ran out, or no peer took it in time. A node that still lives may have it all the same.
		err = fmt.Errorf("locate %s: %w", id, &lostError{loc.Why})
	case err != nil && loc.Next != "" && ctx.Err() == nil:
		found, err = f.seek(ctx, id, loc.Next, err)
	}
	if err != nil {
		if found := f.askUnheard(ctx, id, loc.Unheard); len(found) > 0 {
			return found, true, nil
		}
	}
	return found, true, err
}

func (f *Fetcher) peers() []Holder {
	if f.Peers == nil {
		return nil
	}
	return f.Peers()
}

// without returns the nodes that are not among others.
func without(nodes, others []Holder) []Holder {
	return slices.DeleteFunc(slices.Clone(nodes), func(h Holder) bool { return slices.Contains(others, h) })
}

// lostError is errLost with the reason, as far as that is known.
type lostError struct{ why string }

func (e *lostError) Error() string { return errLost.Error() }
func (e *lostError) Unwrap() error { return errLost }

func (f *Fetcher) probe(ctx context.Context, id inventory.BlockID, candidates []Holder) ([]Holder, error) {
	return f.probeFor(ctx, id, candidates, ProbePatience, func(Holder) {})
}

// probeFor asks nodes whether they have a block, until one has it. Each gets so long to answer; silent is called with
// nodes that did not.
func (f *Fetcher) probeFor(ctx context.Context, id inventory.BlockID, candidates []Holder, each time.Duration, silent func(Holder)) ([]Holder, error) {
	probing, enough := context.WithCancel(ctx)
	defer enough()
	var mu sync.Mutex
	var found []Holder
	var unasked error
	AskMany(probing, len(candidates), each, func(one context.Context, i int) {
		if probing.Err() != nil {
			return
		}
		h := candidates[i]
		resp, err := f.ask(one, h, http.MethodHead, id, nil, hopLast)
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err != nil:
			unasked = err
			if probing.Err() == nil {
				silent(h)
			}
		case resp.StatusCode == http.StatusOK || resp.StatusCode == http.StatusMultipleChoices:
			resp.Body.Close()
			found = append(found, h)
			enough() // one holder is enough
		default:
			resp.Body.Close()
			if resp.StatusCode != http.StatusNotFound {
				unasked = fmt.Errorf("%s answered %s", h.Node, resp.Status)
			}
		}
	})
	switch {
	case len(found) > 0:
		return found, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case unasked != nil:
		return nil, fmt.Errorf("locate %s: %w: %w", id, errUnreachable, unasked)
	}
	return nil, fmt.Errorf("locate %s: %w", id, errNeverKnown)
}

func blockURL(h Holder, id inventory.BlockID) string {
	u := url.URL{Scheme: "https", Host: h.Address, Path: "/blocks/" + string(id)}
	return u.String()
}

// ask asks one holder. The header's Range and conditions are passed on. The caller closes the body.
func (f *Fetcher) ask(ctx context.Context, h Holder, method string, id inventory.BlockID, header http.Header, hop string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(context.WithValue(ctx, holderKey{}, h), method, blockURL(h, id), nil)
	if err != nil {
		return nil, err
	}
	for _, k := range []string{"Range", "If-Range", "If-None-Match", "If-Match", "If-Modified-Since", "If-Unmodified-Since"} {
		if lines := header[k]; len(lines) > 0 {
			req.Header[k] = lines
		}
	}
	req.Header.Set(hopHeader, hop)
	resp, err := f.do(req)
	if err != nil {
		return nil, fmt.Errorf("read %s from %s: %w", id, h.Node, err)
	}
	return resp, nil
}

// open reads a block from the first holder that serves it. The answer's status is 200, 206, 300, 304, 412 or 416.
func (f *Fetcher) open(ctx context.Context, method string, id inventory.BlockID, header http.Header) (*http.Response, Holder, error) {
	holders, all, err := f.resolve(ctx, id)
	if err != nil {
		return nil, Holder{}, err
	}
	resp, h, err := f.openAny(ctx, method, id, header, holders)
	if err == nil || all || ctx.Err() != nil {
		return resp, h, err
	}
	// The coordinator cannot know yet that these holders do not answer.
	loc, unasked := f.Locate(ctx, id, true)
	if unasked != nil {
		return nil, Holder{}, err
	}
	others, unasked := f.probe(ctx, id, without(slices.Concat(loc.Holders, loc.Candidates), holders))
	if unasked != nil {
		others = f.askUnheard(ctx, id, loc.Unheard)
	}
	if len(others) == 0 {
		return nil, Holder{}, err
	}
	return f.openAny(ctx, method, id, header, others)
}

func (f *Fetcher) openAny(ctx context.Context, method string, id inventory.BlockID, header http.Header, holders []Holder) (*http.Response, Holder, error) {
	var faults []error
	for _, h := range holders {
		resp, err := f.ask(ctx, h, method, id, header, hopFirst)
		if err == nil {
			if other, is := sentOn(resp); is {
				resp.Body.Close()
				h = other
				resp, err = f.ask(ctx, h, method, id, header, hopLast)
			}
		}
		if err != nil {
			faults = append(faults, err)
			continue
		}
		switch resp.StatusCode {
		case http.StatusOK, http.StatusPartialContent, http.StatusMultipleChoices, http.StatusNotModified, http.StatusPreconditionFailed, http.StatusRequestedRangeNotSatisfiable:
			if err := begin(resp); err != nil {
				faults = append(faults, fmt.Errorf("read %s from %s: no first byte: %w", id, h.Node, err))
				continue
			}
			return resp, h, nil
		}
		why, _ := io.ReadAll(io.LimitReader(resp.Body, 300))
		resp.Body.Close()
		faults = append(faults, fmt.Errorf("read %s from %s: %s: %s", id, h.Node, resp.Status, strings.TrimSpace(string(why))))
	}
	return nil, Holder{}, fmt.Errorf("%w: %w", errUnreachable, errors.Join(faults...))
}

// begin waits for an answer's first byte: until then another holder can answer instead.
func begin(resp *http.Response) error {
	late := time.AfterFunc(firstByte, func() { resp.Body.Close() })
	defer late.Stop()
	body := bufio.NewReader(resp.Body)
	if _, err := body.Peek(1); err != nil && !errors.Is(err, io.EOF) {
		resp.Body.Close()
		return err
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{body, resp.Body}
	return nil
}
