package e2e_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/certs"
)

// second is Lifeboat's name for the application's second attempt.
const second = "appattempt_1700000000000_0001_000002"

// A job whose executor's machine is gone runs all its maps again. If its driver has the plugin of examples/spark, it reads the map outputs
// where they were moved instead: at a peer, through the shuffle service there, or from the fallback.
func TestSparkJobSurvivesWithThePlugin(t *testing.T) {
	jars := sparkJars(t)
	for _, where := range []string{"nowhere", "peer", "attempt", "fallback", "standalone"} {
		t.Run(where, func(t *testing.T) {
			f := newFleet(t)
			spill, _ := f.spill()
			last := fmt.Sprintf("fallback: {name: spill, dir: %s, layout: spark-fallback}", spill)
			a, b := f.agent("host-a", last), f.agent("localhost", last) // nodes have the names by which Spark knows their hosts
			if where == "fallback" {
				b.room = false
				b.reconfigure(noRoom, last)
			}
			_, port, _ := net.SplitHostPort(freeAddress(t))
			settings := []string{
				"spark.plugins=LifeboatPlugin", "spark.lifeboat.socket=" + b.socket, "spark.lifeboat.dirs=" + strings.Join(b.spark(), ","),
				"spark.shuffle.service.port=" + port, "spark.app.id=" + application, // an executor of a cluster knows it; one in the driver not yet
			}
			var service *shuffleService
			name := application
			switch where {
			case "nowhere":
				settings = nil
			case "attempt":
				name = second
				settings = append(settings, "spark.app.attempt.id=2")
			}
			dirs := apart(a.spark())
			if where == "standalone" {
				dirs = a.spark() // as a standalone worker gives them
			}
			s := startSpark(t, jars, dirs, spill, settings...)
			f.up()
			a.verb("decommission", "--self", "--timeout", "90s", "--wait").exits(0)
			s.clear(dirs)
			a.kill()

			switch {
			case where == "nowhere":
				s.says("has 0 and 0 of 12", "lose")
				s.says("right after 24 map tasks", "again")
				return
			case where != "fallback":
				// An executor of another user than the shuffle service's, as on YARN, may not open the files that landed for that service.
				s.says("false", "setting", "spark.shuffle.readHostLocalDisk")
				f.until(func() error { // small blocks become files later
					files, _ := filepath.Glob(filepath.Join(b.dir, "spark?", name, "blockmgr-lifeboat/??/*.index"))
					if len(files) != 24 {
						return fmt.Errorf("%d map outputs are in their places, want 24", len(files))
					}
					return nil
				})
				service = startShuffleService(t, jars, port)
				f.until(service.listens)
			}
			s.says("found", "lose")
			s.says("right after 0 map tasks", "again")
			if where == "peer" { // the shuffle service begins anew, like a NodeManager that has kept nothing
				service.stop()
				service = startShuffleService(t, jars, port)
				f.until(service.knowsLifeboat)
				s.says("right after 0 map tasks", "again")
			}
		})
	}
}

