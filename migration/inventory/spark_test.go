package inventory

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Computed with Spark's own code (DiskBlockManager.getFile).
func TestSparkPlaceGoldenVectors(t *testing.T) {
	for _, v := range []struct {
		name   string
		single string // below the one local directory
		dir    int    // of three
		sub    string
	}{
		{"shuffle_0_0_0.data", "0c", 0, "04"},
		{"shuffle_0_0_0.index", "30", 2, "3a"},
		{"shuffle_1_27_0.data", "0e", 1, "2f"},
		{"shuffle_1_27_0.index", "2e", 0, "3a"},
		{"shuffle_0_0_0.checksum.ADLER32", "34", 1, "11"},
		{"rdd_5_25", "06", 2, "2c"},
	} {
		if dir, sub := SparkPlace(v.name, 1); dir != 0 || sub != v.single {
			t.Errorf("%s in one directory: got %d/%s, want 0/%s", v.name, dir, sub, v.single)
		}
		if dir, sub := SparkPlace(v.name, 3); dir != v.dir || sub != v.sub {
			t.Errorf("%s in three directories: got %d/%s, want %d/%s", v.name, dir, sub, v.dir, v.sub)
		}
	}
	// "polygenelubricants" is the well-known string whose hashCode is the smallest int, which has no absolute value.
	if dir, sub := SparkPlace("polygenelubricants", 3); dir != 0 || sub != "00" {
		t.Errorf("hash without a positive twin: got %d/%s, want 0/00", dir, sub)
	}
}

