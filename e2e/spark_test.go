package e2e_test

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lifeboat/lifeboat/migration/lastresort"
)

// spark is a Spark application with one executor (testdata/spark/Probe.java). Spark's own code writes and reads its files.
type spark struct {
	t   *testing.T
	pid int
	in  io.WriteCloser
	out *bufio.Scanner
	err *bytes.Buffer
}

// application is an id as YARN gives them. YARN names the application's directories after it.
const application = "application_1700000000000_0001"

// apart returns the directories that a cluster manager gives to the application below dirs.
func apart(dirs []string) (all []string) {
	for _, dir := range dirs {
		all = append(all, filepath.Join(dir, "usercache/who/appcache", application))
	}
	return all
}

// sparkJars finds Spark: in $SPARK_HOME, or where tools/spark puts it.
func sparkJars(t *testing.T) string {
	t.Helper()
	if os.Getenv("LIFEBOAT_INTEROP") != "1" {
		t.Skip("runs Spark: set LIFEBOAT_INTEROP=1")
	}
	for _, program := range []string{"java", "javac"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("no %s here: install openjdk-17-jdk-headless", program)
		}
	}
	home, err := filepath.Abs(cmp.Or(os.Getenv("SPARK_HOME"), "../bin/spark"))
	if err != nil {
		t.Fatal(err)
	}
	jars := filepath.Join(home, "jars")
	if found, _ := filepath.Glob(filepath.Join(jars, "spark-core_*.jar")); len(found) == 0 {
		t.Skipf("no Spark in %s: run tools/spark, or set SPARK_HOME", home)
	}
	return jars + "/*"
}

// javaOf compiles the classes of testdata/spark and the plugin. It returns the command line, without a class, that runs one of them or of
// Spark.
func javaOf(t *testing.T, jars string) []string {
	t.Helper()
	classes := t.TempDir()
	sources, err := filepath.Glob("testdata/spark/*.java")
	if err != nil {
		t.Fatal(err)
	}
	run(t, nil, nil, "javac", slices.Concat([]string{"-cp", jars, "-d", classes, "../examples/spark/LifeboatPlugin.java"}, sources)...).exits(0)
	options := strings.Fields(run(t, nil, nil, "java", "-cp", classes+":"+jars, "Options").exits(0).stdout)
	return slices.Concat([]string{"java"}, options, []string{"-Xmx512m", "-cp", classes + ":" + jars})
}

// startSpark starts the application. When it returns, the map outputs and cached partitions of its jobs are in the local directories.
func startSpark(t *testing.T, jars string, dirs []string, fallback string, settings ...string) *spark {
	t.Helper()
	java := javaOf(t, jars)
	for _, dir := range append(dirs, fallback) {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return talk(t, jvm(slices.Concat(java, []string{"Probe", strings.Join(dirs, ","), application, fallback}, settings)))
}

// talk starts a driver that reads its orders from stdin, and returns when the driver is ready.
func talk(t *testing.T, cmd *exec.Cmd) *spark {
	t.Helper()
	s := &spark{t: t, err: &bytes.Buffer{}}
	cmd.Stderr = s.err
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	launch(t, cmd)
	s.pid, s.in, s.out = cmd.Process.Pid, in, bufio.NewScanner(out)
	s.out.Buffer(nil, 1<<20)
	t.Cleanup(func() { // before the process is killed, so that its errors are complete
		if t.Failed() {
			in.Close()
			_ = cmd.Wait()
			t.Logf("Spark:\n%s", s.err)
		}
	})
	if said := s.line(); said != "ready" {
		t.Fatalf("Spark did not start: %s", said)
	}
	return s
}

// jvm is a command that runs Java.
func jvm(line []string) *exec.Cmd {
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "SPARK_LOCAL_IP=127.0.0.1"}
	return cmd
}

func (s *spark) line() string {
	s.out.Scan()
	return s.out.Text()
}

