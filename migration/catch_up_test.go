package migration

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/reading"
	"github.com/lifeboat/lifeboat/migration/receiver"
)

// inherited is a node c with blocks that were born on a and came over b. One of their files has changed on a since.
func inherited(t *testing.T) (a, c *node) {
	t.Helper()
	a, b, c := newNode(t, "a", with(filesStore, "cache")), newNode(t, "b"), newNode(t, "c")
	for _, name := range []string{"x", "y", "z"} {
		write(t, filepath.Join(a.Dir, "cache", name), contentOf(name, 1000))
	}
	a.drain(t, within(t, time.Minute), b)
	b.drain(t, within(t, time.Minute), c)
	write(t, filepath.Join(a.Dir, "cache/x"), []byte("newer"))
	return a, c
}

func (n *node) catchUp(t *testing.T, address string, where error, ask func(reading.Holder, []reading.Version) (reading.AtHome, error)) (all bool) {
	t.Helper()
	return n.receiver.CatchUp(t.Context(), receiver.CatchUp{
		Where: func(_ context.Context, node string) (string, error) {
			if node != "a" {
				t.Errorf("asked where %s is", node)
			}
			return address, where
		},
		Ask: func(_ context.Context, h reading.Holder, about []reading.Version) (reading.AtHome, error) {
			return ask(h, about)
		},
	})
}

// A node that is back asks the home of its blocks, and removes those that have changed there. It removes nothing else, whatever
// the home answers.
func TestWhoIsBackRemovesWhatChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, c := inherited(t)
		all := c.catchUp(t, "a:1", nil, func(h reading.Holder, about []reading.Version) (reading.AtHome, error) {
			if h != (reading.Holder{Node: "a", Address: "a:1"}) {
				t.Errorf("%v is asked", h)
			}
			is := a.Reader().AtHome(about)
			is.Changed = append(is.Changed, -1, len(about)) // a home out of its mind
			return is, nil
		})
		if !all || c.Has("cache/-/x") || !bytes.Equal(c.Content(t, "cache/-/y"), contentOf("y", 1000)) || c.Vault.Count().Blocks != 2 {
			t.Errorf("all asked: %v, and %+v rest there, want all but x", all, c.Vault.Count())
		}
		if !slices.Equal(c.Gone, []inventory.BlockID{"cache/-/x"}) {
			t.Errorf("told that %v are gone", c.Gone)
		}
	})
}

// A block that lands again while its home is being asked stays.
func TestWhatComesAnewWhileItsHomeIsAskedStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, c := inherited(t)
		if !c.catchUp(t, "a:1", nil, func(_ reading.Holder, about []reading.Version) (reading.AtHome, error) {
			is := a.Reader().AtHome(about)
			a.drain(t, within(t, time.Minute), c)
			return is, nil
		}) {
			t.Error("not all was asked")
		}
		if got := c.Content(t, "cache/-/x"); string(got) != "newer" {
			t.Errorf("c serves %q, want what came last", got)
		}
	})
}

// While it is not known what a home has, nothing is removed, and the home is asked again. A home that is gone is not asked.
func TestHomesThatDoNotSayTakeNothing(t *testing.T) {
	for name, c := range map[string]struct {
		address    string
		where, ask error
		all        bool
	}{
		"nobody says where it is": {where: errors.New("no coordinator")},
		"it does not answer":      {address: "a:1", ask: errors.New("no route")},
		"it is not there":         {all: true},
		"it has nothing to say":   {address: "a:1", all: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, at := inherited(t)
				asked := 0
				all := at.catchUp(t, c.address, c.where, func(reading.Holder, []reading.Version) (reading.AtHome, error) {
					asked++
					return reading.AtHome{}, c.ask
				})
				if want := map[bool]int{true: 1}[c.address != ""]; all != c.all || asked != want || at.Vault.Count().Blocks != 3 {
					t.Errorf("all: %v, asked %d times, %+v rest there", all, asked, at.Vault.Count())
				}
			})
		})
	}
}