// Cached partitions on the disks of a machine that goes are read where they were moved, and none is computed again. When the job drops
// them, Spark removes them there.
func TestSparkReadsWhatItHadCached(t *testing.T) {
	jars := sparkJars(t)
	f := newFleet(t)
	run(t, nil, nil, binary, "tls", "issue", "--dir", f.tls, "--app", "spark").exits(0)
	a, b := f.agent("127.0.0.1"), f.agent("localhost") // nodes have the names by which Spark knows their hosts
	java := javaOf(t, jars)
	classes, _, _ := strings.Cut(java[len(java)-1], ":")
	_, port, _ := net.SplitHostPort(freeAddress(t))
	_, service, _ := net.SplitHostPort(freeAddress(t))
	deploy := f.sparks(java, jars)
	master := "spark://127.0.0.1:" + port
	deploy(nil, "", "master.Master", "--host", "127.0.0.1", "--port", port, "--webui-port", "0")
	deploy(append(a.spark(), b.spark()...), "-Dspark.shuffle.service.port="+service, "ExternalShuffleService") // one service for both nodes: they share the loopback interface
	leaver := deploy.worker(a.spark(), a.host, master, "")
	deploy.worker(b.spark(), b.host, master, "")
	f.up()
	s := talk(t, jvm(slices.Concat(java, []string{
		"Cache", master, "spark.driver.host=localhost", "spark.driver.bindAddress=127.0.0.1", "spark.locality.wait=60s", "spark.executor.memory=512m",
		"spark.executor.extraClassPath=" + classes, "spark.local.dir=" + t.TempDir(),
		"spark.shuffle.service.enabled=true", "spark.shuffle.service.fetch.rdd.enabled=true", "spark.shuffle.service.port=" + service,
		"spark.plugins=LifeboatPlugin", "spark.lifeboat.socket=" + b.socket, "spark.lifeboat.dirs=" + strings.Join(b.spark(), ","),
		"spark.lifeboat.coordinators=" + f.http, "spark.lifeboat.ca=" + filepath.Join(f.tls, "ca.pem"),
		"spark.lifeboat.cert=" + filepath.Join(f.tls, "spark.pem"), "spark.lifeboat.key=" + filepath.Join(f.tls, "spark.key"),
	})))
	s.says("66 with 12 computed", "sum")
	s.says("[127.0.0.1, localhost]", "where")

	a.verb("decommission", "--self", "--timeout", "90s", "--wait").exits(0)
	f.until(func() error { // small blocks become files later
		if got := s.ask("where"); got != "[localhost]" {
			return fmt.Errorf("the driver looks for cached partitions at %s", got)
		}
		return nil
	})
	if err := syscall.Kill(-leaver.Process.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	a.kill()
	if err := os.RemoveAll(a.dir); err != nil {
		t.Fatal(err)
	}
	s.says("66 with 0 computed", "sum")
	carried := func() (files []string) {
		files, _ = filepath.Glob(filepath.Join(b.dir, "spark?/app-*/blockmgr-lifeboat/??/rdd_*"))
		return files
	}
	if len(carried()) == 0 {
		t.Error("nothing was carried")
	}
	s.says("dropped", "drop")
	if left := carried(); len(left) != 0 {
		t.Errorf("Spark left %v at the peer", left)
	}
}

// With spark.authenticate, a NodeManager's shuffle service knows an application's secret only if an executor of it has started there; that
// of a standalone worker has one secret for all. Where the service does not know the secret, or is silent, or there is no service, the
// driver fetches the landed map outputs, and executors read them at the driver. The end of a shuffle makes room for another to be fetched:
// here there is room for one only.
func TestSparkReadsWhatNoShuffleServiceServes(t *testing.T) {
	jars := sparkJars(t)
	for _, why := range []string{"no secret", "no service", "silent"} {
		t.Run(why, func(t *testing.T) {
			f := newFleet(t)
			run(t, nil, nil, binary, "tls", "issue", "--dir", f.tls, "--app", "spark").exits(0)
			a, b := f.agent("127.0.0.1"), f.agent("127.0.0.2") // nodes have the names by which Spark knows their hosts
			java := javaOf(t, jars)
			classes, _, _ := strings.Cut(java[len(java)-1], ":")
			_, port, _ := net.SplitHostPort(freeAddress(t))
			const secret = "sesame"
			const options = "-Dspark.authenticate=true -Dspark.authenticate.secret=" + secret
			const room = 32 << 10
			own := t.TempDir() // the driver's
			settings := []string{
				"spark.driver.host=localhost", "spark.driver.bindAddress=127.0.0.1", "spark.executor.memory=512m",
				"spark.executor.extraClassPath=" + classes, "spark.local.dir=" + own, "spark.authenticate=true", "spark.authenticate.secret=" + secret,
				"spark.plugins=LifeboatPlugin", "spark.lifeboat.socket=" + b.socket, fmt.Sprint("spark.lifeboat.fetch=", room),
				"spark.lifeboat.coordinators=" + f.http, "spark.lifeboat.ca=" + filepath.Join(f.tls, "ca.pem"),
				"spark.lifeboat.cert=" + filepath.Join(f.tls, "spark.pem"), "spark.lifeboat.key=" + filepath.Join(f.tls, "spark.key"),
			}
			var silent *silence
			if why != "no service" {
				_, service, _ := net.SplitHostPort(freeAddress(t))
				settings = append(settings, "spark.shuffle.service.enabled=true", "spark.shuffle.service.port="+service, "spark.lifeboat.dirs="+strings.Join(b.spark(), ","))
				services := []string{"Services", service, secret, "127.0.0.1=known", "127.0.0.3=known"}
				if why == "silent" {
					silent = listenInSilence(t, "127.0.0.2:"+service)
				} else {
					services = append(services, "127.0.0.2=unknown")
				}
				talk(t, jvm(slices.Concat(java, services)))
			}
			deploy, master := f.sparks(java, jars), "spark://127.0.0.1:"+port
			deploy(nil, options, "master.Master", "--host", "127.0.0.1", "--port", port, "--webui-port", "0")
			leaver := deploy.worker(a.spark(), a.host, master, options)
			f.up()
			s := talk(t, jvm(slices.Concat(java, []string{"Reduce", master}, settings)))
			fetched := func() error { // small blocks become files later
				if got := s.ask("where"); got != "[localhost]" {
					return fmt.Errorf("the driver looks for map outputs at %s, not at its own host", got)
				}
				return nil
			}
			s.says("719400 of 1200 mapped", "sum")
			s.says("[127.0.0.1]", "where")

			a.verb("decommission", "--self", "--timeout", "90s").exits(0)
			if silent != nil {
				f.until(silent.wasAsked)
			}
			s.says("entered", "merge", a.host, "127.0.0.3")
			f.until(func() error { // what was merged at the leaver nobody is sent to
				if got := s.ask("merged"); got != "[127.0.0.3]" {
					return fmt.Errorf("the driver looks for merged parts at %s", got)
				}
				return nil
			})
			f.until(fetched)
			if silent != nil {
				if took := <-silent.left; took > 20*time.Second { // 5 s, and what a busy machine adds; Spark's own patience with an authentication is 30 s
					t.Errorf("the driver waited %v for a silent shuffle service", took)
				}
			}
			var has int64
			for name, content := range tree(t, own) {
				if strings.HasPrefix(filepath.Base(name), "shuffle_") {
					has += int64(len(content))
				}
			}
			if has <= room/2 || has > room {
				t.Errorf("the driver has fetched %d bytes, want more than half of %d, and no more than that", has, room)
			}

			s.says("ended", "anew")
			s.says("719400 of 1200 mapped", "sum")
			f.until(fetched)
			deploy.worker([]string{filepath.Join(f.dir, "third")}, "127.0.0.3", master, options)
			if err := syscall.Kill(-leaver.Process.Pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			a.kill()
			if err := os.RemoveAll(a.dir); err != nil {
				t.Fatal(err)
			}
			s.says("719400 of 0 mapped", "sum")
		})
	}
}

// A driver with the addresses of coordinators says that its application lives, and in the end that it is over. YARN's later attempts are
// other applications to the coordinators.
func TestSparkDriverSaysThatItLives(t *testing.T) {
	jars := sparkJars(t)
	v := newTrio(t)
	for _, d := range v.all { // certificates without an address: the driver knows a coordinator by the role in it
		run(t, nil, nil, binary, "tls", "issue", "--dir", v.tls, "--coordinator", d.name).exits(0)
		d.kill()
	}
	for _, d := range v.all[1:] {
		d.start()
	}
	run(t, nil, nil, binary, "tls", "issue", "--dir", v.tls, "--app", "spark").exits(0)
	a := v.agent("host-a")
	v.up()
	node, err := certs.Load(filepath.Join(v.tls, "ca.pem"), filepath.Join(v.tls, "host-a.pem"), filepath.Join(v.tls, "host-a.key"))
	if err != nil {
		t.Fatal(err)
	}
	impostor, err := tls.Listen("tcp", "127.0.0.1:0", node.Server([]string{"http/1.1"}))
	if err != nil {
		t.Fatal(err)
	}
	pages := http.Server{
		Handler:  http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the driver believes a node") }),
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0),
	}
	go pages.Serve(impostor)
	defer pages.Close()
	told := []string{impostor.Addr().String()} // after the impostor, coordinators that redirect to the leader
	leader := v.leader()
	for i, d := range v.all {
		if d != leader {
			told = append(told, v.https[i])
		}
	}
	settings := []string{
		"spark.plugins=LifeboatPlugin", "spark.test.appId=" + application, "spark.lifeboat.socket=" + a.socket,
		"spark.lifeboat.coordinators=" + strings.Join(told, ", "), "spark.lifeboat.ca=" + filepath.Join(v.tls, "ca.pem"),
		"spark.lifeboat.cert=" + filepath.Join(v.tls, "spark.pem"), "spark.lifeboat.key=" + filepath.Join(v.tls, "spark.key"),
	}
	is := func(name, state, why string) func() error {
		return func() error {
			said := v.verb("apps", "-o", "json")
			if said.code != 0 {
				return fmt.Errorf("%s", said.stderr) // an election is under way
			}
			for _, app := range decode[[]api.AppJSON](said) {
				if app.App == name && app.Owner == "app:spark" && app.State == state && app.Why == why && (app.Lease == nil || *app.Lease == 300) {
					return nil
				}
			}
			return fmt.Errorf("want %s to be %s, got %s", name, state, said.stdout)
		}
	}
	for id, name := range map[string]string{"1": application, "2": second} {
		s := startSpark(t, jars, apart(a.spark()), filepath.Join(v.dir, "none"), append(settings, "spark.app.attempt.id="+id)...)
		v.until(is(name, "RUNNING", ""))
		s.says("right after 0 map tasks", "again")
		if err := syscall.Kill(s.pid, syscall.SIGTERM); err != nil { // Spark stops at SIGTERM
			t.Fatal(err)
		}
		if said := s.line(); said != "" { // the output ends when Spark does
			t.Errorf("Spark says %q, want it to end", said)
		}
		v.until(is(name, "OVER", "it said so"))
	}
}

// A driver asks about the map outputs on a leaving host after one second, and then every two seconds; not at each of its looks, which are
// twenty a second.
func TestSparkDriverAsksNowAndThen(t *testing.T) {
	jars := sparkJars(t)
	f := newFleet(t)
	run(t, nil, nil, binary, "tls", "issue", "--dir", f.tls, "--app", "spark").exits(0)
	a := f.agent("127.0.0.1") // the name by which Spark knows the driver's host
	f.up()
	var mu sync.Mutex
	asked := map[string][]time.Time{} // by map output
	socket := filepath.Join(f.socks, "pretend.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	agent := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Lifeboat-Node", a.host) // all are still on the host where they were made
		if r.Method != http.MethodPost {
			return
		}
		ids, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		for id := range strings.Lines(string(ids)) {
			asked[id] = append(asked[id], time.Now())
		}
	})}
	go agent.Serve(listener)
	defer agent.Close()
	startSpark(t, jars, apart(a.spark()), filepath.Join(f.dir, "none"),
		"spark.plugins=LifeboatPlugin", "spark.test.appId="+application, "spark.lifeboat.socket="+socket,
		"spark.lifeboat.coordinators="+f.http, "spark.lifeboat.ca="+filepath.Join(f.tls, "ca.pem"),
		"spark.lifeboat.cert="+filepath.Join(f.tls, "spark.pem"), "spark.lifeboat.key="+filepath.Join(f.tls, "spark.key"))
	a.verb("decommission", "--self", "--timeout", "90s").exits(0)

	f.until(func() error {
		mu.Lock()
		defer mu.Unlock()
		if len(asked) != 24 {
			return fmt.Errorf("the driver has asked about %d map outputs, want 24", len(asked))
		}
		for id, at := range asked {
			if len(at) < 4 {
				return fmt.Errorf("the driver has asked %d times about %s", len(at), id)
			}
		}
		return nil
	})
	mu.Lock()
	defer mu.Unlock()
	for id, at := range asked {
		if took := at[3].Sub(at[0]); took < 4500*time.Millisecond {
			t.Errorf("the driver asked four times within %v about %s", took, id)
		}
	}
}

