package e2e_test

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
)

// A job whose executor's machine went runs all its maps again, unless its driver has the plugin of examples/spark: then it reads what
// was carried to a peer, by the shuffle service there, or to the last resort.
func TestSparkJobSurvivesWithThePlugin(t *testing.T) {
	jars := sparkJars(t)
	for _, where := range []string{"nowhere", "peer", "fallback"} {
		t.Run(where, func(t *testing.T) {
			f := newFleet(t)
			spill, _ := f.spill()
			last := fmt.Sprintf("fallback: {name: spill, dir: %s, layout: spark-fallback}", spill)
			a, b := f.agent("host-a", last), f.agent("localhost", last) // nodes are named as Spark knows their hosts
			if where == "fallback" {
				b.room = false
				b.reconfigure(noRoom, last)
			}
			_, port, _ := net.SplitHostPort(freeAddress(t))
			settings := []string{
				"spark.plugins=LifeboatPlugin", "spark.lifeboat.socket=" + b.socket, "spark.lifeboat.dirs=" + strings.Join(b.spark(), ","),
				"spark.shuffle.service.port=" + port,
			}
			if where == "nowhere" {
				settings = nil
			}
			s := startSpark(t, jars, apart(a.spark()), spill, settings...)
			f.up()
			a.verb("decommission", "--self", "--timeout", "90s", "--wait").exits(0)
			s.clear(apart(a.spark()))
			a.kill()

			switch where {
			case "nowhere":
				s.says("has 0 and 0 of 12", "lose")
				s.says("right after 24 map tasks", "again")
				return
			case "peer":
				f.until(func() error { // small blocks become files later
					files, _ := filepath.Glob(filepath.Join(b.dir, "spark?", application, "blockmgr-lifeboat/??/*.index"))
					if len(files) != 24 {
						return fmt.Errorf("%d map outputs are in their places, want 24", len(files))
					}
					return nil
				})
				f.until(shuffleService(t, jars, port))
			}
			s.says("found", "lose")
			s.says("right after 0 map tasks", "again")
		})
	}
}

// shuffleService runs Spark's external shuffle service until the test ends.
func shuffleService(t *testing.T, jars, port string) (listens func() error) {
	t.Helper()
	java := javaOf(t, jars)
	launch(t, jvm(append(java, "-Dspark.shuffle.service.port="+port, "org.apache.spark.deploy.ExternalShuffleService")))
	return func() error {
		conn, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err == nil {
			conn.Close()
		}
		return err
	}
}