// The home is gone, and another node has its last versions. Older copies of these are removed; newer ones and copies from other
// homes stay.
func TestWhoIsBackAsksOthersWhereAHomeIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, c := inherited(t)
		d, e := newNode(t, "d"), newNode(t, "e", with(filesStore, "cache"))
		a.drain(t, within(t, time.Minute), d) // and is gone
		write(t, filepath.Join(e.Dir, "cache/y"), []byte("another of that name, newer"))
		e.drain(t, within(t, time.Minute), newNode(t, "f"))
		nodes := map[string]*node{"d": d, "e": e}
		back := func(who *node, sure bool, err error) (all bool) {
			return who.receiver.CatchUp(t.Context(), receiver.CatchUp{
				Where: func(context.Context, string) (string, error) { return "", nil },
				Ask: func(_ context.Context, h reading.Holder, about []reading.Version) (reading.AtHome, error) {
					return nodes[h.Node].Reader().AtHome(about), nil
				},
				WhoElse: func(_ context.Context, blocks []inventory.BlockID) ([]reading.Holder, bool, error) {
					if len(blocks) == 0 {
						t.Error("asked about nothing")
					}
					if !sure || err != nil {
						return nil, sure, err
					}
					return []reading.Holder{{Node: "d", Address: "d:1"}, {Node: "e", Address: "e:1"}}, true, nil
				},
			})
		}
		var said strings.Builder
		c.tune = func(cfg *receiver.Config) { cfg.Log = slog.New(slog.NewTextHandler(&said, nil)) }
		c.receive(t)
		if back(c, false, nil) || back(c, true, errors.New("no coordinator")) || c.Vault.Count().Blocks != 3 {
			t.Error("all is said to be asked where some have yet to say what they have, or nobody knows who")
		}
		for _, why := range []string{"not every node has said yet", "who else has them: no coordinator"} {
			if strings.Count(said.String(), why) != 1 || strings.Contains(said.String(), "<nil>") || strings.Contains(said.String(), "node=") {
				t.Errorf("got %swant %q, and no node, once", said.String(), why)
			}
		}
		if !back(c, true, nil) || c.Has("cache/-/x") || c.Vault.Count().Blocks != 2 {
			t.Errorf("%+v rest at c, want all but x", c.Vault.Count())
		}
		nodes["d"] = c
		if !back(d, true, nil) || string(d.Content(t, "cache/-/x")) != "newer" {
			t.Errorf("%+v rest at d, want what is newest", d.Vault.Count())
		}
	})
}

// If no answer says what has changed, the log says so once, however many questions the blocks take.
func TestWhoDoesNotSayIsNamedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, c := newNode(t, "a", with(filesStore, "cache")), newNode(t, "c")
		for i := range reading.MostAsked + 1 {
			write(t, filepath.Join(a.Dir, "cache", strconv.Itoa(i)), []byte("x"))
		}
		a.drain(t, within(t, time.Minute), c)
		var said strings.Builder
		c.tune = func(cfg *receiver.Config) { cfg.Log = slog.New(slog.NewTextHandler(&said, nil)) }
		c.receive(t)
		asked := 0
		if c.receiver.CatchUp(t.Context(), receiver.CatchUp{
			Where: func(context.Context, string) (string, error) { return "", nil },
			WhoElse: func(context.Context, []inventory.BlockID) ([]reading.Holder, bool, error) {
				asked++
				return nil, false, nil
			},
		}) || asked != 2 || strings.Count(said.String(), "not every node has said yet") != 1 {
			t.Errorf("asked %d times, the log has\n%s", asked, said.String())
		}
		if c.catchUp(t, "", errors.New("no coordinator"), nil) || strings.Count(said.String(), "no coordinator") != 1 {
			t.Errorf("the log has\n%s", said.String())
		}
	})
}
