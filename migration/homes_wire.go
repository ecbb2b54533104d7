package migration

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// POST /home is between nodes alone: one that leaves asks the node that blocks were born on which of them it has as they were,
// and will have. It is answered with their places in the question.
type (
	homeQuestion struct {
		Blocks []Version `json:"blocks"` // at most askedAbout
	}
	homeAnswer struct {
		Has []int `json:"has"`
	}
)

// maxHomeQuestion is askedAbout of the longest ids and tags.
const maxHomeQuestion = askedAbout * (maxIDBytes + 128)

// ServeHome answers POST /home. A node that leaves itself has nothing that it will have.
func (r *Reader) ServeHome(w http.ResponseWriter, req *http.Request, leaves bool) {
	var q homeQuestion
	err := json.NewDecoder(http.MaxBytesReader(w, req.Body, maxHomeQuestion)).Decode(&q)
	if err == nil && len(q.Blocks) > askedAbout {
		err = fmt.Errorf("it asks about %d blocks: at most %d", len(q.Blocks), askedAbout)
	}
	for i := 0; err == nil && i < len(q.Blocks); i++ {
		_, err = ParseBlockID(string(q.Blocks[i].ID))
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	answer := homeAnswer{Has: []int{}}
	if !leaves {
		answer.Has = append(answer.Has, r.AtHome(q.Blocks)...)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer) // whoever asked may be gone
}

// AtHome asks a node which of some blocks that were born there it has as they were, and stays with.
func (f *Fetcher) AtHome(ctx context.Context, home Holder, about []Version) (has []int, err error) {
	body, err := json.Marshal(homeQuestion{about})
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(context.WithValue(ctx, holderKey{}, home), http.MethodPost, "https://"+home.Address+"/home", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := f.http().Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask %s what it has of %d blocks: %w", home.Node, len(about), err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		why, _ := io.ReadAll(io.LimitReader(resp.Body, 300))
		return nil, fmt.Errorf("ask %s what it has of %d blocks: %s: %s", home.Node, len(about), resp.Status, strings.TrimSpace(string(why)))
	}
	var answer homeAnswer
	if err := json.NewDecoder(io.LimitReader(resp.Body, 16*askedAbout)).Decode(&answer); err != nil {
		return nil, fmt.Errorf("ask %s what it has of %d blocks: %w", home.Node, len(about), err)
	}
	return answer.Has, nil
}
