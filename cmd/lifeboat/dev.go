package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/cmd/lifeboat/show"
	"github.com/lifeboat/lifeboat/config"
	"github.com/lifeboat/lifeboat/dev"
	"github.com/lifeboat/lifeboat/migration/manifest"
	"github.com/lifeboat/lifeboat/pages"
)

// devFlags are the flags of lifeboat dev.
type devFlags struct {
	out    show.Format
	exit   bool
	dir    string
	nodes  int
	blocks int
	bytes  string
	rate   string
	lead   time.Duration
}

func devCommand() *cobra.Command {
	var f devFlags
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run a fleet on loopback, let its first node be preempted, and watch",
		Long: `Run a fleet on loopback: a coordinator, agents, and a pretend EC2 metadata service, with real files, certificates and
streams. The first node gets a spot interruption, drains, and is taken away; every file is then read back through a
node that does not hold it and compared with what was written.

Without --exit the fleet stays up afterwards, to be looked at with the other verbs, until Ctrl-C.
Exit code 0 only if nothing was lost and everything read back right; else 4.`,
		Example: `  lifeboat dev
  lifeboat dev --exit --output json
  lifeboat dev --nodes 5 --blocks 20000 --bytes 2GiB --lead 30s
  lifeboat dev --rate 20MiB --lead 15s --bytes 1GiB      # more than fits into the time`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	f.out.Flag(cmd)
	fl := cmd.Flags()
	fl.BoolVar(&f.exit, "exit", false, "end once the manifest is printed")
	fl.StringVar(&f.dir, "dir", "", "make everything here and leave it (default: a temporary directory, removed at the end)")
	fl.IntVar(&f.nodes, "nodes", 3, "number of agents")
	fl.IntVar(&f.blocks, "blocks", 2000, "blocks on the first node, in both layouts together")
	fl.StringVar(&f.bytes, "bytes", "512MiB", "their size together")
	fl.StringVar(&f.rate, "rate", "128MiB", "bytes a second that the first node may send, like a machine's network; 0: no cap")
	fl.DurationVar(&f.lead, "lead", 2*time.Minute, "time between the notice and the end")
	return cmd
}

