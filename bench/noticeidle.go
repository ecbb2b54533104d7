package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/lifeboat/lifeboat/preemption"
)

// Targets of a process that waits for notices.
const (
	idleCPU    = 0.5 // % of a core
	idleRSS    = 20 << 20
	binarySize = 25 << 20
)

// minute is for how long idle processes are watched in a round.
const minute = time.Minute

// idler is an idle process: one line of the table.
type idler struct {
	name   string
	host   *host
	cpu    []float64 // % of a core, one value a round
	memory memory    // after the last round
	asked  map[string]int
	over   time.Duration // of all rounds together
}

// measureIdle watches processes that have nothing to do: agents in a fleet with a coordinator, and a sidecar.
func measureIdle(ctx context.Context, b bench) (_ []figure, err error) {
	into, err := b.g.fresh()
	if err != nil {
		return nil, err
	}
	idlers, closeAll, err := startIdlers(ctx, b, into)
	defer func() { err = errors.Join(err, closeAll()) }()
	if err != nil {
		return nil, err
	}
	if err := pause(ctx, min(5*time.Second, scaled(minute, b.scale))); err != nil { // what the start costs is not idle
		return nil, err
	}
	for round := range b.rounds {
		if err := watchIdlers(ctx, idlers, scaled(minute, b.scale)); err != nil {
			return nil, err
		}
		fmt.Fprintf(b.stderr, "idle: round %d, load %s\n", round+1, load())
	}
	info, err := os.Stat(b.binary)
	if err != nil {
		return nil, err
	}
	return idleFigures(idlers, info.Size(), b.args), printIdlers(b.stdout, idlers, info.Size())
}

func scaled(d time.Duration, part float64) time.Duration { return time.Duration(float64(d) * part) }

// startIdlers starts a coordinator, an agent on a host of each cloud, and a sidecar.
func startIdlers(ctx context.Context, b bench, into string) (idlers []*idler, closeAll func() error, err error) {
	clouds := []string{preemption.SourceEC2, preemption.SourceGCE, preemption.SourceAzure}
	f := &fleet{lifeboat: &lifeboat{binary: b.binary, pki: filepath.Join(into, "pki")}, dir: into}
	closeAll = func() error {
		var errs []error
		for _, i := range idlers {
			errs = append(errs, i.host.close())
		}
		return errors.Join(append(errs, f.stop())...)
	}
	if err := f.issue(ctx, clouds...); err != nil {
		return nil, closeAll, err
	}
	ports, err := freePorts(2)
	if err != nil {
		return nil, closeAll, err
	}
	if err := f.coordinate(ctx, ports[0], ports[1]); err != nil {
		return nil, closeAll, err
	}
	add := func(name, verb, cloud string, settings func(*host, []string) string) error {
		h, err := newHost(ctx, filepath.Join(into, name), b.binary, verb, cloud, settings)
		if err == nil {
			idlers = append(idlers, &idler{name: verb + ", " + cloud, host: h, asked: map[string]int{}})
		}
		return err
	}
	for _, cloud := range clouds {
		err = errors.Join(err, add("agent-"+cloud, "agent", cloud, func(h *host, own []string) string {
			return fmt.Sprintf("coordinators: [%q]\n%s%s", ports[0], f.tls(cloud), agentSettings(h, cloud, own))
		}))
	}
	return idlers, closeAll, errors.Join(err, add("sidecar", "sidecar", preemption.SourceEC2, sidecarSettings))
}

func sidecarSettings(h *host, _ []string) string {
	return fmt.Sprintf(`node: {name: sidecar}
listen: {socket: %s/sidecar.sock}
data_dir: %s
cloud: {provider: %s, endpoint: %q}
actions:
  - {name: hook, hook: {command: [/bin/true]}}
`, h.dir, h.data(), h.fake.provider, h.fake.url())
}

// watchIdlers watches all processes for one round and adds its figures.
func watchIdlers(ctx context.Context, idlers []*idler, lasts time.Duration) error {
	type state struct {
		at    time.Time
		used  usage
		asked map[string]int
	}
	now := func(i *idler) (s state, err error) {
		s.at, s.asked = time.Now(), i.host.fake.counts()
		s.used, err = readUsage(i.host.daemon.cmd.Process.Pid)
		return s, err
	}
	before := make([]state, len(idlers))
	for n, i := range idlers {
		var err error
		if before[n], err = now(i); err != nil {
			return i.host.daemon.trouble(err)
		}
	}
	if err := pause(ctx, lasts); err != nil {
		return err
	}
	for n, i := range idlers {
		after, err := now(i)
		if err == nil {
			i.memory, err = readMemory(i.host.daemon.cmd.Process.Pid)
		}
		if err != nil {
			return i.host.daemon.trouble(err)
		}
		took := after.at.Sub(before[n].at)
		i.cpu = append(i.cpu, 100*(after.used.cpu-before[n].used.cpu).Seconds()/took.Seconds())
		i.over += took
		for question, times := range after.asked {
			i.asked[question] += times - before[n].asked[question]
		}
	}
	return nil
}

