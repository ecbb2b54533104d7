package migration

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"

	"github.com/lifeboat/lifeboat/migration/reading"
	"github.com/lifeboat/lifeboat/pipenet"
)

// fleet serves nodes' readers on in-memory connections.
type fleet struct {
	mu    sync.Mutex
	nodes map[string]http.Handler
	asked []string
}

func (f *fleet) dial(_ context.Context, h reading.Holder) (net.Conn, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, h.Node)
	handler, ok := f.nodes[h.Node]
	if !ok {
		return nil, fmt.Errorf("dial %s: no route", h.Node)
	}
	return pipenet.Serve(handler), nil
}

// whom returns the nodes that were dialled, in turn. More may follow.
func (f *fleet) whom() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.asked)
}

func holders(names ...string) (all []reading.Holder) {
	for _, n := range names {
		all = append(all, reading.Holder{Node: n, Address: n + ":7412"})
	}
	return all
}
