package reading

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"slices"
	"strings"

	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/inventory"
)

// homeQuestion is POST /home, between nodes only. A node that leaves, or was away, asks the node that blocks were born on which of them
// it has in that version, and will keep, and which in another. The answer is an AtHome.
type homeQuestion struct {
	Blocks []Version `json:"blocks"` // at most MostAsked
}

// POST /home/doubt is also between nodes only. A node that took another machine's name sends it to nodes that may have that machine's
// blocks: they are to ask it which of them it has. 202: they will.

// maxHomeQuestion is MostAsked of the longest ids, tags and names of nodes.
const maxHomeQuestion = MostAsked * (inventory.MaxIDBytes + 512)

// ServeHome answers POST /home. A node that leaves says that it will keep none.
func (r *Reader) ServeHome(w http.ResponseWriter, req *http.Request, leaves bool) {
	var q homeQuestion
	err := json.NewDecoder(http.MaxBytesReader(w, req.Body, maxHomeQuestion)).Decode(&q)
	if err == nil && len(q.Blocks) > MostAsked {
		err = fmt.Errorf("it asks about %d blocks: at most %d", len(q.Blocks), MostAsked)
	}
	for i := 0; err == nil && i < len(q.Blocks); i++ {
		_, err = inventory.ParseBlockID(string(q.Blocks[i].ID))
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	answer := r.AtHome(q.Blocks)
	if answer.Leaves = leaves; leaves || answer.Has == nil {
		answer.Has = []int{}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer) // the asker may be gone
}

// AtHome asks a node about blocks that were born there.
func (f *Fetcher) AtHome(ctx context.Context, home Holder, about []Version) (is AtHome, err error) {
	question, err := json.Marshal(homeQuestion{about})
	if err != nil {
		return is, err
	}
	doing := fmt.Sprintf("ask %s what it has of %d blocks", home.Node, len(about))
	answer, err := f.post(ctx, home, "/home", question, http.StatusOK, doing)
	if err != nil {
		return is, err
	}
	defer answer.Close()
	if err := json.NewDecoder(io.LimitReader(answer, 16*MostAsked)).Decode(&is); err != nil {
		return AtHome{}, fmt.Errorf("%s: %w", doing, err)
	}
	return is, nil
}

// Doubt has a node ask this one which of the blocks that were born here it still has.
func (f *Fetcher) Doubt(ctx context.Context, h Holder) error {
	ctx, cancel := context.WithTimeout(ctx, ForgetTimeout)
	defer cancel()
	answer, err := f.post(ctx, h, "/home/doubt", nil, http.StatusAccepted, "have "+h.Node+" look at what it has")
	if err != nil {
		return err
	}
	return answer.Close()
}

// post sends a question to a node; doing says what for, in errors. An answer with another status than wanted is an
// error.
func (f *Fetcher) post(ctx context.Context, h Holder, path string, question []byte, want int, doing string) (answer io.ReadCloser, err error) {
	req, err := http.NewRequestWithContext(context.WithValue(ctx, holderKey{}, h), http.MethodPost, "https://"+h.Address+path, bytes.NewReader(question))
	if err != nil {
		return nil, err
	}
	req.Header.Set(hopHeader, hopLast)
	resp, err := f.do(req)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", doing, err)
	}
	if resp.StatusCode != want {
		defer resp.Body.Close()
		why, _ := io.ReadAll(io.LimitReader(resp.Body, 300))
		return nil, fmt.Errorf("%s: %s: %s", doing, resp.Status, strings.TrimSpace(string(why)))
	}
	return resp.Body, nil
}

// Version names a version of a block, as it was when it moved.
type Version struct {
	ID  inventory.BlockID `json:"id"`
	Tag string            `json:"tag"` // how its ETag begins at the node that it was born on
	// Origin is the node that it was born on, and Modified when it was modified there, in Unix nanoseconds: a node that is asked in
	// the origin's place needs them.
	Origin   string `json:"origin,omitempty"`
	Modified int64  `json:"modified,omitempty"`
}

// AtHome is what a node says of versions of blocks, by their indexes in the question: of blocks that were born there, and of
// others that have landed there.
type AtHome struct {
	Has     []int `json:"has"`               // it has that version, and will keep it
	Changed []int `json:"changed,omitempty"` // it has another version; of a block that was born elsewhere: a newer one
	Gone    []int `json:"gone,omitempty"`    // it was born there, and is there no more
	Leaves  bool  `json:"leaves,omitempty"`  // the node leaves, and will keep none
}

// AtHome looks for versions of blocks on this node. It says nothing of a block on a disk that fails.
func (r *Reader) AtHome(about []Version) (is AtHome) {
	disks := diskio.OrWell(r.Disks)
	sick := func(dir string) bool { return !disks.Readable(dir) || !disks.Keeps(dir) }
	hollow := map[*inventory.Store]bool{} // nothing is there at all: a disk may not be mounted
	for i, v := range about {
		if v.Origin != "" && v.Origin != r.Node {
			if rec, err := r.Vault.Catalog.Get(v.ID); err == nil && rec.Origin == v.Origin && rec.Tag() != v.Tag && rec.ModTime > v.Modified {
				is.Changed = append(is.Changed, i)
			}
			continue
		}
		s := inventory.StoreOf(r.Stores, v.ID)
		if s == nil || slices.ContainsFunc(s.Paths, sick) {
			continue
		}
		switch b, err := s.Find(v.ID); {
		case errors.Is(err, fs.ErrNotExist):
			away, looked := hollow[s]
			if !looked {
				away = s.Hollow()
				hollow[s] = away
			}
			if !away {
				is.Gone = append(is.Gone, i)
			}
		case err != nil:
		case b.Tag() == v.Tag:
			is.Has = append(is.Has, i)
		default:
			is.Changed = append(is.Changed, i)
		}
	}
	return is
}

// MostSilent is how many nodes that should be there may give no answer until no further one is asked: the network is cut,
// and a node with blocks of many nodes would wait for each of them.
const MostSilent = 4

// Picked returns those of the elements whose indexes an answer has. It leaves out indexes that are out of range.
func Picked[T any](answer []int, of []T) (some []T) {
	for _, at := range answer {
		if at >= 0 && at < len(of) {
			some = append(some, of[at])
		}
	}
	return some
}
