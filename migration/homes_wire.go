package migration

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/lifeboat/lifeboat/migration/inventory"
)

// POST /home is between nodes alone: one that leaves, or was away, asks the node that blocks were born on which of them it has as they
// were, and will have, and which as something else. It is answered with an AtHome.
type homeQuestion struct {
	Blocks []Version `json:"blocks"` // at most askedAbout
}

// POST /home/doubt is between nodes alone, too: one that took another machine's name has whoever may have that one's blocks ask it so
// what it has of them. 202: it will.

// maxHomeQuestion is askedAbout of the longest ids, tags and names of nodes.
const maxHomeQuestion = askedAbout * (inventory.MaxIDBytes + 512)

// ServeHome answers POST /home. A node that leaves itself has nothing that it will have.
func (r *Reader) ServeHome(w http.ResponseWriter, req *http.Request, leaves bool) {
	var q homeQuestion
	err := json.NewDecoder(http.MaxBytesReader(w, req.Body, maxHomeQuestion)).Decode(&q)
	if err == nil && len(q.Blocks) > askedAbout {
		err = fmt.Errorf("it asks about %d blocks: at most %d", len(q.Blocks), askedAbout)
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
	_ = json.NewEncoder(w).Encode(answer) // whoever asked may be gone
}

// AtHome asks a node about some blocks that were born there.
func (f *Fetcher) AtHome(ctx context.Context, home Holder, about []Version) (is AtHome, err error) {
	body, err := json.Marshal(homeQuestion{about})
	if err != nil {
		return is, err
	}
	req, err := http.NewRequestWithContext(context.WithValue(ctx, holderKey{}, home), http.MethodPost, "https://"+home.Address+"/home", bytes.NewReader(body))
	if err != nil {
		return is, err
	}
	resp, err := f.http().Do(req)
	if err != nil {
		return is, fmt.Errorf("ask %s what it has of %d blocks: %w", home.Node, len(about), err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		why, _ := io.ReadAll(io.LimitReader(resp.Body, 300))
		return is, fmt.Errorf("ask %s what it has of %d blocks: %s: %s", home.Node, len(about), resp.Status, strings.TrimSpace(string(why)))
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, 16*askedAbout)).Decode(&is); err != nil {
		return AtHome{}, fmt.Errorf("ask %s what it has of %d blocks: %w", home.Node, len(about), err)
	}
	return is, nil
}

// Doubt has a node ask this one what it has of the blocks that were born here.
func (f *Fetcher) Doubt(ctx context.Context, h Holder) error {
	ctx, cancel := context.WithTimeout(ctx, forgetTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(context.WithValue(ctx, holderKey{}, h), http.MethodPost, "https://"+h.Address+"/home/doubt", nil)
	if err != nil {
		return err
	}
	resp, err := f.http().Do(req)
	if err != nil {
		return fmt.Errorf("have %s look at what it has: %w", h.Node, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusAccepted {
		why, _ := io.ReadAll(io.LimitReader(resp.Body, 300))
		return fmt.Errorf("have %s look at what it has: %s: %s", h.Node, resp.Status, strings.TrimSpace(string(why)))
	}
	return nil
}