// sparks starts a part of a standalone Spark cluster, which ends with the test.
type sparks func(dirs []string, options, class string, args ...string) *exec.Cmd

func (f *fleet) sparks(java []string, jars string) sparks {
	return func(dirs []string, options, class string, args ...string) *exec.Cmd {
		f.t.Helper()
		cmd := jvm(slices.Concat(java, strings.Fields(options), []string{"org.apache.spark.deploy." + class}, args))
		cmd.Env = append(cmd.Env, "SPARK_HOME="+filepath.Dir(filepath.Dir(jars)), "SPARK_SCALA_VERSION=2.13", "SPARK_LOCAL_DIRS="+strings.Join(dirs, ","))
		log, err := os.OpenFile(filepath.Join(f.dir, "deploy.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			f.t.Fatal(err)
		}
		defer log.Close()
		cmd.Stderr = log
		launch(f.t, cmd)
		return cmd
	}
}

func (start sparks) worker(dirs []string, host, master, options string) *exec.Cmd {
	return start(dirs, options, "worker.Worker", "--host", host, "--webui-port", "0", "--cores", "1", "--memory", "512m", "--work-dir", filepath.Join(filepath.Dir(dirs[0]), "work-"+host), master)
}

// silence is a shuffle service that takes a connection and says nothing.
type silence struct {
	asked atomic.Bool        // somebody has connected
	left  chan time.Duration // how long he waited
}

func (s *silence) wasAsked() error {
	if !s.asked.Load() {
		return errors.New("nobody has asked the silent shuffle service")
	}
	return nil
}

func listenInSilence(t *testing.T, address string) *silence {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	s := &silence{left: make(chan time.Duration, 1)}
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		begun := time.Now()
		s.asked.Store(true)
		_, _ = io.Copy(io.Discard, conn)
		s.left <- time.Since(begun)
	}()
	return s
}

