// Command bench measures Lifeboat: how fast it empties a node, beside rsync on the same disks in the same minutes; how soon it hears
// of a notice, and what waiting for one costs; how much it saves over a narrow link; and what a coordinator bears: the death of the
// leader, many followers of events, ten thousand agents, and a bad day of theirs. `make bench` runs it; docs/benchmarks.md says how to
// read its figures.
//
// It runs the real binaries as an operator would: agents and a coordinator with certificates of their own, an rsync daemon, and rsync
// over a private sshd; only the clouds are pretend. It measures from outside, through /proc, the manifest and the journal, and
// profiles nothing.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		if !errors.Is(err, flag.ErrHelp) {
			fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		}
		os.Exit(1)
	}
}

// mostScale bounds -scale. Corpus d then has four million tiny blocks, 16 GB together, as a node with terabytes of shuffle files may
// have.
const mostScale = 20

type options struct {
	suites  []string
	rounds  int
	corpora []size
	dir     string
	skipSSH bool
	against string
	// contenders are the names of those that run beside lifeboat; empty: all.
	contenders []string
	scale      float64
	cold       bool
	args       string
}

func parse(args []string, stderr io.Writer) (options, error) {
	o := options{args: strings.Join(append([]string{"go run ./bench"}, args...), " ")}
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.IntVar(&o.rounds, "rounds", 3, "how often each contender runs, and how many minutes idle processes are watched")
	f.StringVar(&o.dir, "dir", "", "make the work directory in `DIR` (default: bin/ of the checkout)")
	f.BoolVar(&o.skipSSH, "skip-ssh", false, "leave out rsync over ssh")
	f.StringVar(&o.against, "against", "", "measure another lifeboat `BINARY` beside this one: transfer, storm")
	f.Float64Var(&o.scale, "scale", 1, "make corpora, samples and minutes so many `TIMES` what they are, less than 1 for a quick try; records nothing")
	chosen := f.String("suite", strings.Join(defaultSuites(), ","), "`NAMES` of what is measured; links are for root")
	beside := f.String("beside", "", "`NAMES` of the contenders that run beside lifeboat, of one suite (default: all)")
	f.BoolVar(&o.cold, "cold", false, "have nothing of a corpus in memory when a contender begins; for root, and records nothing")
	names := f.String("corpus", "a,b,c,d", "`NAMES` of the corpora: a has many small blocks, b a mixture, c few large ones, d very many tiny ones")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 || o.rounds < 1 || o.scale <= 0 || o.scale > mostScale {
		return o, fmt.Errorf("want -rounds of 1 or more, -scale above 0 and at most %d, and no other words", mostScale)
	}
	if *beside != "" {
		o.contenders = strings.Split(*beside, ",")
	}
	o.suites = strings.Split(*chosen, ",")
	for _, name := range o.suites {
		if !slices.Contains(suiteNames(), name) {
			return o, fmt.Errorf("-suite %s: there are %s", name, strings.Join(suiteNames(), ", "))
		}
	}
	for name := range strings.SplitSeq(*names, ",") {
		s, ok := corpora[name]
		if !ok {
			return o, fmt.Errorf("-corpus %s: there are a, b, c and d", name)
		}
		if s.name, s.cold = name, o.cold; o.cold {
			s.name += "-cold" // its figures are others, and have no targets
		}
		o.corpora = append(o.corpora, s.scaled(o.scale))
	}
	return o, nil
}

// bench is what every suite measures with.
type bench struct {
	options
	g              *ground
	root, binary   string // root of the checkout; binary of the daemons
	stdout, stderr io.Writer
}

// suite is one question that bench answers, in tables and figures.
type suite struct {
	name    string
	needs   func(o options) error
	measure func(context.Context, bench) ([]figure, error)
}

// needCold returns why -cold cannot be had: making the kernel forget its caches is for root.
func needCold(cold bool) error {
	if cold && os.Geteuid() != 0 {
		return errors.New("-cold: only root may have the kernel drop its caches")
	}
	return nil
}

func suites() []suite {
	nothing := func(options) error { return nil }
	return []suite{
		{"transfer", func(o options) error {
			return errors.Join(needCold(o.cold), needs("rsync", "rsync"), needs("nc", "netcat-openbsd"), needs("tar", "tar"), needSSH(o.skipSSH))
		}, measureTransfer},
		{"relay", func(o options) error { return needCold(o.cold) }, measureRelay},
		{"notices", nothing, measureNotices},
		{"idle", nothing, measureIdle},
		{"soak", nothing, measureSoak},
		{"failover", nothing, measureFailover},
		{"subscribers", nothing, measureSubscribers},
		{"agents", nothing, measureAgents},
		{"storm", nothing, measureStorm},
		{"links", func(options) error { return needLinks() }, measureLinks},
		{"value", nothing, measureValue},
	}
}

// defaultSuites are all suites that the caller may run, without the storm: it has no targets and takes half an hour.
func defaultSuites() []string {
	return slices.DeleteFunc(suiteNames(), func(name string) bool { return name == "links" && os.Geteuid() != 0 || name == "storm" })
}

