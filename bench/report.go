package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// row is one line of a table: a contender, timed until it said that it was done, or until the target's file
// system was synced too.
type row struct {
	label string
	speed []float64 // MiB/s, a round each
	cpu   []float64 // CPU s/GiB
	rss   [2]int64
}

// add adds a round.
func (r *row) add(s size, o outcome, took time.Duration) {
	r.speed = append(r.speed, perSecond(s, took))
	r.cpu = append(r.cpu, perGiB(s, o.cpu))
	for i, rss := range o.rss {
		r.rss[i] = max(r.rss[i], rss)
	}
}

const (
	ours     = "lifeboat"
	theOther = "other lifeboat" // the binary of -against

	placeLabel = "lifeboat, land: place"
)

func (t trial) rows() []row {
	rowOf := func(label, who string, synced bool) row {
		r := row{label: label}
		for _, o := range t.outcomes[who] {
			took := o.sent
			if synced {
				took = o.durable
			}
			r.add(t.size, o, took)
		}
		return r
	}
	var rows []row
	for _, who := range t.names {
		if who == inPlace {
			rows = append(rows, rowOf(placeLabel, who, true))
			continue
		}
		rows = append(rows, rowOf(who+meaning[who], who, true))
		if who != ours && who != theOther && who != floor {
			rows = append(rows, rowOf(who+", not synced", who, false))
		}
	}
	return rows
}

var meaning = map[string]string{ours: ": mutual TLS, durable", "rsync daemon": ", plain, syncfs", "rsync over ssh": ", aes128-gcm, syncfs",
	"tar over nc": ", plain, syncfs", "grpc stream": ", mutual TLS, syncfs", floor: ": mutual TLS, durable"}