// shuffleService is Spark's external shuffle service, which ends with the test.
type shuffleService struct {
	t    *testing.T
	cmd  *exec.Cmd
	port string
	log  string
}

func startShuffleService(t *testing.T, jars, port string) *shuffleService {
	t.Helper()
	log, err := os.CreateTemp(t.TempDir(), "service")
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := jvm(append(javaOf(t, jars), "-Dspark.shuffle.service.port="+port, "org.apache.spark.deploy.ExternalShuffleService"))
	cmd.Stderr = log
	launch(t, cmd)
	return &shuffleService{t, cmd, port, log.Name()}
}

func (s *shuffleService) listens() error {
	conn, err := net.Dial("tcp", "127.0.0.1:"+s.port)
	if err == nil {
		conn.Close()
	}
	return err
}

// knowsLifeboat returns nil once the service was told where Lifeboat's files are.
func (s *shuffleService) knowsLifeboat() error {
	said, err := os.ReadFile(s.log)
	if err == nil && !strings.Contains(string(said), "[appId="+application+",execId=lifeboat-localhost] with ExecutorShuffleInfo[") {
		err = fmt.Errorf("it has heard of no executor of Lifeboat's: %s", said)
	}
	return err
}

func (s *shuffleService) stop() {
	if err := syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL); err != nil {
		s.t.Fatal(err)
	}
	_ = s.cmd.Wait()
}