// openPage serves the fleet's page to a browser without a certificate until ctx ends, and returns its address.
func openPage(ctx context.Context, fleet *dev.Fleet) (url string, err error) {
	id, err := certs.LoadDir(fleet.TLSDir)
	if err != nil {
		return "", err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	door, err := pages.New(l, []string{fleet.Pages}, id.Client(nil, certs.Name{Role: certs.RoleCoordinator}))
	if err != nil {
		return "", errors.Join(err, l.Close())
	}
	go door.Serve(ctx, l) // not waited for: it ends with ctx
	return door.URL(), nil
}

// devResult is what --output json prints; its keys are a contract.
type devResult struct {
	Node                string  `json:"node"`
	Kind                string  `json:"kind"`
	LeadSeconds         float64 `json:"lead_seconds"`
	BlocksTotal         int64   `json:"blocks_total"`
	BlocksMoved         int64   `json:"blocks_moved"`
	BlocksLost          int64   `json:"blocks_lost"`
	BytesTotal          int64   `json:"bytes_total"`
	BytesMoved          int64   `json:"bytes_moved"`
	Seconds             float64 `json:"seconds"`
	DeadlineLeftSeconds float64 `json:"deadline_left_seconds"`
	Verified            bool    `json:"verified"`
}

// maxDevNodes keeps a typing mistake from filling the machine.
const maxDevNodes = 50

func (f *devFlags) config() (dev.Config, error) {
	bytes, err := config.ParseBytes(f.bytes)
	if err != nil {
		return dev.Config{}, usagef("--bytes: %v", err)
	}
	rate, err := config.ParseBytes(f.rate)
	if err != nil {
		return dev.Config{}, usagef("--rate: %v", err)
	}
	switch {
	case f.nodes < 1 || f.nodes > maxDevNodes:
		return dev.Config{}, usagef("--nodes %d: want 1 to %d", f.nodes, maxDevNodes)
	case f.blocks < 3:
		return dev.Config{}, usagef("--blocks %d: want at least 3, some for each layout", f.blocks)
	case int64(bytes) < int64(f.blocks) || rate < 0:
		return dev.Config{}, usagef("--bytes %s, --rate %s: want a byte for each block at least, and no negative rate", f.bytes, f.rate)
	case f.lead < time.Second:
		return dev.Config{}, usagef("--lead %s: want at least 1s", f.lead)
	}
	return dev.Config{Dir: f.dir, Nodes: f.nodes, Blocks: f.blocks, Bytes: int64(bytes), Rate: int64(rate), Version: thisBuild().String()}, nil
}

func (f *devFlags) run(cmd *cobra.Command) (err error) {
	ctx := cmd.Context()
	cfg, err := f.config()
	if err != nil {
		return err
	}
	if cfg.Dir == "" {
		if cfg.Dir, err = os.MkdirTemp("", "lifeboat-dev-"); err != nil {
			return err
		}
		defer os.RemoveAll(cfg.Dir)
	}
	screen := newScreen(cmd.ErrOrStderr())
	screen.say("Making %s in %d blocks, certificates, and a fleet of %d in %s ...", show.Size(cfg.Bytes), cfg.Blocks, cfg.Nodes, cfg.Dir)
	fleet, err := dev.Start(ctx, cfg)
	defer func() { err = errors.Join(err, fleet.Close()) }()
	if err != nil {
		return err
	}
	screen.say("While it runs, in another terminal:")
	screen.say("  export LIFEBOAT_COORDINATOR=%s LIFEBOAT_TLS_DIR=%s", fleet.Coordinator, fleet.TLSDir)
	screen.say("  lifeboat nodes --watch        lifeboat events --follow")
	page, err := openPage(ctx, fleet)
	if err != nil {
		return err
	}
	screen.say("In a browser on this machine: %s", page)
	screen.say("")
	screen.say("The cloud says: node-1 will be terminated in %s.", show.Span(f.lead))
	fleet.Interrupt(f.lead)
	if err := watchDrain(ctx, fleet, screen); err != nil {
		return err
	}
	result, err := f.account(ctx, cmd.OutOrStdout(), fleet, screen)
	if err != nil {
		return err
	}
	if !f.exit {
		screen.say("The fleet stays up; Ctrl-C ends it.")
		<-ctx.Done()
	}
	switch {
	case result.BlocksLost > 0:
		return incompletef("%s lost", show.Count(result.BlocksLost, "block"))
	case !result.Verified:
		return incompletef("not every block could be read back as it was written")
	}
	return nil
}

// account waits for the manifest, takes the node away, reads all blocks back, and prints the result.
func (f *devFlags) account(ctx context.Context, stdout io.Writer, fleet *dev.Fleet, screen *screen) (devResult, error) {
	a, err := fleet.Manifest(ctx)
	if err != nil {
		return devResult{}, err
	}
	screen.say("The cloud takes node-1. Reading every block back through a node that does not hold it ...")
	fleet.Take()
	done, all := 0, fleet.Files()
	wrong := fleet.Verify(ctx, a, func() {
		done++
		screen.progress("  %d of %d files read back", done, all)
	})
	screen.last = time.Time{} // so that progress shows the last count in any case
	screen.progress("  %d of %d files read back", done, all)
	screen.keep()
	if ctx.Err() != nil { // interrupted: files that were not read are not wrong
		return devResult{}, context.Cause(ctx)
	}
	s := a.Summary
	r := devResult{
		Node: s.Node, Kind: s.Kind, LeadSeconds: f.lead.Seconds(),
		BlocksMoved: s.Moved.Blocks, BlocksLost: s.Lost.Blocks, BlocksTotal: s.Moved.Blocks + s.Lost.Blocks,
		BytesMoved: s.Moved.Bytes, BytesTotal: s.Moved.Bytes + s.Lost.Bytes,
		Seconds:             s.FinishedAt.AsTime().Sub(s.StartedAt.AsTime()).Seconds(),
		DeadlineLeftSeconds: s.Deadline.AsTime().Sub(s.FinishedAt.AsTime()).Seconds(),
		Verified:            len(wrong) == 0,
	}
	for i, err := range wrong {
		if i == 5 {
			screen.say("  ... and %d more", len(wrong)-5)
			break
		}
		screen.say("  %v", err)
	}
	if f.out == show.JSON {
		return r, show.WriteJSON(stdout, r)
	}
	return r, f.print(stdout, a, r)
}

func (f *devFlags) print(w io.Writer, a dev.Account, r devResult) error {
	type row struct{ blocks, bytes int64 }
	byPeer, peers := map[string]row{}, []string{}
	reasons, why := map[string]int{}, []string{}
	for _, e := range a.Entries {
		if e.Outcome == string(manifest.Moved) {
			if _, ok := byPeer[e.Peer]; !ok {
				peers = append(peers, e.Peer)
			}
			p := byPeer[e.Peer]
			byPeer[e.Peer] = row{p.blocks + 1, p.bytes + e.Bytes}
			continue
		}
		line := e.Outcome + ": " + e.Reason
		if reasons[line]++; reasons[line] == 1 {
			why = append(why, line)
		}
	}
	verdict := "every block read back right through another node"
	if !r.Verified {
		verdict = "NOT every block read back right"
	}
	fmt.Fprintf(w, "manifest of %s: %s, %s notice\n", r.Node, r.Kind, show.Span(f.lead))
	fmt.Fprintf(w, "  moved    %6d blocks  %9s  in %.1fs, %s to spare\n", r.BlocksMoved, show.Size(r.BytesMoved), r.Seconds, show.Span(time.Duration(r.DeadlineLeftSeconds*float64(time.Second))))
	for _, p := range peers {
		fmt.Fprintf(w, "  to %-7s%5d blocks  %9s\n", p, byPeer[p].blocks, show.Size(byPeer[p].bytes))
	}
	fmt.Fprintf(w, "  lost     %6d blocks  %9s\n", a.Summary.Lost.Blocks, show.Size(a.Summary.Lost.Bytes))
	fmt.Fprintf(w, "  skipped  %6d files   %9s\n", a.Summary.Skipped.Blocks, show.Size(a.Summary.Skipped.Bytes))
	for i, line := range why {
		if i == 8 {
			fmt.Fprintf(w, "    ... and %d other reasons\n", len(why)-i)
			break
		}
		fmt.Fprintf(w, "    %d %s\n", reasons[line], line)
	}
	_, err := fmt.Fprintf(w, "  verified: %s\n", verdict)
	return err
}
