package sidecar

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/localsock"
)

const (
	// headerTimeout bounds how long a connection may take to send a request's header.
	headerTimeout = 10 * time.Second
	// farewellTimeout is how long requests under way may take when the sidecar stops.
	farewellTimeout = 2 * time.Second
)

// serve answers on the socket and on the loopback address until ctx ends.
func (s *Sidecar) serve(ctx context.Context) error {
	page := s.page()
	calls := grpc.NewServer(grpc.UnaryInterceptor(localsock.Gate(s.log,
		api.Local_DecommissionSelf_FullMethodName, api.Local_Cancel_FullMethodName, api.Local_Simulate_FullMethodName)))
	api.RegisterLocalServer(calls, &local{sidecar: s})

	g, ctx := errgroup.WithContext(ctx)
	serve := func(server *http.Server, l net.Listener) {
		g.Go(func() error {
			if err := server.Serve(l); ctx.Err() == nil {
				return err
			}
			return nil // it ended because it was told to
		})
		g.Go(func() error {
			<-ctx.Done()
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewellTimeout)
			defer cancel()
			if server.Shutdown(last) != nil {
				server.Close() // requests still under way have had their time
			}
			return nil
		})
	}
	serve(localsock.Server(calls, page, s.log), s.at.socket)
	if s.at.http != nil {
		quiet := slog.NewLogLogger(s.log.Handler(), slog.LevelDebug)
		serve(&http.Server{Handler: page, ReadHeaderTimeout: headerTimeout, IdleTimeout: time.Minute, ErrorLog: quiet}, s.at.http)
	}
	return g.Wait()
}

func (s *Sidecar) page() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.Handle("GET /metrics", s.metrics())
	mux.HandleFunc("GET /blocks/", func(w http.ResponseWriter, _ *http.Request) { // not 404, which tells a reader that nobody has the block
		http.Error(w, "a sidecar has no blocks and knows of none: ask an agent", http.StatusNotImplemented)
	})
	return mux
}
