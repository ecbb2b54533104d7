package e2e_test

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// workers returns the states of a Spark master's workers, by their ports.
func workers(page string) (states map[string]string, err error) {
	text, err := fetch(page)
	if err != nil {
		return nil, err
	}
	var said struct {
		Workers []struct {
			Port  int
			State string
		}
	}
	if err := json.Unmarshal([]byte(text), &said); err != nil {
		return nil, err
	}
	states = map[string]string{}
	for _, w := range said.Workers {
		states[fmt.Sprint(w.Port)] = w.State
	}
	return states, nil
}

// A standalone worker with decommissioning enabled hears of the cloud's notice from the sidecar, and its master gives it no more
// work. A worker without it would die of the signal, and is spared.
func TestSparkWorkerHearsOfTheNotice(t *testing.T) {
	jars := sparkJars(t)
	story(t)
	java := javaOf(t, jars)
	c := newCar(t,
		"{name: ready, signal: {signal: SIGPWR, pid_file: DIR/ready.pid}}",
		"{name: unready, signal: {signal: SIGPWR, pid_file: DIR/unready.pid}}",
	)
	_, port, _ := net.SplitHostPort(freeAddress(t))
	_, ready, _ := net.SplitHostPort(freeAddress(t))
	_, unready, _ := net.SplitHostPort(freeAddress(t))
	page := freeAddress(t)
	_, pagePort, _ := net.SplitHostPort(page)
	deploy := func(name, options, class string, args ...string) *os.Process {
		line := slices.Concat(java, strings.Fields(options), []string{"org.apache.spark.deploy." + class, "--host", "127.0.0.1"}, args)
		return c.process(name+".pid", "exec '"+strings.Join(line, "' '")+"' >>DIR/"+name+".log 2>&1").Process
	}
	deploy("master", "", "master.Master", "--port", port, "--webui-port", pagePort)
	worker := func(name, options, own string) *os.Process {
		return deploy(name, options, "worker.Worker", "--port", own, "--webui-port", "0", "--cores", "1", "--memory", "512m", "--work-dir", filepath.Join(c.dir, name), "spark://127.0.0.1:"+port)
	}
	worker("ready", "-Dspark.decommission.enabled=true", ready)
	spared := worker("unready", "", unready)
	c.up()
	states := func(want map[string]string) func() error {
		return func() error {
			got, err := workers("http://" + page + "/json/")
			if err != nil {
				return err
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				return fmt.Errorf("the master says of its workers %v, want %v", got, want)
			}
			return nil
		}
	}
	c.until(states(map[string]string{ready: "ALIVE", unready: "ALIVE"}))

	c.cloud.Interrupt("terminate", time.Now().Add(2*time.Minute))
	c.until(states(map[string]string{ready: "DECOMMISSIONED", unready: "ALIVE"}))
	c.verb("status", "-o", "json").exits(0).tells("does not catch SIGPWR and would die of it")
	if err := spared.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the worker that does not catch SIGPWR: %v, want it spared", err)
	}
}
