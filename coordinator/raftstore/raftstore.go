// Package raftstore keeps a coordinator's raft log in a file, and snapshots beside it. What it acknowledges is on the disk. A file that was
// altered or cut short is refused at the start. A disk that fails, hangs or is slow is reported, and does not end the process.
//
// It knows nothing of what the entries say, nor which coordinator leads.
package raftstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/lifeboat/lifeboat/durable"
)

// Store keeps raft's log and its few stable values in one bbolt file. What it acknowledges is on the disk. It is ours
// because the published stores do not build beside raft 1.8.0.
//
// bbolt never overwrites a live page and commits by one checksummed page, so a crash leaves the last acknowledged
// transaction or the one in flight, whole. On top of that every entry carries its own checksum, and opening walks the
// whole log: a file that was cut short, or whose entries were altered, is refused at the start, not met in the middle of a
// decision. Damage to bbolt's own page headers is beyond what it checks for: the file system and its backups are for that.
//
// A disk that can be written no more must not end the process: the coordinator can still show the fleet and answer heartbeats. A log
// entry that cannot be written is an error, at which raft steps down at once. A stable value that cannot be written is tried again
// until it is written or GiveUp is called, because raft ends the process if it gets an error for a term.
type Store struct {
	db      *bolt.DB
	Commit  func(func(*bolt.Tx) error) error // db.Update; tests of hanging disks replace it
	log     *slog.Logger
	closing chan struct{} // closed by GiveUp
	ballot  []byte        // the first half of a vote; raft's main loop alone writes and reads it
	illness atomic.Pointer[illness]
	slow    *slowness
	turn    chan struct{}             // holds one while a write is under way
	writes  atomic.Pointer[time.Time] // when the write that is under way began; nil: none is
}

// illness is the last failure to write the log: when, and why.
type illness struct {
	at  time.Time
	err error
}

var (
	logBucket    = []byte("log")
	stableBucket = []byte("stable")
	castagnoli   = crc32.MakeTable(crc32.Castagnoli)
)

const (
	entryVersion = 1
	entryHead    = 1 + 1 + 8 + 8 + 4 // version, type, term, appended at, length of the extensions
	entryTail    = 4                 // CRC-32C over key and entry
	openTimeout  = time.Second       // another process holds the file's lock: say so soon
	DiskPause    = time.Second       // between two attempts at a disk that fails
	convalesce   = time.Minute       // how long a failure counts: a full disk takes small entries for a while, and then fails again
)

// What raft writes for a vote, in this order: it answers the candidate after the second.
var (
	voteTerm      = []byte("LastVoteTerm")
	voteCandidate = []byte("LastVoteCand")
)

// CurrentTerm is raft's own key for the term that it is in.
var CurrentTerm = []byte("CurrentTerm")

// DamagedError is of a file whose content is not what was written. The remedy depends on whether there are other coordinators.
type DamagedError struct{ error }

// Damaged makes a DamagedError.
func Damaged(format string, args ...any) error { return DamagedError{fmt.Errorf(format, args...)} }

// Open opens or makes the store at path.
func Open(path string, log *slog.Logger) (*Store, error) {
	if err := examine(path); err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	db, err := openBolt(path)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, inUse(err))
	}
	err = db.Update(func(tx *bolt.Tx) error {
		_, err1 := tx.CreateBucketIfNotExists(logBucket)
		_, err2 := tx.CreateBucketIfNotExists(stableBucket)
		return errors.Join(err1, err2)
	})
	if err := errors.Join(err, durable.SyncDir(filepath.Dir(path))); err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", path, err), db.Close())
	}
	return &Store{db: db, Commit: db.Update, log: log, closing: make(chan struct{}), slow: newSlowness(), turn: make(chan struct{}, 1)}, nil
}

func openBolt(path string) (db *bolt.DB, err error) {
	defer refuseDamage(&err)
	return bolt.Open(path, 0o600, &bolt.Options{
		Timeout:        openTimeout,
		NoFreelistSync: true, // one write less for each commit; bbolt rebuilds the list by a walk when it opens the file
		FreelistType:   bolt.FreelistMapType,
		NoStatistics:   true,
	})
}

// refuseDamage turns a panic of bbolt, which it raises at a damaged page, into an error.
func refuseDamage(err *error) {
	if p := recover(); p != nil {
		*err = Damaged("damaged: %v", p)
	}
}