func (s *spark) ask(question ...string) string {
	s.t.Helper()
	if _, err := fmt.Fprintln(s.in, strings.Join(question, " ")); err != nil {
		s.t.Fatal(err)
	}
	return s.line()
}

// says fails the test unless Spark gives that answer.
func (s *spark) says(want string, question ...string) {
	s.t.Helper()
	if got := s.ask(question...); got != want {
		s.t.Errorf("Spark, asked %q: got %q, want %q", question, got, want)
	}
}

// committed are the ids, with that scope, of the blocks that Spark says are on its disks.
func (s *spark) committed(scope string) (ids []string) {
	for name := range strings.FieldsSeq(s.ask("blocks")) {
		ids = append(ids, "spark/"+scope+"/"+name)
	}
	slices.Sort(ids)
	return ids
}

// clear removes the files that Spark has on its disks, as if its machine were gone, but not the directories: the process goes on.
func (s *spark) clear(dirs []string) {
	s.t.Helper()
	for _, id := range s.committed("") {
		for _, part := range []string{"", ".data", ".index", ".checksum.ADLER32"} {
			for _, dir := range dirs {
				files, _ := filepath.Glob(filepath.Join(dir, "blockmgr-*/??", filepath.Base(id)+part))
				for _, file := range files {
					if err := os.Remove(file); err != nil {
						s.t.Fatal(err)
					}
				}
			}
		}
	}
	s.says("", "blocks")
}

// carriedBy fails the test unless the node moved all that Spark says is on its disks, and skipped nothing.
func (s *spark) carriedBy(n *node, scope string) {
	s.t.Helper()
	for _, id := range s.committed(scope) {
		n.blocks = append(n.blocks, block{id: id, whole: id})
	}
	m := n.manifest()
	if n.allMoved(m); m.Blocks.Skipped != 0 {
		s.t.Errorf("the node skipped %d blocks: %+v", m.Blocks.Skipped, m.Entries)
	}
}

// served returns nil once the external shuffle service reads all partitions where it looks for them. Small blocks become files a moment
// after they land.
func (s *spark) served(dirs []string) func() error {
	const all = "read 168 of 168 verified 87 cached 12"
	return func() error {
		if got := s.ask("service", strings.Join(dirs, ",")); got != all {
			return fmt.Errorf("the shuffle service: got %q, want %q", got, all)
		}
		return nil
	}
}

// An executor has two local directories, as YARN gives them, and in another order than its node has them. It leaves to a node with three.
// The external shuffle service there finds every partition where it looks for it, with the right checksum, and the cached partitions too.
func TestSparksShuffleServiceServesWhatLanded(t *testing.T) {
	jars := sparkJars(t)
	f := newFleet(t)
	a, b := f.agent("host-a"), f.agent("host-b")
	three := append(b.spark(), filepath.Join(b.dir, "spark2"))
	b.reconfigure(fmt.Sprintf("stores: [{name: spark, kind: shuffle, layout: spark, paths: [%s]}]", strings.Join(three, ", ")))
	turned := apart(a.spark())
	slices.Reverse(turned)
	s := startSpark(t, jars, turned, filepath.Join(f.dir, "none"))
	f.up()

	a.verb("decommission", "--self", "--timeout", "90s", "--wait").exits(0)
	s.carriedBy(a, application)
	var dirs []string
	for _, dir := range three {
		dirs = append(dirs, filepath.Join(dir, application, "blockmgr-lifeboat"))
	}
	f.until(s.served(dirs))
}

// The directories that a standalone worker gives to an executor do not name the application. Its blocks are found under the name of its
// block manager.
func TestSparksShuffleServiceServesAnUnnamedApplication(t *testing.T) {
	jars := sparkJars(t)
	f := newFleet(t)
	a, b := f.agent("host-a"), f.agent("host-b")
	a.reconfigure(fmt.Sprintf("stores: [{name: spark, kind: shuffle, layout: spark, paths: [%s]}]", a.spark()[0]))
	s := startSpark(t, jars, a.spark()[:1], filepath.Join(f.dir, "none"))
	managers, _ := filepath.Glob(filepath.Join(a.spark()[0], "blockmgr-*"))
	if len(managers) != 1 {
		t.Fatalf("got the block managers %v, want one", managers)
	}
	manager := filepath.Base(managers[0])
	f.up()

	a.verb("decommission", "--self", "--timeout", "90s", "--wait").exits(0)
	s.carriedBy(a, manager)
	f.until(s.served([]string{filepath.Join(b.spark()[0], manager), filepath.Join(b.spark()[1], manager)}))
}

