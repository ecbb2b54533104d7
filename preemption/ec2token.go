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

// renewAgain is the pause after a failed renewal. The old token has half its life left then.
const renewAgain = time.Minute

// tokenEvery is a little longer than a request for a token may last. A poll that waited in vain for that request is told
// that it failed, and makes no second one, for whose end the next poll would have to wait.
const tokenEvery = askLimit + 100*time.Millisecond

// session stands between the SDK and the wire, and keeps the token. The SDK itself would keep it for five minutes by the
// wall clock, and fetch it while a poll waits: bare keeps it from that.
//
// The SDK reads every body to its end, so its length is capped here. And an answer to the request for a token never counts
// as one to the question itself: 404 there is not "no notice".
type session struct {
	wire    http.RoundTripper
	allowV1 bool

	turn    chan struct{} // full while a goroutine uses the fields below
	service *url.URL      // where tokens are asked for; nil: nothing was asked yet
	asking  asker[token]
	token   string    // "": there is none
	v1      bool      // no token could be had, and asking without one is allowed
	tried   time.Time // when a token was last asked for
	failed  error     // why that failed
	// By the monotonic clock, which a step of the wall clock does not touch. It stands still while the machine sleeps: a
	// token that expired meanwhile is refused, and then replaced within the same poll.
	renewAt, expires time.Time

	clock serviceClock
}

func newSession(wire http.RoundTripper, allowV1 bool) *session {
	s := &session{wire: wire, allowV1: allowV1, turn: make(chan struct{}, 1)}
	s.asking = asker[token]{ask: s.put, limit: slowLimit}
	return s
}

// RoundTrip sends the SDK's request with the token, and once more with a new token if that one is refused.
func (s *session) RoundTrip(r *http.Request) (*http.Response, error) {
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

// errRefused says that the service refused a new token too: it knows no tokens, or keeps none.
var errRefused = fmt.Errorf("a new metadata token is refused: %w", &statusError{http.StatusUnauthorized})

// send sends a request with a token, or without one.
func (s *session) send(r *http.Request, token string) (*http.Response, error) {
	r = r.Clone(r.Context())
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

// discard reads an answer to its end, so that its connection can be used again.
func discard(resp *http.Response) {
	io.Copy(io.Discard, resp.Body) // an error only costs the connection
	resp.Body.Close()
}

// current returns the token to ask with; "": ask without one.
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

// another returns a token to replace one that was refused.
func (s *session) another(ctx context.Context, refused string) (string, error) {
	if err := s.lock(ctx); err != nil {
		return "", err
	}
	defer s.unlock()
	s.v1 = false
	if s.token != refused && s.token != "" {
		return s.token, nil // another goroutine was faster
	}
	err := s.fetch(ctx)
	return s.token, err
}

// renew gets the next token at half the life of this one, so that no poll waits for it. A failure is no trouble as long as
// this token is good, and when it no longer is, the polls report it.
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

// fetch asks for a token, at most once in tokenEvery. That is once in a poll, however many paths the poll asks: a request
// that fails, or a new token that is refused, would fare no better at the next path. The caller has the turn.
func (s *session) fetch(ctx context.Context) error {
	now := time.Now()
	if !s.tried.IsZero() && now.Sub(s.tried) < tokenEvery {
		if s.failed != nil {
			return s.failed
		}
		return errRefused
	}
	s.tried = now
	limit := askLimit // the caller may have longer, but other goroutines wait for the turn
	if s.allowV1 {
		limit /= 2 // in a container the answer may never come: leave time to ask without a token
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

// giveUp ends a request for a token that still waits.
func (s *session) giveUp() {
	s.turn <- struct{}{}
	defer s.unlock()
	s.asking.giveUp()
}

// token is a token of the service, and for how long it is good.
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
		seconds = longestTTL // what was asked for; if it is less, a refusal will show that
	}
	return token{string(body), time.Duration(min(max(seconds, 1), longestTTL)) * time.Second}, nil
}

// notOfAToken reports whether a rune cannot stand in a header.
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
