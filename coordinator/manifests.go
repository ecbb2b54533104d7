package coordinator

import (
	"bufio"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"io/fs"
	"iter"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/coordinator/registry"
	"github.com/lifeboat/lifeboat/durable"
	"github.com/lifeboat/lifeboat/migration/manifest"
)

// manifests keeps the manifests of ended decommissions in files of JSON lines, the summary first and then an entry each. The log says which
// files count; others were left by a crash and are removed. Hashes of the blocks that manifests name as lost are in memory, so that
// "lost" is answered at once, also after a restart.
type manifests struct {
	root *os.Root
	log  *slog.Logger
	seed maphash.Seed

	mu    sync.Mutex                       // guards all below
	lost  map[uint64]*registry.ManifestRef // by hash of a block's id: the newest manifest that names it as lost
	files map[string]bool                  // the files that there are
	read  map[string]bool                  // the files that lost was filled from

	coming map[string]*manifestWriter // by node: the newest manifest that is being received
}

// entryFrom is an entry of the API as the line of a file.
func entryFrom(e *api.ManifestEntry) manifest.Entry {
	return manifest.Entry{ID: e.Id, Bytes: e.Bytes, Outcome: manifest.Outcome(e.Outcome), Peer: e.Peer, Reason: e.Reason}
}

// maxLine is above the longest entry: an id and a reason at their bounds, every byte escaped as \u00XX.
const maxLine = 64 << 10

// openManifests lists the files in dir, and reads none.
func openManifests(dir string, log *slog.Logger) (*manifests, error) {
	if err := makeDir(dir); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	m := &manifests{
		root: root, log: log, seed: maphash.MakeSeed(), lost: map[uint64]*registry.ManifestRef{},
		files: map[string]bool{}, read: map[string]bool{}, coming: map[string]*manifestWriter{},
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	for _, e := range entries {
		m.files[e.Name()] = true
	}
	return m, nil
}

// load reads the files of refs that were not read before, for what they name as lost. If a file cannot be read, its blocks are answered as
// unknown, and the fleet goes on. It returns the refs whose file is not there.
func (m *manifests) load(refs []*registry.ManifestRef) (missing []*registry.ManifestRef) {
	for _, ref := range refs {
		m.mu.Lock()
		has, known := m.files[ref.File], m.read[ref.File]
		m.mu.Unlock()
		if known {
			continue
		}
		if _, err := m.root.Stat(ref.File); !has && err != nil {
			missing = append(missing, ref)
			continue
		}
		var lost []uint64
		if ref.Lost > 0 {
			for e, err := range m.entries(ref) {
				if err != nil {
					m.log.Warn("a manifest cannot be read: the blocks that it names as lost are answered as unknown", "node", ref.Node, "err", err)
					break
				}
				if e.Outcome == manifest.Lost {
					lost = append(lost, m.hash(e.ID))
				}
			}
		}
		m.keep(ref, lost)
	}
	return missing
}

func (m *manifests) Close() error { return m.root.Close() }

func (m *manifests) hash(id string) uint64 { return maphash.String(m.seed, id) }

// namedLost is the newest manifest that names the block as lost, or nil.
func (m *manifests) namedLost(id string) *registry.ManifestRef {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lost[m.hash(id)]
}

// keep takes a manifest, which the log must refer to, into account.
func (m *manifests) keep(ref *registry.ManifestRef, lost []uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.files[ref.File], m.read[ref.File] = true, true
	for _, h := range lost {
		if was := m.lost[h]; was == nil || was.At.Before(ref.At) {
			m.lost[h] = ref
		}
	}
}

// prune removes the files that none of refs names.
func (m *manifests) prune(refs []*registry.ManifestRef) {
	for _, file := range m.forget(refs) {
		m.remove(file)
	}
}

// pruneStray removes files that none of refs names and that are older than strayAge.
func (m *manifests) pruneStray(refs []*registry.ManifestRef) {
	named := filesOf(refs)
	entries, err := fs.ReadDir(m.root.FS(), ".")
	if err != nil {
		m.log.Warn("the manifests cannot be listed", "err", err)
		return
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && !named[e.Name()] && time.Since(info.ModTime()) > strayAge {
			m.remove(e.Name())
		}
	}
}

// forget drops from memory the files that none of refs names, and returns them.
func (m *manifests) forget(refs []*registry.ManifestRef) (gone []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	named := filesOf(refs)
	for file := range m.files {
		if !named[file] {
			delete(m.files, file)
			delete(m.read, file)
			gone = append(gone, file)
		}
	}
	if len(gone) == 0 {
		return nil
	}
	for h, ref := range m.lost {
		if !named[ref.File] {
			delete(m.lost, h)
		}
	}
	return gone
}

func filesOf(refs []*registry.ManifestRef) map[string]bool {
	files := make(map[string]bool, len(refs))
	for _, ref := range refs {
		files[ref.File] = true
	}
	return files
}

func (m *manifests) has(file string) bool {
	_, err := m.root.Stat(file)
	return err == nil
}

func (m *manifests) remove(file string) {
	if err := m.root.RemoveAll(file); err != nil {
		m.log.Warn("an unused manifest cannot be removed", "file", file, "err", err)
	}
}

// take writes a file whose parts next returns until io.EOF. The file is durable and whole, or not there.
func (m *manifests) take(name string, next func() ([]byte, error)) (err error) {
	partial := partly + strings.ToLower(rand.Text()) + "-" + name // two senders may send it at once
	file, err := m.root.OpenFile(partial, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, file.Close(), m.root.Remove(partial))
		}
	}()
	for size := 0; ; {
		data, err := next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if size += len(data); size > registry.MaxManifest {
			return fmt.Errorf("manifest %s: is larger than %d bytes", name, registry.MaxManifest)
		}
		if _, err := file.Write(data); err != nil {
			return err
		}
	}
	if err := file.Sync(); err != nil {
		return err
	}
	if err := m.root.Rename(partial, name); err != nil {
		return err
	}
	return errors.Join(file.Close(), durable.SyncDir(m.root.Name()))
}