// ErrInUse is of a file that another process has open.
var ErrInUse = errors.New("another process has it open: stop the other coordinator or give this one its own data_dir")

func inUse(err error) error {
	if errors.Is(err, bolterrors.ErrTimeout) {
		return ErrInUse
	}
	return err
}

// examine refuses a file that is not as its last commit left it. It runs before bbolt opens the file for writing: bbolt trusts its
// file, and then walks the pages in a goroutine of its own, where a bad page ends the process. Opened for reading, bbolt reads the
// first two pages and no more until asked.
func examine(path string) error {
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) || err == nil && info.Size() == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true, Timeout: openTimeout, NoStatistics: true})
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return inUse(err)
	case errors.Is(err, fs.ErrPermission): // restored by another user, say
		return errors.New("permission denied: the user whom the coordinator runs as must own data_dir and what is in it (chown -R)")
	case err != nil:
		return DamagedError{err}
	}
	defer db.Close()
	return db.View(func(tx *bolt.Tx) error {
		// A mapped page beyond the end of a file ends the process when touched.
		if want := tx.Size(); info.Size() < want {
			return Damaged("cut short: it has %d bytes, its last commit needs %d", info.Size(), want)
		}
		return walk(tx)
	})
}

// walk reads everything once: as a list, and by looking each key up.
func walk(tx *bolt.Tx) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer refuseDamage(&err)
	var last uint64
	each := map[string]func(k, v []byte) error{
		string(logBucket): func(k, v []byte) error {
			var entry raft.Log
			if err := decodeEntry(k, v, &entry); err != nil {
				return err
			}
			if last != 0 && entry.Index != last+1 {
				return fmt.Errorf("log entry %d follows %d", entry.Index, last)
			}
			last = entry.Index
			return nil
		},
		string(stableBucket): func(k, v []byte) error {
			_, err := decodeStable(k, v)
			return err
		},
	}
	err = tx.ForEach(func(name []byte, b *bolt.Bucket) error {
		check := each[string(name)]
		if check == nil || b == nil {
			return fmt.Errorf("%q is not a part of a raft log", name)
		}
		return b.ForEach(func(k, v []byte) error {
			if !bytes.Equal(b.Get(k), v) {
				return fmt.Errorf("key %x is listed and not found", k)
			}
			return check(k, v)
		})
	})
	if err != nil {
		return Damaged("damaged: %w", err)
	}
	return nil
}

// GiveUp ends the retries at a failing disk. A vote that is not on the disk by then is an error, so raft does not give it.
func (s *Store) GiveUp() { close(s.closing) }

// DB is the open file, for tests.
func (s *Store) DB() *bolt.DB { return s.db }

// Close closes the file.
func (s *Store) Close() error { return s.db.Close() }

// pause waits DiskPause before the next attempt at a failing disk. It reports false once GiveUp was called.
func (s *Store) pause() bool {
	select {
	case <-time.After(DiskPause):
		return true
	case <-s.closing:
		return false
	}
}

// FirstIndex implements raft.LogStore.
func (s *Store) FirstIndex() (uint64, error) {
	return s.edge(func(c *bolt.Cursor) ([]byte, []byte) { return c.First() })
}

// LastIndex implements raft.LogStore.
func (s *Store) LastIndex() (uint64, error) {
	return s.edge(func(c *bolt.Cursor) ([]byte, []byte) { return c.Last() })
}

func (s *Store) edge(pick func(*bolt.Cursor) (k, v []byte)) (index uint64, err error) {
	err = s.db.View(func(tx *bolt.Tx) error {
		if k, _ := pick(tx.Bucket(logBucket).Cursor()); k != nil {
			index = binary.BigEndian.Uint64(k)
		}
		return nil
	})
	return index, err
}

// LastCommand is the index of the newest command in the log. If the log has entries but no command, it is the index before the oldest
// entry, which is the last that the snapshot has; 0: the log is empty. It reads in one transaction, because a new leader's first entry
// may come at any moment.
func (s *Store) LastCommand() (index uint64, err error) {
	err = s.db.View(func(tx *bolt.Tx) error {
		c := tx.Bucket(logBucket).Cursor()
		for k, v := c.Last(); k != nil; k, v = c.Prev() {
			var entry raft.Log
			if err := decodeEntry(k, v, &entry); err != nil {
				return err
			}
			if index = binary.BigEndian.Uint64(k); entry.Type == raft.LogCommand {
				return nil
			}
		}
		index -= min(index, 1)
		return nil
	})
	return index, err
}

