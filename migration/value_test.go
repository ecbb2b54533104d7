package migration

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"
)

var (
	valueSeeds = flag.Int("value-seeds", 1, "how many fleets of each sort the simulator takes away")
	valueTable = flag.String("value-table", "", "simulate all sorts of fleets and contenders, and write what came of it to `FILE`")
)

const gbit = 1e9 / 8

// fleets are what the simulator takes away.
func fleets(t *testing.T) []simSetup {
	long := simSetup{notice: 120 * time.Second, tail: 10 * time.Second, link: 10 * gbit, bytes: 150e9, sigma: 1.5, poor: 1, waves: twoWaves, oneIn: 4}
	short := simSetup{notice: 30 * time.Second, tail: 5 * time.Second, link: 16 * gbit, bytes: 60e9, sigma: 1.5, poor: 1, waves: twoWaves, oneIn: 4}
	of := func(s simSetup, name string, pools []int, spot int) simSetup {
		s.name, s.pools, s.spot = name, pools, spot
		s.quick = s.notice < time.Minute
		return s
	}
	traced := func(s simSetup, name, trace string) simSetup {
		s.waves = recorded(t, trace)
		return of(s, name, []int{64, 64, 64, 52, 52, 52, 52}, 3)
	}
	three := of(short, "30 s, 3 pools", pools(3, 400), 3)
	three.quick = false // it takes as long as the others together
	half := three
	half.name, half.oneIn = "30 s, 3 pools, half of the second", 2
	capped := of(short, "30 s, 4 pools, capped", pools(4, 400), 4)
	capped.link, capped.bytes, capped.poor = 10*gbit, 50e9, 2
	advised := of(short, "30 s, all advised to go", pools(1, 200), 1)
	advised.advised, advised.waves, advised.quick = 1, someOfAll, false
	beside := of(short, "30 s, all but 20 advised to go", []int{180, 20}, 2)
	beside.advised, beside.waves = 1, someOfAll
	return []simSetup{
		advised,
		beside,
		of(long, "120 s, 8 pools", pools(8, 400), 8),
		of(short, "30 s, 8 pools", pools(8, 400), 8),
		three,
		half,
		capped,
		traced(long, "120 s, recorded, zones in turn", "aws-zones-in-turn"),
		traced(short, "30 s, recorded, zones apart", "aws-zones-apart"),
	}
}

func pools(n, of int) (all []int) {
	for i := range n {
		all = append(all, of*(i+1)/n-of*i/n)
	}
	return all
}

// valueRow is a line of the table that `go run ./bench -suite value` prints.
type valueRow struct {
	Fleet, Who  string
	Nodes       int     // that leave
	OfPossible  float64 // value saved, of what is achievable
	OfAll       float64 // and of all that was there
	Bytes       float64
	SentAgain   float64
	BrokenOff   float64
	WorstInflow int
}

const (
	ours      = "lifeboat"
	oursAlone = "lifeboat, coordinator dead"
)

// When much of a fleet goes at once, what is worth most is elsewhere in the end, whether or not a coordinator lives; little
// is sent twice; and nobody is sent to by more than it can serve.
func TestValueSaved(t *testing.T) {
	var table []valueRow
	for _, fleet := range fleets(t) {
		if !fleet.quick && *valueTable == "" {
			continue
		}
		for seed := range *valueSeeds {
			t.Run(fmt.Sprintf("%s/%d", fleet.name, seed), func(t *testing.T) {
				fleet.seed, fleet.order = uint64(seed), "value"
				alone, random, oldest := fleet, fleet, fleet
				alone.alone = true
				random.order = "random"
				oldest.order, oldest.sparkPeers = "oldest", true
				saved := map[string]float64{}
				for _, c := range []struct {
					who string
					simSetup
				}{{ours, fleet}, {oursAlone, alone}, {"random order", random}, {"oldest first, as Spark", oldest}} {
					if c.order == "random" && *valueTable == "" {
						continue
					}
					r := c.run(t)
					row := valueRow{fleet.name, c.who, r.leavers, r.ofAchievable(), r.value, r.bytes, r.again, r.wasted, r.worst}
					table = append(table, row)
					saved[c.who] = row.OfPossible
					if c.order != "value" {
						continue
					}
					if row.OfPossible < 0.94 || row.WorstInflow > 8 || row.SentAgain > 0.05 {
						t.Errorf("got %+v, want 94 %% of what is achievable, at most 5 %% sent again, at most 8 streams into a node", row)
					}
				}
				if saved[oursAlone] < 0.9*saved[ours] || saved["oldest first, as Spark"] > 0.9*saved[ours] {
					t.Errorf("got %v, want nearly as much without a coordinator, and much less by age", saved)
				}
			})
		}
	}
	if *valueTable != "" {
		text, err := json.Marshal(table)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(*valueTable, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
