package raftstore

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	bolt "go.etcd.io/bbolt"
	"golang.org/x/sys/unix"
)

func openStore(t *testing.T, path string) *Store {
	t.Helper()
	s, err := Open(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func entryAt(i uint64) *raft.Log {
	return &raft.Log{
		Index: i, Term: 1 + i/10, Type: raft.LogCommand, AppendedAt: time.Unix(0, int64(i)),
		Data: []byte(strings.Repeat(fmt.Sprintf("entry %d ", i), 1+int(i%50))), Extensions: []byte("x"),
	}
}

// checkEntries wants exactly the entries from..to, whole.
func checkEntries(s *Store, from, to uint64) error {
	first, err1 := s.FirstIndex()
	last, err2 := s.LastIndex()
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	if first != from || last != to {
		return fmt.Errorf("got entries %d to %d, want %d to %d", first, last, from, to)
	}
	for i := from; i <= to && i != 0; i++ {
		var got raft.Log
		if err := s.GetLog(i, &got); err != nil {
			return fmt.Errorf("entry %d: %w", i, err)
		}
		if want := entryAt(i); string(got.Data) != string(want.Data) || got.Term != want.Term || got.Type != want.Type ||
			!got.AppendedAt.Equal(want.AppendedAt) || string(got.Extensions) != "x" || got.Index != i {
			return fmt.Errorf("entry %d: got %+v, want %+v", i, got, *want)
		}
	}
	return nil
}

// A log that belongs to another user is whole: nobody is told to begin without it.
func TestLogOfAnotherUserIsNotDamaged(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "raft.db")
	if err := openStore(t, path).Close(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chmod(path, 0), os.Chmod(dir, 0o711), os.Chmod(filepath.Dir(dir), 0o711)); err != nil {
		t.Fatal(err)
	}
	opened := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread, which is not root's any more for files, ends with this
		if os.Geteuid() == 0 {
			if err := unix.Setfsuid(65534); err != nil {
				t.Error(err)
			}
		}
		_, err := Open(path, slog.New(slog.DiscardHandler))
		opened <- err
	}()
	err := <-opened
	if _, bad := errors.AsType[DamagedError](err); bad || err == nil || !strings.Contains(err.Error(), "must own data_dir") {
		t.Errorf("got %v, want that the file may not be read", err)
	}
}

func TestRaftStoreKeeps(t *testing.T) {
	path := filepath.Join(t.TempDir(), "raft.db")
	s := openStore(t, path)
	if err := checkEntries(s, 0, 0); err != nil {
		t.Error(err)
	}
	var batch []*raft.Log
	for i := uint64(1); i <= 100; i++ {
		batch = append(batch, entryAt(i))
	}
	err := errors.Join(s.StoreLogs(batch), s.DeleteRange(1, 30), s.DeleteRange(91, 1<<40),
		s.Set([]byte("k"), []byte("v")), s.SetUint64([]byte("n"), 1<<60))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openStore(t, path)
	if err := checkEntries(s, 31, 90); err != nil {
		t.Error(err)
	}
	if err := s.GetLog(30, new(raft.Log)); !errors.Is(err, raft.ErrLogNotFound) {
		t.Errorf("got %v, want %v", err, raft.ErrLogNotFound)
	}
	if v, err := s.Get([]byte("k")); string(v) != "v" || err != nil {
		t.Errorf("got %q, %v, want v", v, err)
	}
	if v, err := s.GetUint64([]byte("n")); v != 1<<60 || err != nil {
		t.Errorf("got %d, %v, want 1<<60", v, err)
	}
	if v, err := s.Get([]byte("none")); len(v) != 0 || err != nil {
		t.Errorf("got %q, %v, want nothing", v, err)
	}
	if v, err := s.GetUint64([]byte("none")); v != 0 || err != nil {
		t.Errorf("got %d, %v, want 0", v, err)
	}
}

func TestRaftStoreIsOpenedOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "raft.db")
	openStore(t, path)
	if _, err := Open(path, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "another process has it open") {
		t.Errorf("got %v, want a word about the other process", err)
	}
}