// GetLog implements raft.LogStore.
func (s *Store) GetLog(index uint64, entry *raft.Log) error {
	return s.db.View(func(tx *bolt.Tx) error {
		k := key(index)
		v := tx.Bucket(logBucket).Get(k)
		if v == nil {
			return raft.ErrLogNotFound
		}
		return decodeEntry(k, v, entry)
	})
}

// StoreLog implements raft.LogStore.
func (s *Store) StoreLog(entry *raft.Log) error { return s.StoreLogs([]*raft.Log{entry}) }

// StoreLogs implements raft.LogStore. It stores all of the entries or none, and they are on the disk when it returns.
func (s *Store) StoreLogs(entries []*raft.Log) error {
	err := s.update(func(tx *bolt.Tx) error {
		b := tx.Bucket(logBucket)
		b.FillPercent = 0.9 // entries are appended in order: half-empty pages would stay so
		for _, e := range entries {
			if err := b.Put(key(e.Index), encodeEntry(e)); err != nil {
				return fmt.Errorf("store log entry %d: %w", e.Index, err)
			}
		}
		return nil
	})
	if err != nil {
		s.fell(err)
	}
	return err
}

// Begin writes the first term and the first entry of an empty log at once. A term alone would look like a log that has lost its members, and
// raft.BootstrapCluster writes the two one after the other.
func (s *Store) Begin(members raft.Configuration) error {
	first := raft.Log{Index: 1, Term: 1, Type: raft.LogConfiguration, Data: raft.EncodeConfiguration(members)}
	return s.update(func(tx *bolt.Tx) error {
		err := tx.Bucket(logBucket).Put(key(first.Index), encodeEntry(&first))
		return errors.Join(err, tx.Bucket(stableBucket).Put(CurrentTerm, sealed(CurrentTerm, key(first.Term))))
	})
}

// fell notes that the log could not be written.
func (s *Store) fell(err error) {
	if s.Ill() == nil {
		s.log.Error("the log cannot be written, and this coordinator leads no more where there is another: free or replace the disk of data_dir",
			"file", s.db.Path(), "err", err)
	}
	s.illness.Store(&illness{time.Now(), err})
}

// Ill is why the log cannot be written now (Hangs), or could not within the last convalesce; nil: the disk is well.
func (s *Store) Ill() error {
	if err := s.Hangs(); err != nil {
		return err
	}
	if i := s.illness.Load(); i != nil && time.Since(i.at) < convalesce {
		return i.err
	}
	return nil
}

// DeleteRange implements raft.LogStore.
func (s *Store) DeleteRange(from, to uint64) error {
	return s.update(func(tx *bolt.Tx) error {
		b := tx.Bucket(logBucket)
		var doomed [][]byte // collected first: a cursor cannot be trusted to step on after a delete
		c := b.Cursor()
		for k, _ := c.Seek(key(from)); k != nil && binary.BigEndian.Uint64(k) <= to; k, _ = c.Next() {
			doomed = append(doomed, k)
		}
		for _, k := range doomed {
			if err := b.Delete(k); err != nil {
				return err
			}
		}
		return nil
	})
}

// Set implements raft.StableStore. It holds back the first half of a vote and writes both halves together. That is one disk write less
// for the candidate and then one less for the voter, both on the way from a dead leader to the next one.
func (s *Store) Set(k, v []byte) error {
	if bytes.Equal(k, voteTerm) {
		s.ballot = bytes.Clone(v)
		return nil
	}
	if i := s.illness.Load(); i != nil && time.Since(i.at) < DiskPause {
		s.pause() // else raft would stand for election, win, and fail at the disk again, twenty times a second
	}
	for failed := false; ; failed = true {
		err := s.update(func(tx *bolt.Tx) error {
			b := tx.Bucket(stableBucket)
			if bytes.Equal(k, voteCandidate) && s.ballot != nil {
				if err := b.Put(voteTerm, sealed(voteTerm, s.ballot)); err != nil {
					return err
				}
			}
			return b.Put(k, sealed(k, v))
		})
		if err == nil && bytes.Equal(k, voteCandidate) {
			s.ballot = nil
		}
		switch {
		case err == nil && failed:
			s.log.Info("the raft store can be written again")
			return nil
		case err == nil:
			return nil
		case !failed:
			s.log.Error("the raft store cannot be written: nothing can be decided until it can", "err", err)
		}
		if s.pause() {
			continue
		}
		if bytes.Equal(k, voteCandidate) { // raft survives this error: it gives no vote, and goes on
			s.ballot = nil
			return fmt.Errorf("write the vote: %w", err)
		}
		return nil
	}
}