// entries yields the entries of a manifest. It ends after the first error.
func (m *manifests) entries(ref *registry.ManifestRef) iter.Seq2[manifest.Entry, error] {
	return func(yield func(manifest.Entry, error) bool) {
		f, err := m.root.Open(ref.File)
		if err != nil {
			yield(manifest.Entry{}, err)
			return
		}
		defer f.Close()
		lines := bufio.NewScanner(f)
		lines.Buffer(make([]byte, 0, 4096), maxLine)
		lines.Scan() // the summary, for people: the log has it too
		for n := 2; lines.Scan(); n++ {
			e, err := manifest.ParseLine(lines.Bytes())
			if err != nil {
				yield(manifest.Entry{}, fmt.Errorf("manifest %s, line %d: %w", ref.File, n, err))
				return
			}
			if !yield(e, nil) {
				return
			}
		}
		if err := lines.Err(); err != nil {
			yield(manifest.Entry{}, fmt.Errorf("manifest %s: %w", ref.File, err))
		}
	}
}

// manifestWriter is a manifest that is being received.
type manifestWriter struct {
	of   *manifests
	node string
	name string

	mu     sync.Mutex // guards what follows: a newer goodbye of the node aborts this one, which may wait for messages that never come
	file   *os.File
	out    *bufio.Writer
	line   []byte // the last one
	lost   []uint64
	counts map[string]int64 // by outcome
	total  int64
	bytes  int64
	ended  bool
}

// begin starts a file for node's manifest, and aborts an earlier one that the node has not finished. The caller finishes with commit, and
// must call abort in any case.
func (m *manifests) begin(node string, summary *api.ManifestSummary) (*manifestWriter, error) {
	head, err := protojson.Marshal(summary)
	if err != nil {
		return nil, err
	}
	w := &manifestWriter{of: m, node: node, name: node + "-" + strings.ToLower(rand.Text()) + ".jsonl", counts: map[string]int64{}}
	if w.file, err = m.root.OpenFile(w.partial(), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
		return nil, err
	}
	w.out = bufio.NewWriterSize(w.file, 64<<10)
	if err := json.NewEncoder(w.out).Encode(json.RawMessage(head)); err != nil {
		w.abort()
		return nil, err
	}
	m.mu.Lock()
	was := m.coming[node]
	m.coming[node] = w
	m.mu.Unlock()
	if was != nil {
		was.abort()
	}
	return w, nil
}

func (w *manifestWriter) partial() string { return partly + w.name }

// partly begins the name of a file that is being written. No node's name begins so.
const partly = ".partial-"

// take adds the entries of a message, and returns the ids that it names as lost.
func (w *manifestWriter) take(r *api.GoodbyeRequest) (lost []string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return nil, errGoodbyeOvertaken
	}
	for e := range entriesOf(r) {
		if err := w.add(e); err != nil {
			return nil, err
		}
		if e.Outcome == "lost" {
			lost = append(lost, e.Id)
		}
	}
	return lost, nil
}

// add adds an entry. The lock is held.
func (w *manifestWriter) add(e *api.ManifestEntry) error {
	if w.total++; w.total > registry.MaxEntries {
		return fault("a manifest of more than %d entries", registry.MaxEntries)
	}
	w.counts[e.Outcome]++
	if e.Outcome == "lost" {
		w.lost = append(w.lost, w.of.hash(e.Id))
	}
	w.line = entryFrom(e).AppendLine(w.line[:0]) // the same as encoding/json writes, but faster: there may be millions
	if w.bytes += int64(len(w.line)); w.bytes > registry.MaxManifest {
		return fault("a manifest of more than %d bytes", registry.MaxManifest)
	}
	_, err := w.out.Write(w.line)
	return err
}

// commit makes the file durable under its own name.
func (w *manifestWriter) commit() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return errGoodbyeOvertaken
	}
	if err := errors.Join(w.out.Flush(), w.file.Sync()); err != nil {
		return err
	}
	w.ended = true
	if err := w.file.Close(); err != nil {
		return err
	}
	if err := w.of.root.Rename(w.partial(), w.name); err != nil {
		return err
	}
	return durable.SyncDir(w.of.root.Name())
}

// abort removes the file unless commit has begun to make it durable.
func (w *manifestWriter) abort() {
	w.of.mu.Lock()
	if w.of.coming[w.node] == w {
		delete(w.of.coming, w.node)
	}
	w.of.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.ended {
		w.ended, w.lost = true, nil
		w.file.Close()
		w.of.remove(w.partial())
	}
}

// errGoodbyeOvertaken ends a goodbye that its node has given up: its connection was cut, and the node has begun anew over another.
var errGoodbyeOvertaken = status.Error(codes.Aborted, "a newer goodbye of this node was heard")
