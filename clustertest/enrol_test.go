package clustertest_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/agent"
	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/clustertest"
	"github.com/lifeboat/lifeboat/config"
	"github.com/lifeboat/lifeboat/coordinator"
	"github.com/lifeboat/lifeboat/enrol"
)

// A node that joined by itself renews its certificate while it runs. A node that was off until its certificate ended joins again with the
// key that it has, and is the same node; so does one that ran, and found no coordinator for so long.
func TestCertificatesAreRenewedAndRegained(t *testing.T) {
	const life = 10 * time.Minute
	token := filepath.Join(t.TempDir(), "token")
	joins, renamed, data := false, false, ""
	cfg := clustertest.Config{
		Agents: 2,
		Coordinator: func(cfg *coordinator.Config) {
			cfg.Issue = coordinator.Issue{CAKey: filepath.Join(filepath.Dir(cfg.TLS.CA), "ca.key"), Life: life}
		},
		Agent: func(i int, cfg *agent.Config) {
			cfg.Cloud.Provider, cfg.Cloud.Endpoint = "none", "" // spares hours of polling a cloud each second
			if i == 1 && joins {
				f := enrol.In(cfg.DataDir)
				cfg.TLS, cfg.Join, data = config.TLS{CA: f.CA, Cert: f.Cert, Key: f.Key}, agent.Join{TokenFile: token}, cfg.DataDir
			}
			if i == 1 && renamed { // its host has another name, and its certificate the old one
				cfg.Node.Name = ""
			}
		},
	}
	bubble(t, cfg, func(t *testing.T, c *clustertest.Cluster) {
		// give puts a new token where the node looks for one.
		give := func() {
			reply, err := c.Operator(0).CreateToken(t.Context(), &api.CreateTokenRequest{Uses: 1})
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(token, []byte(reply.Token+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		c.Kill(1)
		c.WaitState(1, "LOST") // a name cannot be joined with while its node is alive
		joins = true
		give()
		c.Restart(1)
		c.WaitState(1, "ACTIVE")
		key, err := os.ReadFile(enrol.In(data).Key)
		if err != nil {
			t.Fatal(err)
		}
		incarnation := c.Status(1).Incarnation
		for range 6 {
			c.Sleep(life / 4)
			if left := time.Until(c.Status(1).CertificateEnds.AsTime()); left < life/4 {
				t.Fatalf("%s are left of a certificate that lasts %s", left, life)
			}
		}
		c.Kill(1)
		c.Sleep(life + life/8)
		renamed = true
		give()
		c.Restart(1)
		c.WaitState(1, "ACTIVE")
		again, err := os.ReadFile(enrol.In(data).Key)
		if err != nil || string(again) != string(key) || c.Status(1).Incarnation != incarnation {
			t.Errorf("after it was off it has another key or another incarnation (%v)", err)
		}
		c.Partition(1)
		c.Sleep(life + life/8)
		c.Heal()
		give()
		c.WaitState(1, "ACTIVE")
		if got := c.Status(1).Incarnation; got != incarnation {
			t.Errorf("after it was cut off its incarnation is %v, and was %v", got, incarnation)
		}
	})
}