// sealed is a value followed by its checksum.
func sealed(k, v []byte) []byte { return binary.BigEndian.AppendUint32(bytes.Clone(v), checksum(k, v)) }

// Get implements raft.StableStore.
func (s *Store) Get(k []byte) (v []byte, err error) {
	if bytes.Equal(k, voteTerm) && s.ballot != nil {
		return bytes.Clone(s.ballot), nil
	}
	err = s.db.View(func(tx *bolt.Tx) error {
		if stored := tx.Bucket(stableBucket).Get(k); stored != nil {
			v, err = decodeStable(k, stored)
		}
		return err
	})
	return v, err
}

// SetUint64 implements raft.StableStore.
func (s *Store) SetUint64(k []byte, v uint64) error { return s.Set(k, key(v)) }

// GetUint64 implements raft.StableStore.
func (s *Store) GetUint64(k []byte) (uint64, error) {
	v, err := s.Get(k)
	switch {
	case err != nil || len(v) == 0:
		return 0, err
	case len(v) != 8:
		return 0, fmt.Errorf("stable value %q has %d bytes, want 8", k, len(v))
	}
	return binary.BigEndian.Uint64(v), nil
}

func key(index uint64) []byte { return binary.BigEndian.AppendUint64(nil, index) }

func encodeEntry(e *raft.Log) []byte {
	b := make([]byte, 0, entryHead+len(e.Extensions)+len(e.Data)+entryTail)
	b = append(b, entryVersion, byte(e.Type))
	b = binary.BigEndian.AppendUint64(b, e.Term)
	b = binary.BigEndian.AppendUint64(b, uint64(e.AppendedAt.UnixNano()))
	b = binary.BigEndian.AppendUint32(b, uint32(len(e.Extensions)))
	b = append(b, e.Extensions...)
	b = append(b, e.Data...)
	return binary.BigEndian.AppendUint32(b, checksum(key(e.Index), b))
}

// decodeEntry copies: bbolt's bytes are valid only inside the transaction.
func decodeEntry(k, v []byte, e *raft.Log) error {
	if len(k) != 8 || len(v) < entryHead+entryTail {
		return fmt.Errorf("log entry %x: %d bytes, want at least %d", k, len(v), entryHead+entryTail)
	}
	index := binary.BigEndian.Uint64(k)
	body, sum := v[:len(v)-entryTail], binary.BigEndian.Uint32(v[len(v)-entryTail:])
	if checksum(k, body) != sum {
		return fmt.Errorf("log entry %d: checksum does not match", index)
	}
	if body[0] != entryVersion {
		return fmt.Errorf("log entry %d: format %d, this version reads %d: run the lifeboat that wrote it", index, body[0], entryVersion)
	}
	rest := body[entryHead:]
	extensions := binary.BigEndian.Uint32(body[entryHead-4:])
	if uint64(extensions) > uint64(len(rest)) {
		return fmt.Errorf("log entry %d: extensions of %d bytes in %d", index, extensions, len(rest))
	}
	*e = raft.Log{
		Index:      index,
		Type:       raft.LogType(body[1]),
		Term:       binary.BigEndian.Uint64(body[2:]),
		AppendedAt: time.Unix(0, int64(binary.BigEndian.Uint64(body[10:]))),
		Extensions: append([]byte(nil), rest[:extensions]...),
		Data:       append([]byte(nil), rest[extensions:]...),
	}
	return nil
}

func decodeStable(k, stored []byte) ([]byte, error) {
	n := len(stored) - entryTail
	if n < 0 || checksum(k, stored[:n]) != binary.BigEndian.Uint32(stored[n:]) {
		return nil, fmt.Errorf("stable value %q: checksum does not match", k)
	}
	return bytes.Clone(stored[:n]), nil
}

func checksum(k, body []byte) uint32 {
	return crc32.Update(crc32.Checksum(k, castagnoli), castagnoli, body)
}

// Note writes a value once, and returns the error if the disk does not take it: Set would try again.
func (s *Store) Note(k, v []byte) error {
	return s.db.Update(func(tx *bolt.Tx) error { return tx.Bucket(stableBucket).Put(k, sealed(k, v)) })
}