// A commit writes its pages, syncs, and then writes one of the two first pages. So a crash leaves any of the other changed
// pages written or not, or the first page torn as well. Each such file must open with what was there before the commit,
// and the whole commit only when its first page is whole.
func TestRaftStoreSurvivesCrashes(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "raft.db")
	s := openStore(t, path)
	const pageSize = 4096
	for last := uint64(0); last < 60; last += 3 {
		before := read(t, path)
		if err := s.StoreLogs([]*raft.Log{entryAt(last + 1), entryAt(last + 2), entryAt(last + 3)}); err != nil {
			t.Fatal(err)
		}
		after := read(t, path)

		var pages []int // changed behind the first two
		meta := -1
		for at := 0; at < len(after); at += pageSize {
			if at < len(before) && string(before[at:at+pageSize]) == string(after[at:at+pageSize]) {
				continue
			}
			if at < 2*pageSize {
				meta = at
			} else {
				pages = append(pages, at)
			}
		}
		if meta < 0 || len(pages) == 0 {
			t.Fatalf("a commit changed page %d and %v", meta, pages)
		}
		image := func(written uint) []byte {
			file := append(append([]byte{}, before...), make([]byte, max(0, len(after)-len(before)))...)
			for i, at := range pages {
				if written>>i&1 != 0 {
					copy(file[at:at+pageSize], after[at:])
				}
			}
			return file
		}
		from := min(last, 1)
		for written := range uint(1) << min(len(pages), 6) {
			reopen(t, dir, image(written), from, last)
		}
		for _, torn := range []int{1, 20, 40, 64, 79} { // inside of the 80 bytes that count
			file := image(^uint(0))
			copy(file[meta:meta+torn], after[meta:])
			if string(file[meta:meta+80]) != string(after[meta:meta+80]) {
				reopen(t, dir, file, from, last)
			}
		}
		reopen(t, dir, after, 1, last+3)
	}
}