// No peer has room. The node puts into the fallback what Spark's own fallback storage would have, file for file, and a job of the
// application goes on from there without its executor: no map runs again.
func TestSparkGoesOnFromTheFallback(t *testing.T) {
	jars := sparkJars(t)
	f := newFleet(t)
	dir, _ := f.spill()
	a := f.agent("host-a", fmt.Sprintf("fallback: {name: spill, dir: %s, layout: spark-fallback}", dir))
	s := startSpark(t, jars, apart(a.spark()), dir)
	f.up()

	a.verb("decommission", "--self", "--timeout", "90s", "--wait").exits(0)
	s.carriedBy(a, application)
	const all = "read 87 of 168"
	s.says(all, "fallback", dir)
	own := filepath.Join(f.dir, "own")
	s.says("copied 24", "spare", own) // its driver looks for all map outputs in the fallback storage from now on
	s.says(all, "fallback", own)
	theirs, ours := tree(t, filepath.Join(own, application)), tree(t, filepath.Join(dir, application))
	for name, content := range theirs {
		if !bytes.Equal(ours[name], content) {
			t.Errorf("%s: ours has %d bytes, Spark's %d, or other ones", name, len(ours[name]), len(content))
		}
	}
	if len(theirs) == 0 || len(ours) != len(theirs) {
		t.Errorf("ours has %d files, Spark's %d", len(ours), len(theirs))
	}

	// An agent may remove every file that Spark itself has put there, so none would stay for ever.
	if err := fs.WalkDir(os.DirFS(own), ".", func(name string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() && !lastresort.Owns(name) {
			t.Errorf("%s would never be removed", name)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}

	// The executor's files are gone, and so is Spark's own copy.
	if err := os.RemoveAll(own); err != nil {
		t.Fatal(err)
	}
	s.clear(apart(a.spark()))
	s.says("right after 0 map tasks", "again")
}

// Spark goes on writing while its node leaves, renames and removes map outputs, and then ends. What is on its disks at its end has moved.
func TestSparkWritesWhileItsNodeLeaves(t *testing.T) {
	jars := sparkJars(t)
	f := newFleet(t)
	a, _ := f.agent("host-a"), f.agent("host-b")
	s := startSpark(t, jars, apart(a.spark()), filepath.Join(f.dir, "none"))
	a.reconfigure(fmt.Sprintf("workloads: [{name: spark, type: pid_file, pid_file: %s, await: true, every: 200ms}]", f.write("spark.pid", fmt.Sprint(s.pid))))
	f.up()

	a.verb("decommission", "--self", "--timeout", "600s").exits(0)
	s.says("worked", "work", "30")
	want := s.committed(application)
	s.in.Close()
	f.until(a.is("DECOMMISSIONED"))
	outcomes := map[string]string{}
	for _, e := range a.manifest().Entries {
		outcomes[e.ID] = e.Outcome + " " + e.Reason
		if e.Outcome == "lost" {
			t.Errorf("%s is lost: %s", e.ID, e.Reason)
		}
	}
	for _, id := range want {
		if got := outcomes[id]; got != "moved " {
			t.Errorf("%s: got %q, want it moved", id, got)
		}
	}
}

// tree reads the files of map outputs below a directory, without checksums: Spark's fallback storage copies none, and has those of Hadoop's
// local file system beside each file.
func tree(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || strings.HasPrefix(e.Name(), ".") || strings.Contains(e.Name(), ".checksum.") {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		all[name], err = os.ReadFile(path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