func suiteNames() (names []string) {
	for _, s := range suites() {
		names = append(names, s.name)
	}
	return names
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	chosen := slices.DeleteFunc(suites(), func(s suite) bool { return !slices.Contains(o.suites, s.name) })
	for _, s := range chosen {
		if err := s.needs(o); err != nil {
			return err
		}
	}
	root, err := moduleRoot(ctx)
	if err != nil {
		return err
	}
	b := bench{options: o, root: root, binary: filepath.Join(root, "bin", "lifeboat"), stdout: stdout, stderr: stderr}
	if err := build(ctx, root, b.binary, "./cmd/lifeboat"); err != nil {
		return err
	}
	if b.g, err = newGround(o.dir, filepath.Join(root, "bin")); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.g.close()) }()
	if b.g.trap != nil {
		fmt.Fprintf(stderr, "chattr +T: %v: figures of many small files may suffer from inodes just freed\n", b.g.trap)
	}
	fmt.Fprintln(stdout, machine())
	latest := filepath.Join(root, "bench", "latest.json")
	for _, s := range chosen {
		figures, err := s.measure(ctx, b)
		if err != nil {
			return err
		}
		if o.scale != 1 || o.cold {
			fmt.Fprintf(stderr, "%s: nothing recorded: with -scale or -cold it is not what is compared from time to time\n", s.name)
			continue
		}
		if err := record(latest, s.name, figures); err != nil {
			return err
		}
	}
	return nil
}

// measureTransfer empties a node with lifeboat, and has the other contenders do the same work.
func measureTransfer(ctx context.Context, b bench) ([]figure, error) {
	contenders, err := prepare(ctx, b)
	if err != nil {
		return nil, err
	}
	r := report{options: b.options}
	for _, s := range b.corpora {
		t, err := measure(ctx, b.g, s, contenders, b.rounds, b.stderr)
		if err != nil {
			return nil, err
		}
		r.trials = append(r.trials, t)
		if err := t.print(b.stdout); err != nil {
			return nil, err
		}
	}
	return r.figures(), nil
}

// prepare makes what the contenders keep between rounds: certificates, ssh keys, and the programs that are built here.
func prepare(ctx context.Context, b bench) ([]contender, error) {
	us, err := newLifeboat(ctx, b.binary, b.g.dir, "source", "sink")
	if err != nil {
		return nil, err
	}
	stream, err := newGRPCStream(ctx, b.root, b.g.dir, us.pki)
	if err != nil {
		return nil, err
	}
	bare, err := newBareStream(ctx, b.root, b.g.dir, us.pki)
	if err != nil {
		return nil, err
	}
	all := []contender{us}
	if b.against != "" {
		all = append(all, &lifeboat{label: theOther, land: us.land, binary: b.against, pki: us.pki})
	}
	all = append(all, &lifeboat{label: inPlace, land: "place", binary: us.binary, pki: us.pki})
	all = append(all, rsyncDaemon{}, tarPipe{}, stream, bare)
	if !b.skipSSH {
		ssh, err := newRsyncSSH(ctx, b.g.dir)
		if err != nil {
			return nil, err
		}
		all = append(all, ssh)
	}
	return chosen(all, b.contenders)
}

// chosen returns the first contender and those of the others that are named, or all if no name is given. A name that no contender has
// is an error: the contender that was meant would be missing.
func chosen(all []contender, names []string) ([]contender, error) {
	var known []string
	for _, c := range all {
		known = append(known, c.name())
	}
	for _, n := range names {
		if !slices.Contains(known, n) {
			return nil, fmt.Errorf("-beside: %q is no contender: want some of %q", n, known[1:])
		}
	}
	return slices.DeleteFunc(all, func(c contender) bool {
		return c != all[0] && len(names) > 0 && !slices.Contains(names, c.name())
	}), nil
}

// needs returns an error that says how to install a program, if it is missing.
func needs(program, pkg string) error {
	if _, err := exec.LookPath(program); err != nil {
		return fmt.Errorf("%s is not installed: apt-get install %s", program, pkg)
	}
	return nil
}

func needSSH(skip bool) error {
	if skip {
		return nil
	}
	if _, err := sshd(); err != nil {
		return errors.New("sshd is not installed: apt-get install openssh-server, or leave rsync over ssh out with -skip-ssh")
	}
	if _, err := exec.LookPath("ssh"); err != nil {
		return errors.New("ssh is not installed: apt-get install openssh-client, or leave rsync over ssh out with -skip-ssh")
	}
	return nil
}

func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	mod := strings.TrimSpace(string(out))
	if err != nil || filepath.Base(mod) != "go.mod" {
		return "", errors.New("run it in the checkout: go run ./bench")
	}
	return filepath.Dir(mod), nil
}

// build builds a program of the checkout with the flags of `make build`.
func build(ctx context.Context, root, program, source string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-tags", "grpcnotrace", "-ldflags=-s -w", "-o", program, source)
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", program, err, out)
	}
	return nil
}
