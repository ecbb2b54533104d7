package pages

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// open makes a door to coordinators with these handlers, and a browser that has not come in yet.
func open(t *testing.T, coordinators ...http.HandlerFunc) (d *Door, browser *http.Client) {
	t.Helper()
	var addresses []string
	pool := x509.NewCertPool()
	for _, c := range coordinators {
		s := httptest.NewTLSServer(c)
		t.Cleanup(s.Close)
		pool.AddCert(s.Certificate())
		addresses = append(addresses, s.Listener.Addr().String())
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if d, err = New(l, addresses, &tls.Config{RootCAs: pool}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return d, &http.Client{Jar: jar}
}

func get(t *testing.T, c *http.Client, url string, also ...func(*http.Request)) (code int, body string) {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range also {
		f(r)
	}
	said, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer said.Body.Close()
	b, err := io.ReadAll(said.Body)
	if err != nil {
		t.Fatal(err)
	}
	return said.StatusCode, string(b)
}

// A browser with the key comes in, and stays in without the key in its address. No other does, and nothing is changed
// through the door.
func TestKeyOpensTheDoor(t *testing.T) {
	d, browser := open(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Cookie") != "" || r.URL.RawQuery != "" {
			t.Errorf("the key is passed on: %v", r)
		}
		fmt.Fprint(w, "page ", r.URL.Path)
	})
	at := "http://" + d.at
	if code, _ := get(t, browser, at+"/nodes"); code != http.StatusForbidden {
		t.Errorf("without a key: got %d", code)
	}
	if code, _ := get(t, browser, at+"/?key=WRONG"); code != http.StatusForbidden {
		t.Errorf("with a wrong one: got %d", code)
	}
	if code, body := get(t, browser, d.URL()); code != http.StatusOK || body != "page /" {
		t.Errorf("with the key: got %d %s", code, body)
	}
	if code, body := get(t, browser, at+"/nodes"); code != http.StatusOK || body != "page /nodes" {
		t.Errorf("afterwards: got %d %s", code, body)
	}
	if code, _ := get(t, browser, at+"/nodes", func(r *http.Request) { r.Host = "evil.example" }); code != http.StatusMisdirectedRequest {
		t.Errorf("by another name: got %d", code)
	}
	if code, _ := get(t, browser, at+"/machine/down", func(r *http.Request) { r.Method = http.MethodPost }); code != http.StatusMethodNotAllowed {
		t.Errorf("a POST: got %d", code)
	}
}

// If a coordinator does not answer, the next one is asked. A follower points to the leader, which is then asked, but only by TLS.
func TestDoorFindsTheLeader(t *testing.T) {
	leader := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "leader ", r.URL) }))
	defer leader.Close()
	to := leader.URL
	d, browser := open(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, to+r.URL.RequestURI(), http.StatusTemporaryRedirect)
	})
	d.client.Transport.(*http.Transport).TLSClientConfig.RootCAs.AddCert(leader.Certificate())
	get(t, browser, d.URL())
	if code, body := get(t, browser, "http://"+d.at+"/events?last=5"); code != http.StatusOK || body != "leader /events?last=5" {
		t.Errorf("got %d %s", code, body)
	}
	to = "http://127.0.0.1:1"
	c := &http.Client{Jar: browser.Jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	if code, _ := get(t, c, "http://"+d.at+"/nodes"); code != http.StatusTemporaryRedirect {
		t.Errorf("without TLS: got %d", code)
	}
}