// print writes the table for people, at most 100 columns wide.
func (t trial) print(w io.Writer) error {
	rows := t.rows()
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s, %.2f GiB, %d rounds\n", t.size, float64(t.size.bytes())/(1<<30), len(rows[0].speed))
	const line = "%-36s %5s %6s %5s %-19s %5s %6s %6s\n"
	fmt.Fprintf(&b, line, "", "MiB/s", "ratio", "want", " of each round", "CPU", "ratio", "RSS")
	for _, r := range rows {
		ratios, rss := paired(rows[0].speed, r.speed), ""
		if r.rss[0] > 0 {
			rss = fmt.Sprintf("%d/%d", r.rss[0]>>20, r.rss[1]>>20)
		}
		want := ""
		if x := t.size.wanted(r.label); x > 0 {
			want = number(x, 2)
		}
		text := fmt.Sprintf(line, r.label, number(median(r.speed), 0), number(median(ratios), 2), want, few(ratios),
			number(median(r.cpu), 2), number(median(paired(rows[0].cpu, r.cpu)), 2), rss)
		b.WriteString(strings.TrimRight(text, " \n") + "\n")
	}
	fmt.Fprintf(&b, "ratio: lifeboat's over this line's, median of the rounds. CPU: s/GiB of both sides.\n"+
		"RSS: peak MiB, source/sink. lifeboat's last receipt came %s s after the trigger, %s blocks/s;\n"+
		"at %s s it had looked again and ended, %s s into the drain; the command returned at %s s.\n",
		number(t.median(outcome.durableIn), 2), number(t.blocksPerSecond(ours), 0),
		number(t.median(outcome.endedIn), 2), number(t.median(outcome.drainIn), 2), number(t.median(outcome.toldIn), 2))
	if len(t.outcomes[floor]) > 0 {
		fmt.Fprintf(&b, "%s: %s blocks/s.\n", floor, number(t.blocksPerSecond(floor), 0))
	}
	if words := t.size.goals(); words != "" {
		fmt.Fprintf(&b, "wanted: %s.\n", words)
	}
	t.printUnpacking(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

// blocksPerSecond is the rate from the trigger to the last receipt.
func (t trial) blocksPerSecond(who string) float64 {
	return float64(t.size.n) / t.medianOf(who, outcome.durableIn)
}

func (o outcome) toldIn() float64    { return o.told.Seconds() }
func (o outcome) durableIn() float64 { return o.durable.Seconds() }
func (o outcome) endedIn() float64   { return o.ended.Seconds() }
func (o outcome) drainIn() float64   { return o.drain.Seconds() }

// median is the median of one of lifeboat's own times.
func (t trial) median(of func(outcome) float64) float64 { return t.medianOf(ours, of) }

func (t trial) medianOf(who string, of func(outcome) float64) float64 {
	var s []float64
	for _, o := range t.outcomes[who] {
		s = append(s, of(o))
	}
	return median(s)
}

func number(x float64, digits int) string { return fmt.Sprintf("%.*f", digits, x) }

// few shows as many rounds as there is room for.
func few(ratios []float64) string {
	var words []string
	for _, r := range ratios[:min(len(ratios), 3)] {
		words = append(words, number(r, 2))
	}
	s := "[" + strings.Join(words, " ")
	if len(ratios) > 3 {
		s += " .."
	}
	return s + "]"
}

func median(all []float64) float64 {
	s := slices.Sorted(slices.Values(all))
	switch n := len(s); {
	case n == 0:
		return 0
	case n%2 == 1:
		return s[n/2]
	default:
		return (s[n/2-1] + s[n/2]) / 2
	}
}

// paired returns ours over theirs for each round: in one round, both met the same disturbances of the machine.
func paired(ours, theirs []float64) []float64 {
	var r []float64
	for i := range min(len(ours), len(theirs)) {
		if theirs[i] > 0 {
			r = append(r, ours[i]/theirs[i])
		}
	}
	return r
}

// figure is one entry of latest.json. Peer is null if the figure is compared with nothing.
type figure struct {
	Suite     string   `json:"suite"`
	Name      string   `json:"name"`
	Value     float64  `json:"value"`
	Unit      string   `json:"unit"`
	Peer      *string  `json:"peer"`
	PeerValue *float64 `json:"peer_value"`
	Ratio     *float64 `json:"ratio"`
	Command   string   `json:"command"`
}

type report struct {
	options options
	trials  []trial
}

func (r report) figures() []figure {
	var all []figure
	for _, t := range r.trials {
		add := func(what, unit string, value float64) {
			all = append(all, figure{Suite: "transfer", Name: t.size.name + " " + what, Value: rounded(value), Unit: unit, Command: r.options.args})
		}
		against := func(what, unit string, mine []float64, peer string, theirs []float64) {
			add(what, unit, median(mine))
			f := &all[len(all)-1]
			f.Peer, f.PeerValue, f.Ratio = &peer, new(rounded(median(theirs))), new(rounded(median(paired(mine, theirs))))
		}
		rows := t.rows()
		us := rows[0]
		for _, them := range rows[1:] {
			against("throughput", "MiB/s", us.speed, them.label, them.speed)
			against("cpu", "CPU s/GiB", us.cpu, them.label, them.cpu)
		}
		add("blocks", "1/s", t.blocksPerSecond(ours))
		if len(t.outcomes[inPlace]) > 0 {
			for _, f := range unpackingFigures {
				add(f.name+" of land: place", f.unit, t.unpacking(f.of))
			}
		}
		add("time until the drain ended", "s", t.median(outcome.endedIn))
		add("time until the command came back", "s", t.median(outcome.toldIn))
		add("peak memory of the source", "MiB", float64(us.rss[0])/(1<<20))
		add("peak memory of the sink", "MiB", float64(us.rss[1])/(1<<20))
	}
	return all
}

// rounded keeps three decimals: more would be noise.
func rounded(x float64) float64 { return float64(int64(x*1000+0.5)) / 1000 }

// record replaces a suite's figures in the file; those of other suites stay.
func record(file, suite string, figures []figure) error {
	var all []figure
	b, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(b, &all)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("add to the figures in %s: %w", file, err)
	}
	all = slices.DeleteFunc(all, func(f figure) bool { return f.Suite == suite })
	if b, err = json.MarshalIndent(append(all, figures...), "", "  "); err != nil {
		return err
	}
	return os.WriteFile(file, append(b, '\n'), 0o644)
}

// machine describes in a line the machine that the figures were taken on.
func machine() string {
	model := "unknown processor"
	if b, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(b)) {
			if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == "model name" {
				model = strings.TrimSpace(v)
				break
			}
		}
	}
	var u unix.Utsname
	kernel := "unknown kernel"
	if unix.Uname(&u) == nil {
		kernel = unix.ByteSliceToString(u.Release[:])
	}
	return fmt.Sprintf("%d x %s, Linux %s, %s, load %s", runtime.NumCPU(), model, kernel, runtime.Version(), load())
}
