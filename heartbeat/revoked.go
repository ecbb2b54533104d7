package heartbeat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/await"
	"github.com/lifeboat/lifeboat/durable"
)

// mostRevokedFile is far above the thousand names that a coordinator keeps.
const mostRevokedFile = 4 << 20

// revokedBook is the list of revoked certificates last heard, in memory and in a file: an agent that restarts while no
// coordinator answers must not let in a node that was shut out.
type revokedBook struct {
	file string // empty: none
	log  *slog.Logger

	mu      sync.Mutex // guards what follows
	version uint64     // 0: none was heard
	all     []*api.Revoked

	dirty chan struct{} // full: the file is older than the list
}

// revokedFile is what the file holds, which people read too.
type revokedFile struct {
	Version uint64          `json:"version"`
	Revoked []revokedRecord `json:"revoked"`
}

type revokedRecord struct {
	Role string    `json:"role"`
	Name string    `json:"name"`
	At   time.Time `json:"at"`
}

// loadRevoked reads the file. A broken one is logged and counts as empty, as with the peers.
func loadRevoked(file string, log *slog.Logger) *revokedBook {
	b := &revokedBook{file: file, log: log, dirty: make(chan struct{}, 1)}
	if file == "" {
		return b
	}
	var f revokedFile
	text, err := readBounded(file, mostRevokedFile)
	if err == nil {
		err = json.Unmarshal(text, &f)
	}
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			log.Error("the list of revoked certificates cannot be read: they are accepted until a coordinator says it again", "file", file, "err", err)
		}
		return b
	}
	b.version = f.Version
	for _, r := range f.Revoked {
		b.all = append(b.all, &api.Revoked{Role: r.Role, Name: r.Name, At: timestamppb.New(r.At)})
	}
	return b
}

// hear replaces the list if it is newer, and reports whether it was. A coordinator restored from a snapshot has an older
// list, which lacks what was revoked since: the list here stands until a newer decision comes.
func (b *revokedBook) hear(version uint64, all []*api.Revoked) (news bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if version <= b.version {
		return false
	}
	b.version, b.all = version, all
	await.Mark(b.dirty)
	return true
}

func (b *revokedBook) has() (version uint64, all []*api.Revoked) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.version, b.all
}

func (b *revokedBook) save(ctx context.Context) {
	keepFile(ctx, b.file, b.dirty, b.write, "the list of revoked certificates", "accept some of them", b.log)
}

func (b *revokedBook) write() error {
	version, all := b.has()
	f := revokedFile{Version: version, Revoked: []revokedRecord{}}
	for _, r := range all {
		f.Revoked = append(f.Revoked, revokedRecord{r.GetRole(), r.GetName(), r.GetAt().AsTime()})
	}
	text, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return fmt.Errorf("write what was revoked: %w", err)
	}
	return durable.WriteFile(b.file, append(text, '\n'))
}

// readBounded reads a file that is not larger than most.
func readBounded(file string, most int64) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("is larger than %d bytes", most)
	}
	return text, err
}