// Who opens the page while no coordinator answers is told which were asked, why none answers and what to do, and need not load it
// again by hand.
func TestDoorSaysThatNoCoordinatorAnswers(t *testing.T) {
	d, browser := open(t, func(http.ResponseWriter, *http.Request) {})
	d.addresses = []string{"127.0.0.1:1", "127.0.0.1:2"}
	said, err := browser.Get(d.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer said.Body.Close()
	body, err := io.ReadAll(said.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"the coordinator's page at 127.0.0.1:1: ", "the coordinator's page at 127.0.0.1:2: ", "connection refused", "--pages"} {
		if !strings.Contains(string(body), want) {
			t.Errorf("got %s, want %q in it", body, want)
		}
	}
	if said.StatusCode != http.StatusBadGateway || said.Header.Get("Refresh") == "" {
		t.Errorf("got %s, asked again after %q s", said.Status, said.Header.Get("Refresh"))
	}
}

// The page reckons from the time at which the leader answered, by the leader's clock: the clock of the machine in
// between may be wrong.
func TestDoorTellsTheLeadersTime(t *testing.T) {
	const then = "Thu, 26 Nov 2026 11:07:00 GMT"
	d, browser := open(t, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Date", then) })
	get(t, browser, d.URL())
	said, err := browser.Get("http://" + d.at + "/nodes")
	if err != nil {
		t.Fatal(err)
	}
	said.Body.Close()
	if got := said.Header.Get("Date"); got != then {
		t.Errorf("got %s, want %s", got, then)
	}
}

// A coordinator that is cut off from the others knows of no leader, and another may. If none does, the answer says so.
func TestDoorPassesByWhoHasNoLeader(t *testing.T) {
	cut := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "1")
		w.Header().Set("Refresh", "5")
		http.Error(w, "there is no leader", http.StatusServiceUnavailable)
	}
	leads := true
	d, browser := open(t, cut, func(w http.ResponseWriter, r *http.Request) {
		if !leads {
			cut(w, r)
			return
		}
		fmt.Fprint(w, "nodes")
	}, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	get(t, browser, d.URL())
	if code, body := get(t, browser, "http://"+d.at+"/nodes"); code != http.StatusOK || body != "nodes" {
		t.Errorf("got %d %s", code, body)
	}
	leads = false
	if said, err := browser.Get("http://" + d.at); err != nil || said.Header.Get("Refresh") != "5" {
		t.Errorf("a browser that is opened meanwhile is left with %v (%v)", said, err)
	} else {
		said.Body.Close()
	}
	if code, body := get(t, browser, "http://"+d.at+"/nodes"); code != http.StatusServiceUnavailable || !strings.Contains(body, "no leader") {
		t.Errorf("with no leader: got %d %s", code, body)
	}
}

// A coordinator's answer goes on to the browser as it comes. If none answers, that is the answer.
func TestDoorStreams(t *testing.T) {
	more, ended := make(chan string), make(chan struct{})
	d, browser := open(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/events" {
			return
		}
		defer close(ended)
		for {
			select {
			case line := <-more:
				fmt.Fprintln(w, line)
				w.(http.Flusher).Flush()
			case <-r.Context().Done():
				return
			}
		}
	})
	get(t, browser, d.URL())
	go func() { more <- "one" }()
	said, err := browser.Get("http://" + d.at + "/events")
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(said.Body)
	for _, want := range []string{"one\n", "two\n"} {
		if got, err := lines.ReadString('\n'); got != want || err != nil {
			t.Errorf("got %q (%v), want %q", got, err, want)
		}
		if want == "one\n" {
			more <- "two"
		}
	}
	said.Body.Close() // the browser goes
	<-ended
	d.addresses = []string{"127.0.0.1:1"}
	if code, body := get(t, browser, "http://"+d.at+"/nodes"); code != http.StatusBadGateway || !strings.Contains(body, "127.0.0.1:1") {
		t.Errorf("with nobody there: got %d %s", code, body)
	}
}

// What a coordinator packs stays packed on the way: the browser may be far away, behind ssh -L.
func TestDoorPassesOnWhatIsPacked(t *testing.T) {
	d, browser := open(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept-Encoding") == "gzip, br" {
			w.Header().Set("Content-Encoding", "gzip")
		}
		fmt.Fprint(w, "nodes")
	})
	get(t, browser, d.URL())
	r, err := http.NewRequest(http.MethodGet, "http://"+d.at+"/nodes", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept-Encoding", "gzip, br") // so this client unpacks nothing itself
	said, err := browser.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer said.Body.Close()
	if packed := said.Header.Get("Content-Encoding"); packed != "gzip" {
		t.Errorf("it comes as %q", packed)
	}
}