func reopen(t *testing.T, dir string, file []byte, from, to uint64) {
	t.Helper()
	path := filepath.Join(dir, "copy.db")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := Open(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatalf("reopen with entries %d to %d: %v", from, to, err)
	}
	defer s.Close()
	if err := checkEntries(s, from, to); err != nil {
		t.Fatal(err)
	}
	// and it takes more
	if err := s.StoreLog(entryAt(to + 1)); err != nil {
		t.Fatal(err)
	}
	if err := checkEntries(s, max(from, 1), to+1); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// A file without its end comes not from a crash but from a bad copy or a full backup disk. It is refused with what to do about it, never with
// a panic, and never read with fewer entries than were acknowledged.
func TestRaftStoreRefusesCutFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "raft.db")
	s := openStore(t, path)
	const entries = 200
	for i := uint64(1); i <= entries; i++ {
		if err := s.StoreLog(entryAt(i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	whole := read(t, path)
	refused, short := 0, 0
	for size := 1; size < len(whole); size += 2048 {
		cut := filepath.Join(dir, "cut.db")
		if err := os.WriteFile(cut, whole[:size], 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := Open(cut, slog.New(slog.DiscardHandler))
		if err != nil {
			refused++
			if strings.Contains(err.Error(), "cut short: it has") {
				short++
			}
			if _, bad := errors.AsType[DamagedError](err); !bad {
				t.Errorf("cut to %d bytes: %v: does not say that it is damaged", size, err)
			}
			continue
		}
		if err := checkEntries(s, 1, entries); err != nil {
			t.Errorf("cut to %d bytes, opened: %v", size, err)
		}
		s.Close()
	}
	if refused == 0 || short < refused-8 { // below two pages it is no database at all
		t.Errorf("got %d cut files refused, %d of them as cut short", refused, short)
	}
}

// A flipped byte in an entry is refused, or was in a page that nothing uses any more.
func TestRaftStoreRefusesAlteredEntry(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "raft.db")
	s := openStore(t, path)
	for i := uint64(1); i <= 40; i++ {
		if err := s.StoreLog(entryAt(i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	whole := read(t, path)
	refused := 0
	for at := 0; ; at++ {
		next := bytes.Index(whole[at:], []byte("entry 17 "))
		if next < 0 {
			break
		}
		at += next
		file := bytes.Clone(whole)
		file[at+3] ^= 0x40
		bad := filepath.Join(dir, "bad.db")
		if err := os.WriteFile(bad, file, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := Open(bad, slog.New(slog.DiscardHandler))
		if err != nil {
			refused++
			if _, bad := errors.AsType[DamagedError](err); !bad || !strings.Contains(err.Error(), "log entry 17: checksum") {
				t.Errorf("byte %d flipped: %v: does not name the entry as damaged", at, err)
			}
			continue
		}
		if err := checkEntries(s, 1, 40); err != nil {
			t.Errorf("byte %d flipped, opened: %v", at, err)
		}
		s.Close()
	}
	if refused == 0 {
		t.Error("no altered file was refused")
	}
}

const childEnv = "LIFEBOAT_TEST_RAFTSTORE"

// TestMain lets this binary be the process that is killed.
func TestMain(m *testing.M) {
	if path := os.Getenv(childEnv); path != "" {
		fmt.Fprintln(os.Stderr, storeForEver(path))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// storeForEver stores entry after entry and prints the index of each once it is acknowledged.
func storeForEver(path string) error {
	s, err := Open(path, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	last, err := s.LastIndex()
	if err != nil {
		return err
	}
	for {
		batch := make([]*raft.Log, 1+last%4)
		for i := range batch {
			last++
			batch[i] = entryAt(last)
		}
		if err := errors.Join(s.StoreLogs(batch), s.SetUint64([]byte("term"), last)); err != nil {
			return err
		}
		if last%64 > 60 && last > 200 { // the log is cut at its start, as after a snapshot
			if err := s.DeleteRange(1, last-200); err != nil {
				return err
			}
		}
		fmt.Println(last)
	}
}

func TestRaftStoreSurvivesKill9(t *testing.T) {
	path := filepath.Join(t.TempDir(), "raft.db")
	rounds := 12
	if testing.Short() {
		rounds = 3
	}
	var acknowledged uint64
	for round := range rounds {
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), childEnv+"="+path)
		child.Stderr = os.Stderr
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			i, err := strconv.ParseUint(lines.Text(), 10, 64)
			if err != nil {
				break // the last line may be cut
			}
			acknowledged = i
			if n == 20+7*round {
				if err := child.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		child.Wait() // killed: the error says so

		s, err := Open(path, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		first, _ := s.FirstIndex()
		last, _ := s.LastIndex()
		if last < acknowledged {
			t.Errorf("round %d: entry %d was acknowledged, the last one kept is %d", round, acknowledged, last)
		}
		if err := checkEntries(s, first, last); err != nil {
			t.Errorf("round %d: %v", round, err)
		}
		if term, err := s.GetUint64([]byte("term")); err != nil || term < acknowledged || term > last {
			t.Errorf("round %d: got stable value %d (%v), want %d to %d", round, term, err, acknowledged, last)
		}
		s.Close()
	}
}

func FuzzDecodeEntry(f *testing.F) {
	f.Add(key(7), encodeEntry(entryAt(7)))
	f.Add([]byte{}, []byte{1})
	f.Fuzz(func(t *testing.T, k, v []byte) {
		var e raft.Log
		if decodeEntry(k, v, &e) == nil && string(encodeEntry(&e)) != string(v) {
			t.Errorf("%x decodes, and encodes as another", v)
		}
	})
}

// A log that was just empty, as after the restore of a snapshot, has its leader's first entry.
func TestNewestCommand(t *testing.T) {
	s, err := Open(filepath.Join(t.TempDir(), "raft.db"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, next := range []struct {
		entry *raft.Log
		want  uint64
	}{
		{nil, 0},
		{&raft.Log{Index: 7, Term: 3, Type: raft.LogNoop}, 6},
		{&raft.Log{Index: 8, Term: 3, Type: raft.LogCommand}, 8},
		{&raft.Log{Index: 9, Term: 3, Type: raft.LogConfiguration}, 8},
	} {
		if next.entry != nil {
			if err := s.StoreLog(next.entry); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := s.LastCommand(); err != nil || got != next.want {
			t.Errorf("behind %+v: got %d (%v), want %d", next.entry, got, err, next.want)
		}
	}
}

// A vote that a failing disk has not taken when the coordinator stops is not given: the next process would not know of it, and could vote for
// another candidate in the same term.
func TestVoteThatIsNotWrittenIsNotGiven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t, filepath.Join(t.TempDir(), "raft.db"))
		vote := func(term uint64, whom string) error {
			return errors.Join(s.SetUint64(voteTerm, term), s.Set(voteCandidate, []byte(whom)))
		}
		if err := vote(1, "c1"); err != nil {
			t.Fatal(err)
		}
		s.db.Update(func(*bolt.Tx) error { // for its lock alone: nothing is committed
			s.db.MaxSize = 1
			return errors.New("rolled back")
		})
		given := make(chan error, 1)
		go func() { given <- vote(2, strings.Repeat("c", 1<<20)) }()
		time.Sleep(10 * time.Second)
		s.GiveUp()
		if err := <-given; err == nil {
			t.Error("a vote was given that is not on the disk")
		}
		if term, err := s.GetUint64(voteTerm); err != nil || term != 1 {
			t.Errorf("got a vote in term %d (%v), want that of term 1, which is on the disk", term, err)
		}
		if err := s.Set([]byte("CurrentTerm"), bytes.Repeat([]byte("x"), 1<<20)); err != nil {
			t.Errorf("got %v: raft ends the process for a term that it cannot write", err)
		}
	})
}
