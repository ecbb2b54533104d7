package dev

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"

	"google.golang.org/grpc"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/dev/corpus"
	"github.com/lifeboat/lifeboat/migration/inventory"
	"github.com/lifeboat/lifeboat/migration/manifest"
)

// Account is what became of the first node's blocks.
type Account struct {
	Summary *api.ManifestSummary
	Entries []*api.ManifestEntry
}

// Manifest asks the first node for its account.
func (f *Fleet) Manifest(ctx context.Context) (Account, error) {
	stream, err := api.NewLocalClient(f.nodes[0].conn).GetManifest(ctx, &api.GetManifestRequest{})
	if err != nil {
		return Account{}, err
	}
	return collect(stream)
}

func collect(stream grpc.ServerStreamingClient[api.GoodbyeRequest]) (a Account, err error) {
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return a, nil
		}
		if err != nil {
			return Account{}, err
		}
		if m.Summary != nil {
			a.Summary = m.Summary
		}
		a.Entries = append(a.Entries, m.Entries...)
	}
}

// Verify reads every file of the corpus back and compares its SHA-256. It asks an agent that does not hold the file
// (with two nodes there is only the holder). It returns an error for each file that differs or cannot be read; step is
// called after each file.
func (f *Fleet) Verify(ctx context.Context, a Account, step func()) (wrong []error) {
	holder := map[inventory.BlockID]string{}
	for _, e := range a.Entries {
		if e.Outcome == string(manifest.Moved) {
			holder[inventory.BlockID(e.Id)] = e.Peer
		}
	}
	for i, store := range []string{filesStore, sparkStore} {
		for n, file := range f.Corpus[i].Files {
			if ctx.Err() != nil {
				return append(wrong, ctx.Err())
			}
			through := f.through(holder[file.BlockID(store)], n)
			if err := readBack(ctx, through, file, store); err != nil {
				wrong = append(wrong, fmt.Errorf("read %s through %s: %w", file.ID(store), through.name, err))
			}
			step()
		}
	}
	return wrong
}

// through picks an agent other than the first that does not hold the block, if there is one. n takes turns among them.
func (f *Fleet) through(holder string, n int) *member {
	others := slices.DeleteFunc(slices.Clone(f.nodes[1:]), func(m *member) bool { return m.name == holder })
	if len(others) == 0 {
		others = f.nodes[1:]
	}
	if len(others) == 0 {
		others = f.nodes
	}
	return others[n%len(others)]
}

func readBack(ctx context.Context, m *member, file corpus.File, store string) error {
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", m.socket)
		},
	}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://agent/blocks/"+string(file.ID(store)), nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	h := sha256.New()
	n, err := io.Copy(h, resp.Body)
	switch {
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("answered %s", resp.Status)
	case err != nil:
		return err
	case [sha256.Size]byte(h.Sum(nil)) != file.SHA256:
		return fmt.Errorf("%d bytes, want %d with SHA-256 %x", n, file.Bytes, file.SHA256)
	}
	return nil
}

// Files is how many files Verify reads.
func (f *Fleet) Files() (n int) {
	for _, c := range f.Corpus {
		n += len(c.Files)
	}
	return n
}
