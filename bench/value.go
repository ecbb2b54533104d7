package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// valueRow is the result of the simulator in package migration for one fleet of which many nodes go.
type valueRow struct {
	Fleet, Who  string
	Nodes       int
	OfPossible  float64
	OfAll       float64
	Bytes       float64
	SentAgain   float64
	BrokenOff   float64
	WorstInflow int
}

// Targets of the simulated fleets: the least share of the achievable value, the largest share of bytes that is sent twice,
// and the most streams into one node.
const (
	leastValue  = 0.94
	mostAgain   = 0.05
	mostStreams = 8
)

// measureValue measures how much value is saved when many nodes of a fleet of 400 go at once. The network is a model; who
// sends which block where and when is decided by the product's own code, driven by package migration's tests. Each round is
// another fleet of each sort.
func measureValue(ctx context.Context, b bench) ([]figure, error) {
	dir, err := b.g.fresh()
	if err != nil {
		return nil, err
	}
	table := filepath.Join(dir, "value.json")
	cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "-timeout", "30m", "-run", "^TestValueSaved$", "./migration", "-value-table", table, "-value-seeds", fmt.Sprint(b.rounds))
	cmd.Dir = b.root
	out, failed := cmd.CombinedOutput()
	text, err := os.ReadFile(table)
	if err != nil {
		return nil, fmt.Errorf("simulate: %w: %s", failed, out)
	}
	if failed != nil {
		fmt.Fprintf(b.stderr, "value: the simulator's test says no:\n%s\n", out)
	}
	var rows []valueRow
	if err := json.Unmarshal(text, &rows); err != nil {
		return nil, fmt.Errorf("read %s: %w", table, err)
	}
	fmt.Fprintf(b.stderr, "value: simulated, load %s\n", load())
	rows = ofRounds(rows)
	return valueFigures(rows, b.args), printValue(b.stdout, rows, b.rounds)
}

// ofRounds makes one row of all rows that differ only in their round: medians, and the largest number of streams into a
// node.
func ofRounds(rows []valueRow) (all []valueRow) {
	for len(rows) > 0 {
		first := rows[0]
		var value, ofAll, bytes, again, broken []float64
		var rest []valueRow
		for _, r := range rows {
			if r.Fleet != first.Fleet || r.Who != first.Who {
				rest = append(rest, r)
				continue
			}
			value, ofAll, bytes = append(value, r.OfPossible), append(ofAll, r.OfAll), append(bytes, r.Bytes)
			again, broken = append(again, r.SentAgain), append(broken, r.BrokenOff)
			first.WorstInflow = max(first.WorstInflow, r.WorstInflow)
		}
		first.OfPossible, first.OfAll, first.Bytes = median(value), median(ofAll), median(bytes)
		first.SentAgain, first.BrokenOff = median(again), median(broken)
		all, rows = append(all, first), rest
	}
	return all
}

func (r valueRow) ours() bool { return strings.HasPrefix(r.Who, "lifeboat") }

func printValue(w io.Writer, rows []valueRow, rounds int) error {
	var b strings.Builder
	fmt.Fprintf(&b, "\nvalue saved by a fleet of 400 nodes, simulated; medians of %d; ! over the target\n", rounds)
	const line = "%-30s %5s %8s %6s %6s %7s %8s\n"
	fmt.Fprintf(&b, line, "", "leave", "of what", "of all", "of", "sent", "streams")
	fmt.Fprintf(&b, line, "", "", "can be %", "%", "bytes", "again %", "into one")
	fleet := ""
	for _, r := range rows {
		if r.Fleet != fleet {
			fleet = r.Fleet
			b.WriteString(fleet + "\n")
		}
		mark := func(text string, bad bool) string {
			if bad && r.ours() {
				return text + "!"
			}
			return text
		}
		percent := func(share float64) string { return fmt.Sprintf("%.1f", 100*share) }
		fmt.Fprintf(&b, line, "  "+r.Who, fmt.Sprint(r.Nodes), mark(percent(r.OfPossible), r.OfPossible < leastValue), percent(r.OfAll),
			percent(r.Bytes), mark(percent(r.SentAgain), r.SentAgain > mostAgain), mark(fmt.Sprint(r.WorstInflow), r.WorstInflow > mostStreams))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// valueFigures are lifeboat's rows, compared with the policy "oldest first".
func valueFigures(rows []valueRow, args string) (all []figure) {
	for _, r := range rows {
		if !r.ours() {
			continue
		}
		name := r.Fleet
		if i := strings.Index(r.Who, ", "); i >= 0 {
			name += r.Who[i:]
		}
		value := figure{Suite: "value", Name: name + ": value saved", Value: rounded(100 * r.OfPossible), Unit: "% of achievable", Command: args}
		for _, other := range rows {
			if other.Fleet == r.Fleet && strings.HasPrefix(other.Who, "oldest") {
				theirs, ratio := rounded(100*other.OfPossible), rounded(r.OfPossible/other.OfPossible)
				value.Peer, value.PeerValue, value.Ratio = &other.Who, &theirs, &ratio
			}
		}
		all = append(all, value,
			figure{Suite: "value", Name: name + ": sent again", Value: rounded(100 * r.SentAgain), Unit: "% of bytes", Command: args},
			figure{Suite: "value", Name: name + ": streams into one node", Value: float64(r.WorstInflow), Unit: "streams", Command: args})
	}
	return all
}
