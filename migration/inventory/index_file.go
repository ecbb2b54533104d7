package inventory

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lifeboat/lifeboat/migration/diskio"
	"github.com/lifeboat/lifeboat/migration/fields"
)

// recordSums is the table for the checksum of a whole file of records.
var recordSums = crc32.MakeTable(crc32.Castagnoli)

// An index of a part of a store is two files of records: one has a record for each directory, the other the blocks in the
// same order. They are of use only to the process that wrote them.

// wasDir is what an index says of a directory.
type wasDir struct {
	path   string
	id     dirID    // taken before its names were read; zero: the directory is to be looked through again in any case
	blocks int      // how many of the next blocks were in it
	others []string // names in it that are no blocks, or that could not be looked at
	dirs   []string // paths of the directories in it
}

// mostOthers bounds what is kept of a directory beside its blocks: a directory with more is looked through again.
const mostOthers = 4096

// dirID tells whether a directory still has the same names. A name that comes or goes changes both times; another
// directory that was moved into its place has another inode.
type dirID struct {
	dev, ino   uint64
	mtim, ctim int64
}

func dirIDOf(fd int) (id dirID, err error) {
	var st unix.Stat_t
	_, err = diskio.Retry(func() (int, error) { return 0, unix.Fstat(fd, &st) })
	return dirID{uint64(st.Dev), st.Ino, st.Mtim.Nano(), st.Ctim.Nano()}, err
}

// settled reports whether a later change than began would show in the directory's times, which are as coarse as the file
// system's clock.
func (id dirID) settled(began time.Time) bool {
	return id != dirID{} && max(changedBy(id.mtim), changedBy(id.ctim)) < began.Add(-ClockGrain).UnixNano()
}

func (w wasDir) append(b []byte) []byte {
	b = binary.AppendUvarint(binary.AppendUvarint(fields.AppendString(b, w.path), w.id.dev), w.id.ino)
	b = binary.AppendVarint(binary.AppendVarint(b, w.id.mtim), w.id.ctim)
	b = binary.AppendUvarint(b, uint64(w.blocks))
	for _, names := range [][]string{w.others, w.dirs} {
		b = binary.AppendUvarint(b, uint64(len(names)))
		for _, name := range names {
			b = fields.AppendString(b, name)
		}
	}
	return b
}

func parseWasDir(record []byte) (w wasDir, err error) {
	d := fields.Decode(record)
	w.path, w.id = d.Text(), dirID{d.Uvarint(), d.Uvarint(), d.Varint(), d.Varint()}
	w.blocks = int(d.Uvarint())
	for _, names := range []*[]string{&w.others, &w.dirs} {
		for range d.Uvarint() {
			if !d.Sound() {
				break
			}
			*names = append(*names, d.Text())
		}
	}
	return w, d.End("index")
}

// wasBlock is a block of one file by its name in its directory.
type wasBlock struct {
	name  []byte
	ino   uint64
	bytes int64
	mtim  int64
	ctim  int64
	value time.Duration
}

func appendWasBlock(b []byte, name string, ino uint64, blk Block) []byte {
	m := blk.Members[0]
	b = binary.AppendVarint(binary.AppendUvarint(fields.AppendString(b, name), ino), m.Bytes)
	b = binary.AppendVarint(b, m.ModTime.UnixNano())
	b = binary.AppendVarint(b, m.ChangeTime)
	return binary.AppendVarint(b, int64(blk.Value))
}

// parseWasBlock reads a block's record. The name is valid as long as the record is.
func parseWasBlock(record []byte) (w wasBlock, err error) {
	d := fields.Decode(record)
	w.name, w.ino, w.bytes = d.Take(), d.Uvarint(), d.Varint()
	w.mtim, w.ctim, w.value = d.Varint(), d.Varint(), time.Duration(d.Varint())
	return w, d.End("index")
}

// recordFile is a file of records: [length][record]...
type recordFile struct {
	path  string
	bytes int64
	sum   uint32
}

// recordsWriter writes a file of records. close returns the first error; nothing is written after one.
type recordsWriter struct {
	f    *os.File
	w    *bufio.Writer
	sum  hash.Hash32
	made recordFile
	buf  []byte
	err  error
}

const recordsBuffer = 32 << 10

func createRecords(path string) (*recordsWriter, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	w := &recordsWriter{f: f, sum: crc32.New(recordSums), made: recordFile{path: path}}
	w.w = bufio.NewWriterSize(io.MultiWriter(f, w.sum), recordsBuffer)
	return w, nil
}

func (w *recordsWriter) put(record []byte) {
	w.buf = append(binary.AppendUvarint(w.buf[:0], uint64(len(record))), record...)
	n, err := w.w.Write(w.buf)
	w.made.bytes += int64(n)
	w.err = cmp.Or(w.err, err)
}

func (w *recordsWriter) close() (recordFile, error) {
	w.err = errors.Join(w.err, w.w.Flush(), w.f.Close())
	w.made.sum = w.sum.Sum32()
	return w.made, w.err
}

// recordsReader reads the records one after the other.
type recordsReader struct {
	f    *os.File
	r    *bufio.Reader
	left int64
	buf  []byte
}

// noEnd turns io.EOF into an error, where more records must follow.
func noEnd(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

var errDamaged = errors.New("it is not what was written")

// open reads the whole file before it returns, so the records read from it later are those that were written.
func (r recordFile) open() (_ *recordsReader, err error) {
	f, err := os.Open(r.path)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	sum := crc32.New(recordSums)
	n, err := io.CopyBuffer(struct{ io.Writer }{sum}, struct{ io.Reader }{f}, make([]byte, recordsBuffer))
	if err == nil && (n != r.bytes || sum.Sum32() != r.sum) {
		err = errDamaged
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", r.path, err)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	return &recordsReader{f: f, r: bufio.NewReaderSize(f, recordsBuffer), left: r.bytes}, nil
}

func (r *recordsReader) close() { r.f.Close() } // it was only read

// next returns the next record, and io.EOF after the last. The record is valid until the next call.
func (r *recordsReader) next() ([]byte, error) {
	if r.left == 0 {
		return nil, io.EOF
	}
	n, err := binary.ReadUvarint(r.r)
	if err != nil {
		return nil, err
	}
	var word [binary.MaxVarintLen64]byte
	r.left -= int64(binary.PutUvarint(word[:], n))
	if n > uint64(max(r.left, 0)) {
		return nil, errDamaged
	}
	r.left -= int64(n)
	if uint64(cap(r.buf)) < n {
		r.buf = make([]byte, n)
	}
	r.buf = r.buf[:n]
	_, err = io.ReadFull(r.r, r.buf)
	return r.buf, err
}