// The door serves only this machine, and not others.
func TestDoorIsOnLoopback(t *testing.T) {
	l, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := New(l, []string{"c:7410"}, nil); err == nil || !strings.Contains(err.Error(), "loopback") {
		t.Errorf("got %v", err)
	}
}

// Coordinators that hang do not keep a browser from the others, even if it waits for less than all of them; and the one that answered is
// asked first from then on.
func TestDoorPassesByCoordinatorsThatHang(t *testing.T) {
	var hung atomic.Int32
	hangs := func(_ http.ResponseWriter, r *http.Request) {
		hung.Add(1)
		<-r.Context().Done()
	}
	d, browser := open(t, hangs, hangs, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "nodes") })
	d.client.Transport.(*http.Transport).ResponseHeaderTimeout = 100 * time.Millisecond
	browser.Timeout = 150 * time.Millisecond
	came := func(url string) bool {
		said, err := browser.Get(url)
		if err == nil {
			said.Body.Close()
		}
		return err == nil && said.StatusCode == http.StatusOK
	}
	came(d.URL()) // the browser has the key, if no page yet
	for tries := 0; !came("http://" + d.at + "/nodes"); tries++ {
		if tries == 20 {
			t.Fatal("the coordinator that answers is never asked in time")
		}
	}
	before := hung.Load()
	if !came("http://"+d.at+"/nodes") || hung.Load() != before {
		t.Error("once a coordinator has answered, those that hang are asked again before it")
	}
}

// A coordinator's machine hangs while a browser follows its events: the stream ends, so that the browser asks again and comes to another.
func TestDoorEndsAStreamThatHangs(t *testing.T) {
	thaw := make(chan struct{})
	l := &freezer{frozen: make(chan struct{}), thaw: thaw}
	c := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "one")
		w.(http.Flusher).Flush()
		if r.URL.Path == "/events" {
			<-r.Context().Done()
		}
	}))
	l.Listener, c.Listener, c.EnableHTTP2 = c.Listener, l, true
	c.StartTLS()
	t.Cleanup(c.Close)
	t.Cleanup(func() { close(thaw) })
	d, browser := open(t, func(http.ResponseWriter, *http.Request) {})
	d.addresses = []string{c.Listener.Addr().String()}
	via := d.client.Transport.(*http.Transport)
	via.TLSClientConfig.RootCAs.AddCert(c.Certificate())
	via.HTTP2.SendPingTimeout, via.HTTP2.PingTimeout = 50*time.Millisecond, 50*time.Millisecond
	get(t, browser, d.URL())
	said, err := browser.Get("http://" + d.at + "/events")
	if err != nil {
		t.Fatal(err)
	}
	defer said.Body.Close()
	lines := bufio.NewReader(said.Body)
	if got, err := lines.ReadString('\n'); got != "one\n" {
		t.Fatalf("got %q (%v)", got, err)
	}
	close(l.frozen)
	if more, err := io.ReadAll(lines); len(more) > 0 || err != nil {
		t.Errorf("got %q (%v), want the end", more, err)
	}
}

// freezer is a listener of a machine whose processes stop: its kernel takes what is sent there, and nothing reads it.
type freezer struct {
	net.Listener
	frozen, thaw chan struct{}
}

func (f *freezer) Accept() (net.Conn, error) {
	c, err := f.Listener.Accept()
	return freezing{c, f}, err
}

type freezing struct {
	net.Conn
	*freezer
}

func (c freezing) Close() error { return c.Conn.Close() }

func (c freezing) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	select {
	case <-c.frozen:
		<-c.thaw
	default:
	}
	return n, err
}
