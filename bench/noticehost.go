package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/lifeboat/lifeboat/preemption"
)

// host is a pretend machine of a cloud, with a real process of the binary that waits for its notices.
type host struct {
	dir    string
	fake   *pretender
	daemon *daemon
}

// writeSettings returns the text of a host's settings file; ports are two free addresses.
type writeSettings func(h *host, ports []string) string

// newHost starts a verb of the binary on a host of its own, and returns once the process asks for notices.
func newHost(ctx context.Context, dir, binary, verb, provider string, settings writeSettings) (_ *host, err error) {
	h := &host{dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.close())
		}
	}()
	for _, d := range []string{filepath.Join(dir, "conf"), h.data(), filepath.Join(dir, "store")} {
		if err := os.MkdirAll(d, 0o750); err != nil {
			return nil, err
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "store", "block"), make([]byte, 4096), 0o600); err != nil {
		return nil, err
	}
	if h.fake, err = newPretender(provider); err != nil {
		return nil, err
	}
	ports, err := freePorts(2)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "conf", "lifeboat.yaml") // in a directory of its own: the daemon also reads conf.d beside it
	if err := os.WriteFile(file, []byte(settings(h, ports)), 0o600); err != nil {
		return nil, err
	}
	if h.daemon, err = start(ctx, filepath.Join(dir, "log"), binary, verb, "--config", file); err != nil {
		return nil, err
	}
	return h, h.daemon.until(ctx, "it asks for notices", func() bool { return len(h.fake.counts()) > 0 })
}

func (h *host) data() string { return filepath.Join(h.dir, "data") }

// agentSettings are the settings of an agent with one block, without those by which it reaches its fleet.
func agentSettings(h *host, name string, ports []string) string {
	return fmt.Sprintf(`node: {name: %s}
listen: {peer: %q, http: %q, socket: %s/agent.sock}
data_dir: %s
cloud: {provider: %s, endpoint: %q}
stores:
  - {name: bench, kind: cache, layout: files, paths: [%s/store]}
`, name, ports[0], ports[1], h.dir, h.data(), h.fake.provider, h.fake.url(), h.dir)
}

func (h *host) close() error {
	var errs []error
	if h.daemon != nil {
		_, err := h.daemon.stop()
		errs = append(errs, err)
	}
	if h.fake != nil {
		errs = append(errs, h.fake.close())
	}
	return errors.Join(errs...)
}

// hearing is how long it took until a notice was heard, and until it was durable.
type hearing struct{ heard, durable time.Duration }

// sample has the host's service give a notice, and withdraws it once the agent has it on disk. give returns the instant
// from which on the notice could be heard.
func (h *host) sample(ctx context.Context, w *journalWatch, give func() (time.Time, error)) (hearing, error) {
	given, err := give()
	if err != nil {
		return hearing{}, err
	}
	durable, err := w.durable(ctx)
	if err != nil {
		return hearing{}, h.daemon.trouble(err)
	}
	page, err := os.ReadFile(filepath.Join(h.data(), journalName))
	if err != nil {
		return hearing{}, h.daemon.trouble(err)
	}
	heard, err := readPage(page, h.fake.provider, h.fake.kind, given)
	if err != nil {
		return hearing{}, h.daemon.trouble(err)
	}
	h.fake.withdraw()
	if err := w.gone(ctx); err != nil {
		return hearing{}, h.daemon.trouble(err)
	}
	return hearing{heard.Sub(given), durable.Sub(given)}, nil
}

// readPage returns when the notice was heard. It is an error unless the journal holds that notice and no other, and
// says that the node leaves for it.
func readPage(text []byte, provider string, kind preemption.Kind, given time.Time) (heard time.Time, err error) {
	var page preemption.Page[json.RawMessage]
	if err := json.Unmarshal(text, &page); err != nil {
		return heard, fmt.Errorf("read the journal %q: %w", text, err)
	}
	all := page.Incident.Notices
	if len(all) != 1 || all[0].Source != provider || all[0].Kind != kind || all[0].Withdrawn || !page.Begun {
		return heard, fmt.Errorf("the journal holds %s, want one notice of %s, to %s, and that the node leaves", text, provider, kind)
	}
	heard = all[0].SeenAt
	if heard.Before(given.Round(0)) {
		return heard, fmt.Errorf("the notice was heard %v before it could be", given.Sub(heard))
	}
	return heard, nil
}