// listing returns what a scan yields, as sorted lines.
func listing(t testing.TB, s *Store) string {
	t.Helper()
	var lines []string
	for it, err := range s.Scan(t.Context()) {
		switch {
		case err != nil:
			lines = append(lines, fmt.Sprintf("fault %s %v", it.ID, err))
		case it.Skip != "":
			lines = append(lines, fmt.Sprintf("leave %s (%d bytes): %s", it.ID, it.Bytes(), it.Skip))
		case it.Stays != "":
			lines = append(lines, fmt.Sprintf("stays %s (%d bytes): %s", it.ID, it.Bytes(), it.Stays))
		default:
			var line strings.Builder
			line.WriteString(fmt.Sprintf("carry %s", it.ID))
			for _, m := range it.Members {
				line.WriteString(fmt.Sprintf(" %s:%d@%d/%s", m.Name, m.Bytes, m.Root, m.Path))
			}
			lines = append(lines, line.String())
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n") + "\n"
}

func golden(t testing.TB, name, got string) {
	t.Helper()
	p := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(p, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(p)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("got\n%swant (go test -update rewrites it)\n%s", got, want)
	}
}

// The listing is of one node's disk with everything on it that a scan must tell apart.
func TestSparkScanTellsApart(t *testing.T) {
	n := newBox(t, with(sparkStore, "d0", "d1"))
	in := func(dirs ...string) []string {
		for i := range dirs {
			dirs[i] = filepath.Join(n.dir, dirs[i])
		}
		return dirs
	}
	standalone := in("d0/spark-1/executor-1/blockmgr-a0", "d1/spark-2/executor-1/blockmgr-a1")
	writeMapOutput(t, standalone, 0, 1, 10, 0, 20)
	writeMapOutput(t, standalone, 0, 2) // empty: an index and no data
	write(t, spot(standalone, "shuffle_0_3_0.index"), indexOf(10))
	write(t, spot(standalone, "shuffle_0_4_0.data"), []byte("not committed"))
	write(t, spot(standalone, "shuffle_0_5_0.index"), indexOf(5, 10))
	write(t, spot(standalone, "shuffle_0_5_0.data"), []byte("11 bytes !!"))
	write(t, spot(standalone, "shuffle_0_6_0.index"), []byte("not an index"))
	write(t, spot(standalone, "shuffle_0_7_0.checksum.CRC32"), []byte("alone!!!"))
	write(t, spot(standalone, "shuffle_9223372036854775807_9223372036854775807_0.index"), indexOf(0))
	write(t, spot(standalone, "rdd_5_25"), []byte("cached"))
	write(t, spot(standalone, "broadcast_1_piece0"), []byte("b"))
	write(t, spot(standalone, "temp_local_5f8a"), []byte("t"))
	write(t, spot(standalone, "temp_shuffle_5f8a"), []byte("t"))
	write(t, spot(standalone, "shuffle_0_8_0.data.0f8fad5b-d9cb-469f-a165-70867728950e"), []byte("t"))
	write(t, spot(standalone, "shuffleMerged_app-1_0_0_1.data"), []byte("m"))
	write(t, spot(standalone, "notes.txt"), []byte("?"))
	if err := os.Symlink("/etc/passwd", filepath.Join(filepath.Dir(spot(standalone, "rdd_5_25")), "rdd_6_6")); err != nil {
		t.Fatal(err)
	}

	yarn := in("d0/usercache/u/appcache/application_1_1/blockmgr-y0", "d1/usercache/u/appcache/application_1_1/blockmgr-y1")
	other := in("d0/usercache/u/appcache/application_2_2/blockmgr-z0", "d1/usercache/u/appcache/application_2_2/blockmgr-z1")
	writeMapOutput(t, yarn, 0, 1, 30)
	writeMapOutput(t, other, 0, 1, 30) // the same name and size: only the application tells them apart
	write(t, spot(yarn, "rdd_1_1"), []byte("cached"))

	single := in("d1/old/blockmgr-s") // of an executor that had one directory
	writeMapOutput(t, single, 7, 1, 40)

	write(t, filepath.Join(n.dir, "d0/userFiles-1/dep.jar"), []byte("outside of any block manager"))
	write(t, filepath.Join(n.dir, "d0", StagingDir, "blockmgr-no/0c/rdd_1_1"), []byte("half landed"))
	golden(t, "spark-scan.golden", listing(t, n.stores[0]))
}

// A standalone worker's directories name no application, but a file in them may. A file that names none changes
// nothing.
func TestSparkFileNamesTheApplication(t *testing.T) {
	n := newBox(t, with(sparkStore, "d0", "d1", "d2"))
	for x, said := range []string{"app-20261127190534-0000\n", "../../etc\n"} {
		managers := executor(n.dir, x)
		for _, m := range managers {
			write(t, filepath.Join(m, appFile), []byte(said))
		}
		writeMapOutput(t, managers, 0, apart(1)[0], 77) // alike: only the application tells them apart
	}
	name := fmt.Sprintf("shuffle_0_%d_0", apart(1)[0])
	var got []BlockID
	for it, err := range n.stores[0].Scan(t.Context()) {
		if err != nil || it.Skip != "" || it.Stays != "" {
			t.Fatalf("got %+v, %v", it, err)
		}
		got = append(got, it.ID)
	}
	slices.Sort(got)
	index, _ := SparkPlace(name+".index", 3)
	want := []BlockID{BlockID("spark/app-20261127190534-0000/" + name), BlockID(fmt.Sprintf("spark/blockmgr-1%d/%s", index, name))}
	if !slices.Equal(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
	for _, id := range want {
		if b, err := n.stores[0].Find(id); err != nil || b.ID != id {
			t.Errorf("find %s: got %s, %v", id, b.ID, err)
		}
	}
}

// Attempts of one YARN application share its directories and count maps from 0. A file in each attempt's directory says which attempt it
// is, so that one does not get the other's output, and it is found again where it landed. No other application's user can name the attempt.
func TestSparkFileNamesTheAttempt(t *testing.T) {
	n := newBox(t, with(sparkStore, "d0", "d1", "d2"))
	const first, second, other = "application_1700000000000_0001", "appattempt_1700000000000_0001_000002", "application_1700000000000_0002"
	m := apart(1)[0]
	for x, at := range []struct{ below, says string }{
		{"usercache/alice/appcache/" + first, first},
		{"usercache/alice/appcache/" + first, second + "\n"},
		{"usercache/bob/appcache/" + other, second},
		{"appattempt_1700000000000_0001_000003", ""}, // what landed of it
	} {
		var managers []string
		for d := range 3 {
			managers = append(managers, filepath.Join(n.dir, fmt.Sprintf("d%d/%s/blockmgr-%d%d", d, at.below, x, d)))
			write(t, filepath.Join(managers[d], appFile), []byte(at.says))
		}
		writeMapOutput(t, managers, 0, m, 77)
	}
	for _, app := range []string{first, second, other, "appattempt_1700000000000_0001_000003"} {
		id := BlockID(fmt.Sprintf("spark/%s/shuffle_0_%d_0", app, m))
		if b, err := n.stores[0].Find(id); err != nil || b.ID != id || len(b.Members) != 3 {
			t.Errorf("find %s: got %+v, %v", id, b, err)
		}
	}
	if got := listing(t, n.stores[0]); strings.Count(got, "carry ") != 4 || strings.Count(got, second) != 1 {
		t.Errorf("got %s", got)
	}
}

// Two executors of unknown applications have the same shuffle and map ids, with data and index in different roots. Sizes
// tell which files belong together, and what they told once holds for the rest.
func TestSparkScanDoesNotConfuseExecutors(t *testing.T) {
	n := newBox(t, with(sparkStore, "d0", "d1", "d2"))
	maps := apart(10)
	for x := range 2 {
		for i, m := range maps {
			size := 50
			if i == 5 {
				size = 100 * (x + 1) // the output that tells which files belong together
			}
			writeMapOutput(t, executor(n.dir, x), 0, m, size)
		}
	}
	count := 0
	for it, err := range n.stores[0].Scan(t.Context()) {
		if err != nil || it.Skip != "" || len(it.Members) < 2 {
			t.Fatalf("got %+v, %v", it, err)
		}
		count++
		for _, m := range it.Members[:2] {
			if m.Path[:2] != it.Members[0].Path[:2] {
				t.Errorf("%s is made of %s and %s", it.ID, it.Members[0].Path, m.Path)
			}
		}
	}
	if count != 20 {
		t.Errorf("%d map outputs, want 20", count)
	}
}

// The external shuffle service removes a gone executor's checksums. Those of another executor's map output of the same name do not
// belong to its output.
func TestChecksumsOfAnotherExecutorAreNotTaken(t *testing.T) {
	n := newBox(t, with(sparkStore, "d0", "d1", "d2"))
	m := 0
	for ; ; m++ { // the first output whose checksums lie apart from its index
		index, _ := SparkPlace(fmt.Sprintf("shuffle_0_%d_0.index", m), 3)
		sums, _ := SparkPlace(fmt.Sprintf("shuffle_0_%d_0.checksum.ADLER32", m), 3)
		if index != sums {
			break
		}
	}
	gone, other := executor(n.dir, 0), executor(n.dir, 1)
	name := fmt.Sprintf("shuffle_0_%d_0", m)
	writeMapOutput(t, gone, 0, m, 100, 200)
	writeMapOutput(t, other, 0, m, 300, 400)
	if err := os.Remove(spot(gone, name+".checksum.ADLER32")); err != nil {
		t.Fatal(err)
	}
	then := time.Now().Add(-24 * time.Hour)
	for _, kind := range []string{".data", ".index"} {
		if err := os.Chtimes(spot(gone, name+kind), then, then); err != nil {
			t.Fatal(err)
		}
	}
	var members []int
	for it, err := range n.stores[0].Scan(t.Context()) {
		if err != nil || !it.Carried() {
			t.Fatalf("got %+v, %v", it, err)
		}
		members = append(members, len(it.Members))
	}
	slices.Sort(members)
	if !slices.Equal(members, []int{2, 3}) {
		t.Errorf("map outputs of %v files, want one without checksums", members)
	}
}

func TestSparkFindsWhatItScans(t *testing.T) {
	n := newBox(t, with(sparkStore, "d0", "d1"))
	managers := []string{filepath.Join(n.dir, "d0/blockmgr-a"), filepath.Join(n.dir, "d1/blockmgr-b")}
	for m := range 5 {
		writeMapOutput(t, managers, 3, m, 10*m, 5)
	}
	write(t, spot(managers, "rdd_1_2"), []byte("x"))
	for it, err := range n.stores[0].Scan(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		ids := []BlockID{it.ID}
		for _, m := range it.Members {
			ids = append(ids, it.ID.Sibling(m.Name))
		}
		for _, id := range ids {
			b, err := n.stores[0].Find(id)
			if err != nil || b.ID != it.ID || !slices.Equal(b.Members, it.Members) {
				t.Errorf("find %s: got %+v, %v", id, b, err)
			}
		}
	}
	for _, id := range []BlockID{"spark/blockmgr-a/rdd_9_9", "spark/blockmgr-zz/rdd_1_2", "spark/blockmgr-a/shuffle_9_9_0", "spark/-/x"} {
		if b, err := n.stores[0].Find(id); err == nil {
			t.Errorf("found %s: %+v", id, b)
		}
	}
}

// YARN's local directories have containers' files beside the executors'. A look for executors does not look at each of them.
func TestFilesBesideExecutorsAreNotLookedAt(t *testing.T) {
	n := newBox(t, with(sparkStore, "d0"))
	writeMapOutput(t, []string{filepath.Join(n.dir, "d0/usercache/u/appcache/application_1_1/blockmgr-y0")}, 0, 1, 30)
	const files = 2000
	for i := range files {
		plainFile(t, filepath.Join(n.dir, "d0/usercache/u/filecache", fmt.Sprint(i%4), fmt.Sprintf("lib-%d.jar", i)), nil)
	}
	s := n.stores[0]
	if allocs := testing.AllocsPerRun(5, func() { s.lookAnew(Nobody) }); allocs > files/2 {
		t.Errorf("%v allocations: each of %d files was looked at", allocs, files)
	}
	if _, err := s.Find("spark/application_1_1/shuffle_0_1_0"); err != nil {
		t.Error(err)
	}
}

func TestFilesScan(t *testing.T) {
	n := newBox(t, with(filesStore, "c0", "c1"))
	for p, content := range map[string]string{
		"c0/a": "1", "c1/a": "shadowed", "c1/b": "22", "c0/deep/er/c": "333",
		"c0/x.tmp": "t", "c0/x.part": "t", "c0/.nfs0001": "t", "c0/y~": "t",
		"c0/new\nline": "n", "c0/bad\xffutf8": "u", "c1/bad\xffutf8": "shadowed", "c0/bad\x01.tmp": "t", "c0/" + StagingDir + "/half": "h",
	} {
		write(t, filepath.Join(n.dir, p), []byte(content))
	}
	if err := os.Symlink("a", filepath.Join(n.dir, "c0/link")); err != nil {
		t.Fatal(err)
	}
	golden(t, "files-scan.golden", strings.ReplaceAll(listing(t, n.stores[0]), n.dir, "DIR"))
}

// For each file the scan asks whether a directory before its own has the name. With a dozen disks that is most of a scan.
func TestFilesOfManyDirectoriesAreCheapToTellApart(t *testing.T) {
	n := newBox(t, with(filesStore, "c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7"))
	const files = 800
	for i := range files {
		plainFile(t, filepath.Join(n.dir, fmt.Sprint("c", i%8), "app/part/deep", fmt.Sprint("f", i)), nil)
	}
	allocs := testing.AllocsPerRun(3, func() {
		for it, err := range n.stores[0].Scan(t.Context()) {
			if err != nil || !it.Carried() {
				t.Errorf("got %+v, %v", it, err)
			}
		}
	})
	if perFile := allocs / files; perFile > 8 {
		t.Errorf("%.1f allocations for each file: its way was gone by step for step in each directory", perFile)
	}
}

func TestSparkFindsForManyReadersAtOnce(t *testing.T) {
	n := newBox(t, with(sparkStore, "d0", "d1", "d2"))
	for _, m := range apart(5) {
		writeMapOutput(t, executor(n.dir, 0), 0, m, 10)
	}
	var readers sync.WaitGroup
	for it := range n.stores[0].Scan(t.Context()) {
		for range 4 {
			readers.Go(func() {
				if _, err := n.stores[0].Find(it.ID); err != nil {
					t.Errorf("find %s: %v", it.ID, err)
				}
			})
		}
	}
	readers.Wait()
}
