package reading

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"

	"github.com/lifeboat/lifeboat/migration/inventory"
)

// POST /blocks/ asks where files are; its body has their ids, one a line. One question serves a thousand map outputs, each of which would
// otherwise cost a question to the coordinator and one to its holder. The answer has a line of JSON for each file that is known to be held:
//
//	{"id":"spark/app-1/shuffle_0_7_0.index","node":"host-b","landed":"place"}
//
// It says nothing of the others: GET or HEAD /blocks/{id} looks for one of them everywhere. If another agent asks, the answer
// names only files that are here.

// MostAsked is how many blocks one question may be about: as many as one message names (batchItems in
// heartbeat/runs.go).
const MostAsked = 1024

// maxWhereQuestion is MostAsked of the longest ids, each with the end of its line.
const maxWhereQuestion = MostAsked * (inventory.MaxIDBytes + 2)

// Where says where a file is.
type Where struct {
	ID     inventory.BlockID `json:"id"`
	Node   string            `json:"node"`
	Landed string            `json:"landed,omitempty"` // vault or place, like landedHeader; "": it is where it was born
}

func (rd *Reader) serveWhere(w http.ResponseWriter, req *http.Request) {
	ids, err := askedWhere(http.MaxBytesReader(w, req.Body, maxWhereQuestion))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var answer bytes.Buffer // its size is bounded like the question's
	to := json.NewEncoder(&answer)
	var elsewhere []inventory.BlockID
	for _, id := range ids {
		if landed, here := rd.landed(id); here {
			_ = to.Encode(Where{id, rd.Node, landed})
		} else {
			elsewhere = append(elsewhere, id)
		}
	}
	if req.Header.Get(hopHeader) == "" && rd.Fetch != nil && rd.Fetch.WhoHas != nil && len(elsewhere) > 0 {
		found, err := rd.Fetch.where(req.Context(), elsewhere)
		if err != nil {
			rd.Log.Debug("not all were asked who have some blocks", "blocks", len(elsewhere), "err", err)
		}
		for _, is := range found {
			_ = to.Encode(is)
		}
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Content-Length", fmt.Sprint(answer.Len()))
	_, _ = answer.WriteTo(w) // the asker may be gone
}

func askedWhere(body io.Reader) (ids []inventory.BlockID, err error) {
	lines := bufio.NewScanner(body)
	for lines.Scan() {
		id, err := inventory.ParseBlockID(lines.Text())
		if err == nil && len(ids) == MostAsked {
			err = fmt.Errorf("more than %d ids: ask for some of them at a time", MostAsked)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", len(ids)+1, err)
		}
		ids = append(ids, id)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("line %d, which is to be one id: %w", len(ids)+1, err)
	}
	return ids, nil
}

// landed reports whether a file is here, and if it landed, where it rests. Nobody who asks about a thousand files reads them at once,
// so a file in a segment is not opened.
func (rd *Reader) landed(id inventory.BlockID) (how string, here bool) {
	for _, base := range id.OnRecord() {
		r, err := rd.Vault.Catalog.Get(base)
		if err != nil || r.Segment == 0 || r.Outdone(inventory.StoreOf(rd.Stores, id), rd.Node) {
			continue
		}
		dir, err := rd.Vault.Home(r.Segment)
		if err == nil && rd.Vault.Readable(dir) == nil {
			for _, m := range r.Members {
				here = here || m.Name == id.Name()
			}
			return "vault", here
		}
	}
	c, err := rd.open(id)
	if err != nil || verifyStart(c) != nil {
		return "", false
	}
	defer c.Close()
	return c.landed, true
}

// where asks the known holders of files, each once, or while the coordinator does not answer the nodes last heard of. It returns what they
// said even if not all of them answered.
func (f *Fetcher) where(ctx context.Context, ids []inventory.BlockID) (found []Where, err error) {
	of := map[Holder][]inventory.BlockID{}
	var holders []Holder
	at, err := f.WhoHas(ctx, ids)
	if err != nil {
		at = nil
		holders = f.peers()
		for _, h := range holders {
			of[h] = ids
		}
	}
	for i, h := range at {
		if h.Address == "" {
			continue
		}
		if of[h] == nil {
			holders = append(holders, h)
		}
		of[h] = append(of[h], ids[i])
	}
	answers, faults := make([][]Where, len(holders)), make([]error, len(holders))
	AskMany(ctx, len(holders), ProbePatience, func(ctx context.Context, i int) {
		answers[i], faults[i] = f.whereAt(ctx, holders[i], of[holders[i]])
	})
	named := map[inventory.BlockID]bool{}
	for _, is := range slices.Concat(answers...) {
		if !named[is.ID] {
			named[is.ID], found = true, append(found, is)
		}
	}
	return found, errors.Join(append(faults, err)...)
}

// whereAt asks one node which files it has.
func (f *Fetcher) whereAt(ctx context.Context, h Holder, ids []inventory.BlockID) (has []Where, err error) {
	asked := map[inventory.BlockID]bool{}
	var question []byte
	for _, id := range ids {
		asked[id] = true
		question = append(append(question, id...), '\n')
	}
	doing := fmt.Sprintf("ask %s which of %d blocks it has", h.Node, len(ids))
	answer, err := f.post(ctx, h, "/blocks/", question, http.StatusOK, doing)
	if err != nil {
		return nil, err
	}
	defer answer.Close()
	for said := json.NewDecoder(io.LimitReader(answer, maxWhereQuestion)); ; {
		var is Where
		if err := said.Decode(&is); errors.Is(err, io.EOF) {
			return has, nil
		} else if err != nil {
			return has, fmt.Errorf("%s: %w", doing, err)
		}
		if asked[is.ID] { // the first answer for an id counts
			delete(asked, is.ID)
			has = append(has, Where{is.ID, h.Node, is.Landed})
		}
	}
}
