package coordinator

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/lifeboat/lifeboat/certs"
)

// The page is for callers that may read what it shows, and lets a browser do nothing else.
func TestPage(t *testing.T) {
	inTown(t, func(v *town) {
		eve := &certs.Name{Role: certs.RoleOperator, Name: "eve"}
		for path, has := range map[string]string{"/": "<title>Lifeboat</title>", "/page.css": "progress", "/page.js": "EventSource"} {
			if code, body := v.get(path, nil); code != http.StatusUnauthorized || strings.Contains(body, has) {
				v.Errorf("%s for anybody: got %d", path, code)
			}
			if code, body := v.get(path, eve); code != http.StatusOK || !strings.Contains(body, has) {
				v.Errorf("%s: got %d %.80s", path, code, body)
			}
		}
		if code, _ := v.get("/page/index.html", eve); code != http.StatusNotFound {
			v.Errorf("another path: got %d", code)
		}
		if code, body := v.get("/events?last=some", eve); code != http.StatusBadRequest || !strings.Contains(body, "want how many events") {
			v.Errorf("got %d %s", code, body)
		}
		a := v.agent("a")
		a.register()
		v.order(-1, "a")
		stream, r := v.page("?last=1")
		defer stream.Close()
		if ids := v.ids(r, 1); len(ids) != 1 || !strings.HasSuffix(ids[0], ".2") {
			v.Errorf("the last event of two is %v", ids)
		}
	})
}

// The page names each type of event: a browser must be told which types it listens to. What happens each second is none of them: it would
// drive all else out of sight.
func TestPageKnowsAllEvents(t *testing.T) {
	script, err := pageFiles.ReadFile("page/page.js")
	if err != nil {
		t.Fatal(err)
	}
	list := regexp.MustCompile(`(?s)const types = \[(.*?)\]`).FindSubmatch(script)
	var got []string
	for _, m := range regexp.MustCompile(`"(\w+)"`).FindAllSubmatch(list[1], -1) {
		got = append(got, string(m[1]))
	}
	want := slices.DeleteFunc(slices.Compact(slices.Sorted(slices.Values(eventTypes))), func(e string) bool { return e == evMoved })
	if !slices.Equal(got, want) {
		t.Errorf("the page listens to %v, told are %v", got, want)
	}
	for _, f := range []string{"index.html", "page.js"} {
		text, err := pageFiles.ReadFile("page/" + f)
		if err != nil {
			t.Fatal(err)
		}
		for _, bad := range []string{"innerHTML", "insertAdjacentHTML", "document.write", "style=", "onclick=\"", "http://", "https://"} {
			if strings.Contains(string(text), bad) {
				t.Errorf("%s has %q: what the fleet says is text, and nothing is brought from elsewhere", f, bad)
			}
		}
	}
}

// The clock of the browser's machine may be wrong: the page uses it only until the leader has told its own time.
func TestPageGoesByTheLeadersClock(t *testing.T) {
	script, err := pageFiles.ReadFile("page/page.js")
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(script), "Date.now()"); n != 1 {
		t.Errorf("the page looks %d times at its own clock, want once", n)
	}
	if !strings.Contains(string(script), `headers.get("Date")`) {
		t.Error("the page does not look what the leader's clock shows")
	}
}

// A follower sends readers to the leader, which its page may not ask (connect-src): the browser must load the leader's page.
func TestPageGoesToTheLeader(t *testing.T) {
	script, err := pageFiles.ReadFile("page/page.js")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`redirect: "manual"`, `r.type === "opaqueredirect"`} {
		if !strings.Contains(string(script), want) {
			t.Errorf("the page has no %s", want)
		}
	}
}

// Text that screen readers announce is written only when it changes: else they would announce it twice a second.
func TestPageTellsScreenReadersOfChanges(t *testing.T) {
	html, err := pageFiles.ReadFile("page/index.html")
	if err != nil {
		t.Fatal(err)
	}
	script, err := pageFiles.ReadFile("page/page.js")
	if err != nil {
		t.Fatal(err)
	}
	live := regexp.MustCompile(`id="([^"]+)"[^>]*(?:role="status"|aria-live)`).FindAllSubmatch(html, -1)
	if len(live) != 2 {
		t.Errorf("%d parts are told of, want 2", len(live))
	}
	for _, m := range live {
		if id := string(m[1]); !strings.Contains(string(script), `say("`+id+`"`) || strings.Contains(string(script), `$("`+id+`")`) {
			t.Errorf("%s is not written by say alone", id)
		}
	}
}

// The pause between two looks grows with how long an answer takes, but a coordinator that hung for 20 s is not left alone for 200: a drain
// would begin and end unseen. The pause is no silence of the coordinator's either.
func TestPageLooksAgainSoon(t *testing.T) {
	script, err := pageFiles.ReadFile("page/page.js")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`setTimeout(look, Math.min(mostPause, `, `performance.now() - asked > silence`} {
		if !strings.Contains(string(script), want) {
			t.Errorf("the page has no %s", want)
		}
	}
}
