package migration

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/reading"
)

// whereIs asks where files are.
func whereIs(t *testing.T, rd *reading.Reader, header http.Header, body io.Reader) (status int, all []reading.Where) {
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/blocks/", body)
	req.Header = header
	w := httptest.NewRecorder()
	rd.ServeHTTP(w, req)
	if w.Code == http.StatusBadRequest && !strings.HasPrefix(w.Body.String(), "line ") {
		t.Errorf("refused without the line that is at fault: %s", w.Body)
	}
	for lines := bufio.NewScanner(w.Body); w.Code == http.StatusOK && lines.Scan(); {
		var is reading.Where
		if err := json.Unmarshal(lines.Bytes(), &is); err != nil {
			t.Fatalf("%q: %v", lines.Text(), err)
		}
		all = append(all, is)
	}
	return w.Code, all
}

// A node does not say that it has what lies on a disk that is away or does not answer.
func TestWhereFilesAreThatCannotBeRead(t *testing.T) {
	n, disks := onDisks(t, "b", nil, "d0")
	wantDurable(t, landAll(t, n, blockFrames(1, "cache/-/x", []byte("x"))))
	wantKnown := func(files int) {
		t.Helper()
		if status, got := whereIs(t, n.Reader(), http.Header{}, strings.NewReader("cache/-/x\n")); status != http.StatusOK || len(got) != files {
			t.Errorf("got %d, %v, want %d files", status, got, files)
		}
	}
	wantKnown(1)
	disks.Set(disks.Bad, n.More[0], true)
	wantKnown(0)
	disks.Set(disks.Bad, n.More[0], false)
	wantKnown(1)
	if err := os.Rename(n.More[0], n.More[0]+"-unmounted"); err != nil {
		t.Fatal(err)
	}
	n.Reopen(t)
	wantKnown(0)
}

// One question tells where many files are, of those that somebody is known to have and has.
func TestWhereManyFilesAre(t *testing.T) {
	a, inPlace, inVault := newNode(t, "a", with(sparkStore, "d0")), newNode(t, "b", with(sparkStore, "d0")), newNode(t, "c")
	for m := range 3 {
		writeMapOutput(t, []string{filepath.Join(a.Dir, "d0/blockmgr-x")}, 1, m, 1000)
	}
	a.drain(t, within(t, 20*time.Second), inPlace)
	inPlace.drain(t, within(t, 20*time.Second), inVault)
	own := newNode(t, "own", with(sparkStore, "d0"))
	writeMapOutput(t, []string{filepath.Join(own.Dir, "d0/blockmgr-x")}, 1, 9, 1000)
	id := func(m int) inventory.BlockID {
		return inventory.BlockID(fmt.Sprintf("spark/blockmgr-x/shuffle_1_%d_0.index", m))
	}
	old := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "blocks are read with GET or HEAD", http.StatusMethodNotAllowed)
	})
	liar := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for _, m := range []int{5, 1, 5} {
			_ = json.NewEncoder(w).Encode(reading.Where{ID: id(m), Node: "nobody", Landed: "place"})
		}
	})
	f := &fleet{nodes: map[string]http.Handler{"b": inPlace.Reader(), "c": inVault.Reader(), "old": old, "liar": liar}}
	at := map[inventory.BlockID]string{id(0): "b", id(1): "c", id(2): "b", id(3): "gone", id(4): "old", id(5): "liar", id(7): "b"}
	asked := 0
	var away error
	fetch := &reading.Fetcher{Dial: f.dial, WhoHas: func(_ context.Context, ids []inventory.BlockID) ([]reading.Holder, error) {
		asked++
		who := make([]reading.Holder, len(ids))
		for i, id := range ids {
			if n := at[id]; n != "" {
				who[i] = holders(n)[0]
			}
		}
		return who, away
	}, Peers: func() []reading.Holder { return holders("gone", "b", "c") }}
	defer fetch.Close()
	rd := own.Reader()
	rd.Fetch = fetch
	var all strings.Builder
	for m := range 10 {
		fmt.Fprintln(&all, id(m))
	}
	want := []reading.Where{{ID: id(0), Node: "b", Landed: "place"}, {ID: id(1), Node: "c", Landed: "vault"}, {ID: id(2), Node: "b", Landed: "place"}, {ID: id(5), Node: "liar", Landed: "place"}, {ID: id(9), Node: "own", Landed: ""}}
	heard := []reading.Where{want[0], {ID: id(1), Node: "b", Landed: "place"}, want[2], want[4]} // of those last heard of, each is named once
	for _, c := range []struct {
		name   string
		header http.Header
		away   error
		want   []reading.Where
	}{
		{"of a reader", http.Header{}, nil, want},
		{"of another agent", http.Header{"Lifeboat-Hop": {"2"}}, nil, want[4:]},
		{"while no coordinator answers", http.Header{}, errors.New("no leader"), heard},
	} {
		away = c.away
		status, got := whereIs(t, rd, c.header, strings.NewReader(all.String()))
		slices.SortFunc(got, func(a, b reading.Where) int { return strings.Compare(string(a.ID), string(b.ID)) })
		if status != http.StatusOK || !slices.Equal(got, c.want) {
			t.Errorf("%s: got %d, %v, want %v", c.name, status, got, c.want)
		}
	}
	if asked != 2 || len(f.whom()) > len(f.nodes)+1+3 {
		t.Errorf("the coordinator was asked %d times, and %v, want each once", asked, f.whom())
	}
	line := string(id(0)) + "\n"
	for name, c := range map[string]struct {
		body   io.Reader
		status int
	}{
		"nothing":    {strings.NewReader(""), http.StatusOK},
		"no id":      {strings.NewReader("../etc/passwd\n"), http.StatusBadRequest},
		"as many":    {strings.NewReader(strings.Repeat(line, reading.MostAsked)), http.StatusOK},
		"too many":   {strings.NewReader(strings.Repeat(line, reading.MostAsked+1)), http.StatusBadRequest},
		"one no end": {strings.NewReader(strings.Repeat("x", reading.MostAsked*(inventory.MaxIDBytes+2)+1)), http.StatusBadRequest},
	} {
		if status, got := whereIs(t, rd, http.Header{"Lifeboat-Hop": {"2"}}, c.body); status != c.status || len(got) > 0 {
			t.Errorf("%s: got %d, %v, want %d", name, status, got, c.status)
		}
	}
}
