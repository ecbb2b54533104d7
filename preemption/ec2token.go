package preemption

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instancedata-data-retrieval.html
const (
	tokenPath   = "/latest/api/token"
	tokenHeader = "X-Aws-Ec2-Metadata-Token"
	ttlHeader   = "X-Aws-Ec2-Metadata-Token-Ttl-Seconds"
	longestTTL  = 21600 // seconds
)

// renewAgain is the pause after a renewal that failed. The old token has half its life left then.
const renewAgain = time.Minute

// tokenEvery is a little longer than a try may last: who waited in vain for its end is told that it failed, and does not make
// another one, of which the next poll would have to wait for the end.
const tokenEvery = askLimit + 100*time.Millisecond

// session stands between the SDK and the wire, and keeps the token, which the SDK would keep by the wall clock, for five
// minutes, and would fetch while a poll waits. What the SDK is given for a token is a word without a meaning.
//
// The SDK reads every body to its end, so its length is capped here. And an answer to the request for a token is never
// taken for one about the thing itself: 404 there is not "no notice".
type session struct {
	wire    http.RoundTripper
	allowV1 bool

	turn    chan struct{} // holds an element while somebody uses what follows
	service *url.URL      // where tokens are had; nil: nothing was asked yet
	asking  asker[token]
	token   string    // "": there is none
	v1      bool      // no token could be had, and asking without one is allowed
	tried   time.Time // when one was last asked for
	failed  error     // why none was had then
	// By the clock that only runs, which a step of the wall clock does not touch. It stands still while the machine sleeps:
	// a token that ran out unseen is refused, and then replaced within the same poll.
	renewAt, expires time.Time

	clock serviceClock
}

func newSession(wire http.RoundTripper, allowV1 bool) *session {
	s := &session{wire: wire, allowV1: allowV1, turn: make(chan struct{}, 1)}
	s.asking = asker[token]{ask: s.put, limit: slowLimit}
	return s
}

// RoundTrip sends what the SDK asks with the token, and once more with a new one if that is refused.
func (s *session) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPut {
		return unmeant(r), nil
	}
	token, err := s.current(r)
	if err != nil {
		return nil, err
	}
	resp, err := s.send(r, token)
	if err != nil || resp.StatusCode != http.StatusUnauthorized {
		return resp, err
	}
	discard(resp)
	if token, err = s.another(r.Context(), token); err != nil {
		return nil, err
	}
	resp, err = s.send(r, token)
	if err == nil && resp.StatusCode == http.StatusUnauthorized {
		discard(resp)
		return nil, errRefused
	}
	return resp, err
}

// errRefused is no answer: the service knows no token, or keeps none.
var errRefused = fmt.Errorf("a new metadata token is refused: %w", &statusError{http.StatusUnauthorized})

// unmeant answers the SDK's own request for a token.
func unmeant(r *http.Request) *http.Response {
	return &http.Response{
		Status: "200 OK", StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{ttlHeader: {strconv.Itoa(longestTTL)}},
		Body:   io.NopCloser(strings.NewReader("kept-elsewhere")),
	}
}

// send asks the service with a token, or without one.
func (s *session) send(r *http.Request, token string) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Del(tokenHeader)
	if token != "" {
		r.Header.Set(tokenHeader, token)
	}
	resp, err := s.wire.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	s.clock.hear(resp)
	resp.Body = &cappedBody{ReadCloser: resp.Body, left: bodyLimit}
	return resp, nil
}

// discard reads what is left of an answer, so that its connection serves again.
func discard(resp *http.Response) {
	io.Copy(io.Discard, resp.Body) // an error costs the connection, no more
	resp.Body.Close()
}

// current is the token to ask with: "" for none.
func (s *session) current(r *http.Request) (string, error) {
	if err := s.lock(r.Context()); err != nil {
		return "", err
	}
	defer s.unlock()
	if s.service == nil {
		s.service = r.URL.ResolveReference(&url.URL{Path: tokenPath})
	}
	if s.v1 || s.token != "" && time.Now().Before(s.expires) {
		return s.token, nil
	}
	err := s.fetch(r.Context())
	if err != nil && s.allowV1 {
		s.token, s.v1, s.renewAt = "", true, time.Now().Add(renewAgain)
		return "", nil
	}
	return s.token, err
}

// another is a token in place of one that was refused.
func (s *session) another(ctx context.Context, refused string) (string, error) {
	if err := s.lock(ctx); err != nil {
		return "", err
	}
	defer s.unlock()
	s.v1 = false
	if s.token != refused && s.token != "" {
		return s.token, nil // somebody was faster
	}
	err := s.fetch(ctx)
	return s.token, err
}

// renew gets the next token at half the life of this one, so that no poll waits for it. That it fails is no trouble as
// long as this one is good, and when it is not, the polls say so.
func (s *session) renew(ctx context.Context) {
	if ctx.Err() != nil || s.lock(ctx) != nil {
		return
	}
	defer s.unlock()
	if s.token == "" && !s.v1 || time.Now().Before(s.renewAt) {
		return
	}
	if s.fetch(ctx) != nil {
		s.renewAt = time.Now().Add(renewAgain)
	}
}

// fetch asks for a token. It does so once in tokenEvery at most, which is once in a poll, however many paths are asked
// there: one that fails, or is refused when it is new, fares no better at the next path. The caller has the turn.
func (s *session) fetch(ctx context.Context) error {
	now := time.Now()
	if !s.tried.IsZero() && now.Sub(s.tried) < tokenEvery {
		if s.failed != nil {
			return s.failed
		}
		return errRefused
	}
	s.tried = now
	limit := askLimit // the caller may wait for longer, but not those who want the turn
	if s.allowV1 {
		limit /= 2 // where the answer does not cross a container's bridge it never comes: that leaves time to ask without
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	got, _, err := s.asking.get(ctx)
	if s.failed = err; err != nil {
		s.failed = fmt.Errorf("get a metadata token: %w", err)
		return s.failed
	}
	s.token, s.v1, s.renewAt, s.expires = got.word, false, now.Add(got.life/2), now.Add(got.life)
	return nil
}

// giveUp ends what still waits for a token.
func (s *session) giveUp() {
	s.turn <- struct{}{}
	defer s.unlock()
	s.asking.giveUp()
}

// token is one, and for how long it is good.
type token struct {
	word string
	life time.Duration
}

// put asks the service for a token.
func (s *session) put(ctx context.Context) (token, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPut, s.service.String(), nil)
	if err != nil {
		return token{}, err
	}
	r.Header.Set(ttlHeader, strconv.Itoa(longestTTL))
	resp, err := s.send(r, "")
	if err != nil {
		return token{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	switch {
	case resp.StatusCode != http.StatusOK:
		return token{}, &statusError{resp.StatusCode}
	case err != nil:
		return token{}, err
	case len(body) == 0 || strings.ContainsFunc(string(body), notOfAToken):
		return token{}, fmt.Errorf("answered %.40q, which is none", body)
	}
	seconds, err := strconv.Atoi(resp.Header.Get(ttlHeader))
	if err != nil {
		seconds = longestTTL // as was asked for; that it is less will show
	}
	return token{string(body), time.Duration(min(max(seconds, 1), longestTTL)) * time.Second}, nil
}

// notOfAToken finds what no header can hold.
func notOfAToken(r rune) bool { return r <= ' ' || r > '~' }

// lock waits for the turn, no longer than ctx.
func (s *session) lock(ctx context.Context) error {
	select {
	case s.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for a metadata token: %w", ctx.Err())
	}
}

func (s *session) unlock() { <-s.turn }
