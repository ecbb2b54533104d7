package preemption

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/preemption/azurefake"
)

// scenario is one of testdata/azure/scenarios.json, whose README says where it comes from.
type scenario struct {
	Name, Type, Source, Description string
	Seconds                         int
	NotBeforeMinutes                int `json:"not_before_minutes"`
	Timings                         map[string]struct {
		Started, Gone int // seconds; 0: it never starts
		Stances       []struct {
			From   int
			Stance Stance
		}
	}
}

// TestAzureScenarios plays Microsoft's scenarios, from the service to the stance of the node, second by second: with one id
// for an event, as the real service has it, and with a new id once it starts, as Microsoft's mock has it.
func TestAzureScenarios(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "azure", "scenarios.json"))
	if err != nil {
		t.Fatal(err)
	}
	var scenarios []scenario
	if err := json.Unmarshal(text, &scenarios); err != nil {
		t.Fatal(err)
	}
	if len(scenarios) != 6 {
		t.Fatalf("%d scenarios, want 6", len(scenarios))
	}
	for _, s := range scenarios {
		for timing, want := range s.Timings {
			for _, startedID := range []string{"", "of-its-own"} {
				t.Run(s.Name+"/"+timing+"/"+startedID, func(t *testing.T) {
					azureBubble(t, AzureConfig{}, func(t *testing.T, c *azureCloud) {
						node := c.node(t, 59800*time.Millisecond) // so that the stance does not change in the very second that the test looks
						c.WriteISO()
						shown := time.Now()
						id := c.Schedule(azurefake.Event{
							Type: s.Type, Source: s.Source, Description: s.Description, Seconds: max(s.Seconds, 0),
							NotBefore: shown.Add(time.Duration(s.NotBeforeMinutes) * time.Minute),
						})
						begun := false
						for second := range want.Gone + 60 {
							switch second {
							case 0: // it was shown this second
							case want.Gone:
								c.Remove(id)
							case want.Started:
								if startedID != "" {
									c.Change(id, func(e *azurefake.Event) { e.ID = startedID })
									id = startedID
								}
								c.Start(id)
							}
							time.Sleep(time.Second)
							synctest.Wait()
							stance := StanceIgnore
							for _, step := range want.Stances {
								if step.From <= second {
									stance = step.Stance
								}
							}
							got, _ := node.Stance()
							if got != stance {
								t.Fatalf("one poll after second %d: %s, want %s", second, got, stance)
							}
							begun = begun || got == StanceDrain
						}
						if leaves := s.Type == "Redeploy"; begun != leaves {
							t.Errorf("the node left: %v, want %v", begun, leaves)
						}
					})
				})
			}
		}
	}
}

// TestAzureCancelledEventIsForgottenWithinOnePoll is about what the scenarios lack: a cancelled event that made the node
// leave, or get ready to.
func TestAzureCancelledEventIsForgottenWithinOnePoll(t *testing.T) {
	for name, row := range map[string]struct {
		typ   string
		after time.Duration
		want  Stance
	}{
		"redeploy, far off": {"Redeploy", 5 * time.Minute, StancePreCopy},
		"redeploy, near":    {"Redeploy", 13 * time.Minute, StanceDrain},
		"preempt":           {"Preempt", 5 * time.Second, StanceDrain},
		"terminate":         {"Terminate", time.Minute, StanceDrain},
	} {
		t.Run(name, func(t *testing.T) {
			azureBubble(t, AzureConfig{}, func(t *testing.T, c *azureCloud) {
				node := c.node(t, time.Minute)
				id := c.Schedule(azurefake.Event{Type: row.typ, NotBefore: time.Now().Add(15 * time.Minute)})
				time.Sleep(row.after)
				synctest.Wait()
				if got, _ := node.Stance(); got != row.want {
					t.Fatalf("after %v: %s, want %s", row.after, got, row.want)
				}
				c.Remove(id)
				time.Sleep(time.Second)
				synctest.Wait()
				if got, _ := node.Stance(); got != StanceIgnore {
					t.Errorf("one poll after it was cancelled: %s, want %s", got, StanceIgnore)
				}
			})
		})
	}
}

// node starts what an agent does with notices: it listens, and keeps the incident, until the test ends.
func (c *azureCloud) node(t *testing.T, estimate time.Duration) *Keeper[struct{}] {
	t.Helper()
	keeper, err := OpenKeeper[struct{}](KeeperConfig{
		Dir:      t.TempDir(),
		Log:      slog.New(slog.DiscardHandler),
		Estimate: func() time.Duration { return estimate },
		Clock:    func() Moment { return Moment{Wall: time.Now()} },
	})
	if err != nil {
		t.Fatal(err)
	}
	stop := c.listen(t)
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		for n := range c.heard {
			if _, _, err := keeper.Join(n.Notice); err != nil {
				t.Error(err)
			}
			if p, open := keeper.Open(); open && p.Incident.Withdrawn() {
				if err := keeper.Close("withdrawn"); err != nil {
					t.Error(err)
				}
			}
		}
	}()
	t.Cleanup(func() { stop(); close(c.heard); <-kept })
	return keeper
}
