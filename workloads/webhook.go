package workloads

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
)

// Webhook posts the word as JSON, again and again until the answer is 2xx, until an answer says that it never will be, or
// until the context ends. All tries for the same word have the same Idempotency-Key.
//
// A URL can be a secret itself (those of chat services are), and headers often are: no error and no String shows more
// than the URL's scheme and host.
type Webhook struct {
	URL         string
	Headers     map[string]string
	HeaderFiles map[string]string // a header's name and the file that holds its value, which is read for each try
	Client      *http.Client      // nil: a client that uses the environment's proxies. Redirects are refused in any case
}

const (
	tryLimit     = 5 * time.Second
	firstPause   = 200 * time.Millisecond
	longestPause = 5 * time.Second
	mostAnswer   = 64 << 10 // read so that the connection can be used again; a longer answer costs the connection
)

func (h Webhook) String() string {
	u, err := url.Parse(h.URL)
	if err != nil {
		return "POST to a URL that is none"
	}
	return fmt.Sprintf("POST to %s://%s", u.Scheme, u.Host)
}

// Tell implements Action.
func (h Webhook) Tell(ctx context.Context, w Word) error {
	body, err := w.line()
	if err != nil {
		return err
	}
	key := strings.Join(append([]string{w.Incident}, w.same()...), "/")
	client := h.client()
	var last error
	for tries, pause := 1, firstPause; ; tries++ {
		after, err := h.try(ctx, client, body, key)
		if err == nil {
			return nil
		}
		if _, final := errors.AsType[refusal](err); final {
			return fmt.Errorf("%s: %w", h, err)
		}
		if last == nil || ctx.Err() == nil { // "time is up" says less than the failure before it
			last = err
		}
		if tries&(tries-1) == 0 { // tries 1, 2, 4, 8...: the text may differ each time, as by a port
			Trouble(ctx, fmt.Errorf("%s: %w", h, err))
		}
		wait := pause + rand.N(pause) // random, so that a fleet does not retry all at once
		if end, ok := ctx.Deadline(); ok {
			// If the answer asks to wait longer than there is time, wait as long as leaves time for one more try.
			after = min(after, time.Until(end)-tryLimit)
		}
		select {
		case <-time.After(max(wait, after)):
			pause = min(2*pause, longestPause/2)
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", h, GivenUp(ctx, tries, last))
		}
	}
}

// Post sends a body once, for a caller whose words are other than Tell's. If it is not taken, after is what the answer asks
// to wait before the next try.
func (h Webhook) Post(ctx context.Context, body []byte, key string) (after time.Duration, err error) {
	return h.try(ctx, h.client(), body, key)
}

// client is the caller's client, or a default one, that follows no redirect: a redirect could lead the word and its headers
// anywhere.
func (h Webhook) client() *http.Client {
	client := http.Client{Transport: http.DefaultTransport}
	if h.Client != nil {
		client = *h.Client
	}
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &client
}

// refusal is an error that another try would meet again.
type refusal struct{ text string }

func (r refusal) Error() string { return r.text }

// try posts once. After is what the answer asks to wait before the next try.
func (h Webhook) try(ctx context.Context, client *http.Client, body []byte, key string) (after time.Duration, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, tryLimit, fmt.Errorf("there is no answer within %v", tryLimit))
	defer cancel()
	req, err := h.request(ctx, body, key)
	if err != nil {
		return 0, err
	}
	resp, err := client.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return 0, whyOver(ctx)
		}
		if shown, ok := errors.AsType[*url.Error](err); ok {
			err = shown.Err // without the URL
		}
		return 0, err
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, io.LimitReader(resp.Body, mostAnswer)) // only the status matters
	answer := fmt.Sprintf("the answer is %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	switch code := resp.StatusCode; {
	case code >= 200 && code < 300:
		return 0, nil
	case code >= 300 && code < 400:
		return 0, refusal{answer + ", which leads elsewhere: name that place itself"}
	case code == http.StatusRequestTimeout || code == http.StatusTooEarly || code == http.StatusTooManyRequests:
	case code >= 400 && code < 500:
		return 0, refusal{answer}
	}
	return retryAfter(resp.Header.Get("Retry-After"), time.Now()), errors.New(answer)
}

func (h Webhook) request(ctx context.Context, body []byte, key string) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.URL, bytes.NewReader(body))
	if err != nil {
		return nil, refusal{"the URL is none"}
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", key)
	req.Header.Set("User-Agent", "lifeboat")
	for name, value := range h.Headers {
		req.Header.Set(name, value)
	}
	for name, path := range h.HeaderFiles {
		value, err := os.ReadFile(path) // worth another try: the file may be being replaced
		if err != nil {
			return nil, fmt.Errorf("header %s: %w", name, err)
		}
		text := strings.TrimSpace(string(value))
		if !httpguts.ValidHeaderFieldValue(text) {
			return nil, fmt.Errorf("header %s: what %s holds cannot be a header's value", name, path)
		}
		req.Header.Set(name, text)
	}
	return req, nil
}

// retryAfter is how long an answer asks to wait, in either form of RFC 9110, section 10.2.3.
func retryAfter(value string, now time.Time) time.Duration {
	const most = 24 * time.Hour // keeps a huge number from becoming a negative time
	if seconds, err := strconv.ParseUint(value, 10, 32); err == nil {
		return min(time.Duration(seconds)*time.Second, most)
	}
	if at, err := http.ParseTime(value); err == nil {
		return min(max(at.Sub(now), 0), most)
	}
	return 0
}
