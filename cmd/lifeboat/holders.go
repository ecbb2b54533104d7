package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/migration/reading"
)

const (
	// firstByte is how long an agent may take to begin its answer: it may have to fetch the block from another node first.
	firstByte = 30 * time.Second
	// doorPatience is how long a door may take. It looks into its fallback only after it has asked all nodes, of which some may be silent.
	doorPatience = 15 * time.Second
	// doorsAfter is how long to wait for silent nodes before doors are asked as well.
	doorsAfter = time.Second
)

// holder is a node, or this machine's agent, that can be asked for a block.
type holder struct {
	node, address string
	door          bool // it answers for all nodes and for its fallback, as it does to any reader; else for itself alone
	client        *http.Client
}

func (h *holder) String() string {
	if h.address == "" {
		return "the agent of this machine"
	}
	return fmt.Sprintf("%s (%s)", h.node, h.address)
}

func (h *holder) url(id string) string {
	u := url.URL{Scheme: "https", Host: h.address, Path: "/blocks/" + id}
	if h.address == "" {
		u.Scheme, u.Host = "http", "agent"
	}
	return u.String()
}

// nodes makes holders of the nodes that the coordinator named. Each must prove by its certificate that it is the node of that name.
func (r *reach) nodes(named []*api.Holder) ([]*holder, error) {
	id, err := r.identity()
	if err != nil {
		return nil, err
	}
	var out []*holder
	for _, n := range named {
		if err := r.permit(n.GetAddress()); err != nil {
			return nil, err
		}
		tls := id.Client([]string{"http/1.1"}, certs.Name{Role: certs.RoleNode, Name: n.GetNode()})
		out = append(out, &holder{node: n.GetNode(), address: n.GetAddress(), client: blockClient(&http.Transport{
			TLSClientConfig: tls,
			DialContext:     (&net.Dialer{Timeout: dialTimeout}).DialContext,
		})})
	}
	return out, nil
}

// self is this machine's agent, which fetches a block from wherever it is.
func (r *reach) self() *holder {
	path := r.socketPath()
	l := &link{elsewhere: true}
	return &holder{client: blockClient(&http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			conn, err := l.dial(ctx, "unix", path)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", path, l.dialError())
			}
			return conn, nil
		},
	})}
}

