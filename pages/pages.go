// Package pages shows a coordinator's web page to a browser that has no certificate: it serves the page on this machine to a
// browser that has the key in the printed address, and asks the coordinators with the operator's certificate.
//
// It only reads: only GET requests get through. It knows nothing of what the page shows.
package pages

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync/atomic"
	"time"
)

const (
	// answerWithin is how long a coordinator may take to begin an answer before the next one is asked.
	answerWithin = 10 * time.Second
	// silence is after how long without a word a coordinator is asked for one, by HTTP/2, and how long it may take for that. A machine that
	// hangs or is cut off would else seem to have nothing to tell, for as long as its kernel answers, or ours waits for it.
	silence = 10 * time.Second
	// mostRedirects bounds how often coordinators may point to another: followers do so once.
	mostRedirects = 3
)

// Door is the page's server for browsers on this machine.
type Door struct {
	addresses []string // of the coordinators' pages, HOST:PORT
	key       string
	at        string
	client    *http.Client
	first     atomic.Int64 // which of the addresses is asked first: the one that answered last
}

// New makes a door at a listener's address, which must be a loopback address. config has the operator's certificate, and trusts the
// coordinators.
func New(l net.Listener, addresses []string, config *tls.Config) (*Door, error) {
	at := l.Addr().String()
	host, _, err := net.SplitHostPort(at)
	if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsLoopback() {
		return nil, fmt.Errorf("%s is no loopback address: what is served here is for this machine alone", at)
	}
	if len(addresses) == 0 {
		return nil, errors.New("no coordinator is named")
	}
	t := &http.Transport{
		TLSClientConfig: config, ForceAttemptHTTP2: true, ResponseHeaderTimeout: answerWithin, TLSHandshakeTimeout: answerWithin,
		DialContext: (&net.Dialer{Timeout: answerWithin}).DialContext, HTTP2: &http.HTTP2Config{SendPingTimeout: silence, PingTimeout: silence},
	}
	return &Door{addresses: addresses, key: rand.Text(), at: at, client: &http.Client{Transport: t, CheckRedirect: onlyTLS}}, nil
}

func onlyTLS(r *http.Request, via []*http.Request) error {
	if r.URL.Scheme != "https" || len(via) > mostRedirects {
		return http.ErrUseLastResponse
	}
	return nil
}

// URL returns the address to open in a browser.
func (d *Door) URL() string { return "http://" + d.at + "/?key=" + d.key }

// Serve serves at the listener that New was given, until ctx ends.
func (d *Door) Serve(ctx context.Context, l net.Listener) error {
	s := &http.Server{
		Handler: d, ReadHeaderTimeout: answerWithin, MaxHeaderBytes: 16 << 10, ErrorLog: log.New(io.Discard, "", 0),
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	defer context.AfterFunc(ctx, func() { s.Close() })()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// ServeHTTP answers a browser. It refuses requests under another host name, for another site's page may have had its name point
// here (DNS rebinding), and browsers that never had the key.
func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, port, _ := net.SplitHostPort(d.at)
	cookie := "lifeboat-" + port
	switch {
	case r.Host != d.at && r.Host != "localhost:"+port:
		http.Error(w, "this is "+d.at+" and nothing else", http.StatusMisdirectedRequest)
	case r.Method != http.MethodGet:
		http.Error(w, "only GET", http.StatusMethodNotAllowed)
	case d.opens(r.URL.Query().Get("key")):
		http.SetCookie(w, &http.Cookie{Name: cookie, Value: d.key, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
		w.Header().Set("Referrer-Policy", "no-referrer")
		http.Redirect(w, r, "/", http.StatusSeeOther) // the key leaves the address, and the history
	case !slices.ContainsFunc(r.CookiesNamed(cookie), func(c *http.Cookie) bool { return d.opens(c.Value) }):
		http.Error(w, "open the address that was printed: the key is in it", http.StatusForbidden)
	default:
		d.ask(w, r)
	}
}

func (d *Door) opens(key string) bool {
	return subtle.ConstantTimeCompare([]byte(key), []byte(d.key)) == 1
}

// ask passes a request on to the coordinators, and the answer back as it comes. The first coordinator that answers is taken, and asked first
// from then on. An answer that there is no leader (503) is taken only if no coordinator has a better one.
func (d *Door) ask(w http.ResponseWriter, r *http.Request) {
	said, err := d.answer(r)
	if err != nil {
		w.Header().Set("Refresh", "5") // so that a browser that was opened too early shows the page once there is one
		http.Error(w, err.Error()+"\n\nSee that a coordinator runs, and that --pages names its listen.http.\nThis asks again every 5 seconds.", http.StatusBadGateway)
		return
	}
	defer said.Body.Close()
	for _, h := range []string{"Content-Type", "Content-Security-Policy", "X-Content-Type-Options", "Referrer-Policy", "Cache-Control", "Retry-After", "Refresh", "Date", "Content-Encoding", "Vary"} {
		if v := said.Header.Get(h); v != "" {
			w.Header().Set(h, v)
		}
	}
	w.WriteHeader(said.StatusCode)
	stream(w, said.Body)
}

func (d *Door) answer(r *http.Request) (said *http.Response, err error) {
	var leaderless *http.Response
	var failed []error
	first := d.first.Load()
	for i := range int64(len(d.addresses)) {
		turn := (first + i) % int64(len(d.addresses))
		said, err := d.get(r, d.addresses[turn])
		if err != nil {
			failed = append(failed, err)
			if r.Context().Err() == nil { // else it is the browser that did not wait
				d.first.CompareAndSwap(turn, (turn+1)%int64(len(d.addresses))) // a browser that does not wait for all of them comes to the others in time
			}
			continue
		}
		if leaderless != nil {
			leaderless.Body.Close()
		}
		if said.StatusCode != http.StatusServiceUnavailable {
			d.first.Store(turn)
			return said, nil
		}
		leaderless = said
	}
	if leaderless == nil {
		return nil, errors.Join(failed...)
	}
	return leaderless, nil
}

func (d *Door) get(r *http.Request, at string) (*http.Response, error) {
	u := *r.URL
	u.Scheme, u.Host = "https", at
	q, err := http.NewRequestWithContext(r.Context(), http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	for _, h := range []string{"Accept", "Accept-Encoding", "Last-Event-ID"} {
		if v := r.Header.Get(h); v != "" {
			q.Header.Set(h, v)
		}
	}
	said, err := d.client.Do(q)
	if whole, ok := errors.AsType[*url.Error](err); ok {
		return nil, fmt.Errorf("the coordinator's page at %s: %w", at, whole.Err)
	}
	return said, err
}

// stream copies an answer piece by piece, as it comes: a stream of events lasts for hours.
func stream(w http.ResponseWriter, from io.Reader) {
	control := http.NewResponseController(w)
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if _, gone := w.Write(buf[:n]); gone != nil {
				return
			}
			_ = control.Flush() // a writer that cannot flush has written
		}
		if err != nil {
			return // the browser asks again
		}
	}
}