// rates is how often a second each question was asked, the most frequent first.
func (i *idler) rates() (all []rate) {
	for question, times := range i.asked {
		if times > 0 {
			all = append(all, rate{question, float64(times) / i.over.Seconds()})
		}
	}
	slices.SortFunc(all, func(a, b rate) int {
		return cmp.Or(cmp.Compare(b.each, a.each), strings.Compare(a.question, b.question))
	})
	return all
}

type rate struct {
	question string
	each     float64
}

func (i *idler) requests() (sum float64) {
	for _, r := range i.rates() {
		sum += r.each
	}
	return sum
}

func printIdlers(w io.Writer, idlers []*idler, size int64) error {
	var b strings.Builder
	over := func(bad bool) string {
		if bad {
			return "!"
		}
		return ""
	}
	fmt.Fprintf(&b, "\nidle, %d times %.0f s\n%-16s %10s %8s %8s %10s %8s %8s\n", len(idlers[0].cpu),
		idlers[0].over.Seconds()/float64(len(idlers[0].cpu)), "", "requests/s", "CPU %", "RSS MiB", "anonymous", "of files", "peak")
	for _, i := range idlers {
		cpu := median(i.cpu)
		fmt.Fprintf(&b, "%-16s %10.2f %8s %8s %10.1f %8.1f %8.1f\n", i.name, i.requests(), number(cpu, 2)+over(cpu > idleCPU),
			number(mib(i.memory.rss), 1)+over(i.memory.rss > idleRSS), mib(i.memory.anonymous), mib(i.memory.files), mib(i.memory.peak))
	}
	fmt.Fprintf(&b, "targets: CPU %.1f %% of a core, RSS %d MiB; files: the binary's own pages in the page cache\n"+
		"binary: %.1f MiB%s, target %d\nrequests by path:\n", idleCPU, idleRSS>>20, mib(size), over(size > binarySize), binarySize>>20)
	for _, i := range idlers {
		for _, r := range i.rates() {
			fmt.Fprintf(&b, "  %-16s %-50s %6.3f/s\n", i.name, r.question, r.each)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func idleFigures(idlers []*idler, size int64, command string) (all []figure) {
	for _, i := range idlers {
		add := func(what, unit string, value float64) {
			all = append(all, alone("idle", i.name+", "+what, unit, value, command))
		}
		add("requests", "1/s", i.requests())
		for _, r := range i.rates() {
			add("requests for "+r.question, "1/s", r.each)
		}
		add("CPU", "% of a core", median(i.cpu))
		add("RSS", "MiB", mib(i.memory.rss))
		add("RSS, anonymous", "MiB", mib(i.memory.anonymous))
		add("peak RSS", "MiB", mib(i.memory.peak))
	}
	return append(all, alone("idle", "binary", "MiB", mib(size), command))
}

func mib(bytes int64) float64 { return float64(bytes) / (1 << 20) }

// memory is what a process has in memory, in bytes.
type memory struct{ rss, anonymous, files, peak int64 }

func readMemory(pid int) (memory, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return memory{}, err
	}
	return parseMemory(string(status))
}

// parseMemory reads proc_pid_status(5).
func parseMemory(status string) (m memory, err error) {
	wanted := map[string]*int64{"VmRSS": &m.rss, "RssAnon": &m.anonymous, "RssFile": &m.files, "VmHWM": &m.peak}
	for line := range strings.Lines(status) {
		key, rest, _ := strings.Cut(line, ":")
		into := wanted[key]
		if into == nil {
			continue
		}
		if _, err := fmt.Sscanf(rest, "%d kB", into); err != nil {
			return memory{}, fmt.Errorf("status of a process: %q: %w", line, err)
		}
		*into <<= 10
		delete(wanted, key)
	}
	if len(wanted) > 0 {
		return memory{}, fmt.Errorf("status of a process: no %s", strings.Join(slices.Sorted(maps.Keys(wanted)), ", "))
	}
	return m, nil
}