// blockClient returns answers as they are: it follows no redirects, unpacks nothing, and uses no web proxy.
func blockClient(t *http.Transport) *http.Client {
	t.DisableCompression = true
	t.DisableKeepAlives = true
	t.ResponseHeaderTimeout = firstByte
	t.TLSHandshakeTimeout = dialTimeout
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// seek asks candidates for the block, and asks doors too if no candidate has it or some stay silent for doorsAfter.
func seek(ctx context.Context, id string, candidates, doors []*holder, enough int) (have []*holder, lost bool, silent error) {
	beside, letBe := context.WithCancel(ctx)
	defer letBe()
	var asking sync.WaitGroup
	probed := make(chan struct{})
	var there []*holder
	var lostThere bool
	var silentThere error
	asking.Go(func() {
		select {
		case <-probed:
		case <-time.After(doorsAfter):
		}
		if beside.Err() == nil {
			there, lostThere, silentThere = beyond(beside, id, doors)
		}
	})
	have, lost, silent = probe(ctx, id, candidates, min(enough, len(candidates)))
	if len(have) > 0 {
		letBe()
	}
	close(probed)
	asking.Wait()
	if len(have) > 0 {
		return have, false, silent
	}
	return there, lost || lostThere, joinErrors([]error{silent, silentThere})
}

// probe asks many nodes for a block and returns those that have it, in the order of candidates. It stops once enough have it. Nodes without
// an answer count neither way; the error silent names them.
func probe(ctx context.Context, id string, candidates []*holder, enough int) (have []*holder, lost bool, silent error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type answer struct {
		asked  bool
		status int
		err    error
	}
	answers := make([]answer, len(candidates))
	var found atomic.Int64
	reading.AskMany(ctx, len(candidates), reading.ProbePatience, func(one context.Context, i int) {
		status, _, err := candidates[i].head(one, id)
		if ctx.Err() != nil && err != nil {
			return // no longer needed
		}
		answers[i] = answer{true, status, err}
		if has(status) && found.Add(1) >= int64(enough) {
			cancel()
		}
	})

	var quiet []error
	for i, a := range answers {
		switch {
		case !a.asked:
		case a.err != nil:
			quiet = append(quiet, fmt.Errorf("ask %s: %w", candidates[i], a.err))
		case has(a.status):
			have = append(have, candidates[i])
		case a.status == http.StatusGone:
			lost = true
		case a.status != http.StatusNotFound:
			quiet = append(quiet, fmt.Errorf("ask %s: %s", candidates[i], statusWords(a.status)))
		}
	}
	return have, lost, joinErrors(quiet)
}

// has reports whether a status says that the block is there. 300 is a map output of several members. 503 is no answer: the
// node would have to ask others, and they are silent.
func has(status int) bool { return status == http.StatusOK || status == http.StatusMultipleChoices }

// beyond asks doors for a block that no node was found to have: it may be in a fallback. It returns the first door that can get the
// block, under the name of what has it; the block is read through the door. Doors without an answer count neither way.
func beyond(ctx context.Context, id string, doors []*holder) (have []*holder, lost bool, silent error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var mu sync.Mutex
	var quiet []error
	reading.AskMany(ctx, len(doors), doorPatience, func(one context.Context, i int) {
		d := doors[i]
		d.door = true
		status, from, err := d.head(one, id)
		mu.Lock()
		defer mu.Unlock()
		switch {
		case len(have) > 0 || ctx.Err() != nil: // another door has answered
		case err != nil:
			quiet = append(quiet, fmt.Errorf("ask %s: %w", d, err))
		case has(status):
			d.node = cmp.Or(from, d.node)
			have = append(have, d)
			cancel()
		case status == http.StatusGone:
			lost = true
		case status != http.StatusNotFound:
			quiet = append(quiet, fmt.Errorf("ask %s: %s", d, statusWords(status)))
		}
	})
	if len(have) > 0 {
		return have, false, nil
	}
	return nil, lost, joinErrors(quiet)
}

// request makes a request for a block. With the header Lifeboat-Hop a node answers for itself alone; doors and this machine's agent are
// asked without it, and look for the block at other nodes too.
func (h *holder) request(ctx context.Context, method, id string) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, h.url(id), nil)
	if err == nil && h.address != "" && !h.door {
		req.Header.Set("Lifeboat-Hop", "1")
	}
	return req, err
}

// head asks whether a holder has a block; from is the node that it would get the block from, if that is another.
func (h *holder) head(ctx context.Context, id string) (code int, from string, err error) {
	req, err := h.request(ctx, http.MethodHead, id)
	if err != nil {
		return 0, "", err
	}
	resp, err := h.client.Do(req)
	if err != nil {
		return 0, "", bare(err)
	}
	resp.Body.Close()
	return resp.StatusCode, resp.Header.Get("Lifeboat-Node"), nil
}

// bare takes off the method and the addresses that net/http and net put before an error, because callers add them.
func bare(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	return api.Plain(err)
}

func statusWords(status int) string {
	if status == http.StatusServiceUnavailable {
		return "answered 503: a node that may have it, or the coordinator, does not answer; try again"
	}
	return strings.ToLower(fmt.Sprintf("answered %d %s", status, http.StatusText(status)))
}

// maxNamed is how many errors joinErrors writes out.
const maxNamed = 5

// joinErrors makes one line of many errors, of which some may be nil; nil: all are.
func joinErrors(errs []error) error {
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if len(errs) == 0 {
		return nil
	}
	var b bytes.Buffer
	for i, err := range errs {
		if i == maxNamed {
			fmt.Fprintf(&b, "; and %d more", len(errs)-i)
			break
		}
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(err.Error())
	}
	return errors.New(b.String())
}
