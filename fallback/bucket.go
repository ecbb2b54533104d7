package fallback

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
)

// Bucket keeps contents in an S3 bucket, under keys that begin with prefix.
type Bucket struct {
	client *s3.Client
	bucket string
	prefix string
	parts  chan []byte // buffers of finished uploads
}

const (
	// partBytes is how much of a content is in memory at once. Only a content that would have more than mostParts parts of
	// that size has larger ones. A bucket takes parts of 5 MiB at least, and 10,000 of them at most:
	// https://docs.aws.amazon.com/AmazonS3/latest/userguide/qfacts.html
	partBytes = 5 << 20
	mostParts = 10_000
	// mostKey is how many bytes a key may have: https://docs.aws.amazon.com/AmazonS3/latest/userguide/object-keys.html
	mostKey = 1024
	// abortTimeout bounds the clean-up of a failed upload, and how long after its context has ended that ends; a lifecycle rule removes
	// the parts that it leaves.
	abortTimeout = 2 * time.Second
)

// Put sends a content, in parts if it is large, and checks that the bucket has verified the checksum of each.
func (b *Bucket) Put(ctx context.Context, name string, bytes int64, content io.Reader, fresh bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if n := len(b.prefix) + len(name); n > mostKey {
		return unfitError(fmt.Sprintf("its key would have %d bytes, and a bucket takes %d at most: shorten its name, or fallback.s3.prefix", n, mostKey))
	}
	u := &uploading{Bucket: b, key: b.prefix + name, fresh: fresh}
	if bytes > partBytes {
		return explain(u.parts(ctx, bytes, content))
	}
	part := make([]byte, bytes)
	if err := readPart(content, part, true); err != nil {
		return err
	}
	return explain(u.whole(ctx, part))
}

// unfitError says that nothing can have a name in a storage, which is otherwise well.
type unfitError string

func (e unfitError) Error() string { return string(e) }

func (unfitError) Is(target error) bool { return target == fs.ErrInvalid }

// uploading is one content on its way.
type uploading struct {
	*Bucket
	key   string
	fresh bool
}

func (u *uploading) whole(ctx context.Context, part []byte) error {
	sum, body := checksum(part), newBody(ctx, part)
	answered, stop := body.lingering(ctx)
	defer stop()
	in := &s3.PutObjectInput{
		Bucket: &u.bucket, Key: &u.key, Body: body, ContentLength: aws.Int64(int64(len(part))), ChecksumCRC32C: &sum, IfNoneMatch: u.condition(),
	}
	out, err := u.client.PutObject(answered, in)
	if err != nil {
		return err
	}
	return verified(sum, out.ChecksumCRC32C)
}

func (u *uploading) condition() *string {
	if u.fresh {
		return aws.String("*")
	}
	return nil
}

// parts uploads a large content part by part. It aborts an upload that it cannot complete, whose parts would cost as much as any.
func (u *uploading) parts(ctx context.Context, bytes int64, content io.Reader) error {
	answered, stop := lingering(ctx, answerGrace)
	defer stop()
	late, end := lingering(ctx, abortTimeout)
	defer end()
	begun, err := u.client.CreateMultipartUpload(answered, &s3.CreateMultipartUploadInput{
		Bucket: &u.bucket, Key: &u.key, ChecksumAlgorithm: types.ChecksumAlgorithmCrc32c,
	})
	if err != nil {
		return err
	}
	done, err := u.sendParts(ctx, begun.UploadId, bytes, content)
	if err == nil {
		err = u.complete(answered, begun.UploadId, done)
	}
	if err == nil || (err == errUntold || code(err) == noSuchUpload) && u.stands(answered, bytes, done) {
		return nil
	}
	err = explain(err)
	last, cancel := context.WithTimeout(late, abortTimeout)
	defer cancel()
	_, aborted := u.client.AbortMultipartUpload(last, &s3.AbortMultipartUploadInput{Bucket: &u.bucket, Key: &u.key, UploadId: begun.UploadId})
	switch {
	case aborted == nil:
	case code(aborted) != noSuchUpload:
		err = fmt.Errorf("%w (its parts stay until the bucket's rule removes them: %v)", err, explain(aborted))
	case u.stands(last, bytes, done): // each answer was lost, or came too late: putting a large content together takes a while
		return nil
	}
	return err
}

// errUntold is of a 200 that may mean anything: a bucket sends it before it puts the parts together, and may break off there.
var errUntold = errors.New("the bucket answers 200 and does not say that it has put the parts together")

func (u *uploading) complete(ctx context.Context, upload *string, parts []types.CompletedPart) error {
	out, err := u.client.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{
		Bucket: &u.bucket, Key: &u.key, UploadId: upload, IfNoneMatch: u.condition(),
		MultipartUpload: &types.CompletedMultipartUpload{Parts: parts},
	})
	if err == nil && aws.ToString(out.ETag) == "" {
		return errUntold
	}
	return err
}

// noSuchUpload is what a bucket says of an upload that was aborted, and of one that it has completed.
const noSuchUpload = "NoSuchUpload"

// stands reports whether the bucket has a content of these parts. If it has completed the upload and its answer was lost, the
// SDK's next attempt hears noSuchUpload.
func (u *uploading) stands(ctx context.Context, size int64, parts []types.CompletedPart) bool {
	if len(parts) == 0 {
		return false
	}
	var sums []byte
	for _, p := range parts {
		sums, _ = base64.StdEncoding.AppendDecode(sums, []byte(*p.ChecksumCRC32C)) // it is ours
	}
	out, err := u.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &u.bucket, Key: &u.key, ChecksumMode: types.ChecksumModeEnabled})
	if err != nil {
		return false
	}
	said, _, _ := strings.Cut(aws.ToString(out.ChecksumCRC32C), "-") // the number of parts follows
	return aws.ToInt64(out.ContentLength) == size && said == checksum(sums)
}

func (u *uploading) sendParts(ctx context.Context, upload *string, size int64, content io.Reader) (done []types.CompletedPart, err error) {
	step := max(partBytes, (size+mostParts-1)/mostParts)
	buf := u.buffer(step)
	defer u.release(buf)
	for left := size; left > 0; {
		part := buf[:min(left, step)]
		left -= int64(len(part))
		if err := readPart(content, part, left == 0); err != nil {
			return nil, err
		}
		no, sum, body := aws.Int32(int32(len(done)+1)), checksum(part), newBody(ctx, part)
		answered, stop := body.lingering(ctx)
		out, err := u.client.UploadPart(answered, &s3.UploadPartInput{
			Bucket: &u.bucket, Key: &u.key, UploadId: upload, PartNumber: no, Body: body,
			ContentLength: aws.Int64(int64(len(part))), ChecksumCRC32C: &sum,
		})
		stop()
		if err == nil {
			err = verified(sum, out.ChecksumCRC32C)
		}
		if err != nil {
			return nil, err
		}
		done = append(done, types.CompletedPart{PartNumber: no, ETag: out.ETag, ChecksumCRC32C: &sum})
	}
	return done, nil
}

// buffer and release keep the parts of one upload for the next.
func (b *Bucket) buffer(size int64) []byte {
	if size == partBytes {
		select {
		case buf := <-b.parts:
			return buf
		default:
		}
	}
	return make([]byte, size)
}

func (b *Bucket) release(buf []byte) {
	if len(buf) == partBytes {
		select {
		case b.parts <- buf:
		default:
		}
	}
}

var errBrokeOff = errors.New("the answer broke off")

// Get reads a range of a content. Where an answer breaks off it asks once more, as the SDK does where none begins.
func (b *Bucket) Get(ctx context.Context, name string, from int64, into []byte) (int, error) {
	n, err := b.get(ctx, name, from, into)
	if errors.Is(err, errBrokeOff) && ctx.Err() == nil {
		return b.get(ctx, name, from, into)
	}
	return n, err
}

func (b *Bucket) get(ctx context.Context, name string, from int64, into []byte) (int, error) {
	out, err := b.client.GetObject(ctx, &s3.GetObjectInput{
		Bucket: &b.bucket, Key: aws.String(b.prefix + name), Range: aws.String("bytes=" + strconv.FormatInt(from, 10) + "-" + strconv.FormatInt(from+int64(len(into))-1, 10)),
	})
	if code(err) == "InvalidRange" {
		return 0, io.EOF
	}
	if err != nil {
		return 0, explain(err)
	}
	defer out.Body.Close()
	if said := aws.ToString(out.ContentRange); from > 0 && !strings.HasPrefix(said, "bytes "+strconv.FormatInt(from, 10)+"-") {
		return 0, fmt.Errorf("asked for what begins at byte %d, the answer is of %q: does a proxy on the way leave out ranges?", from, said)
	}
	n, err := io.ReadFull(out.Body, into)
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF) && out.ContentLength != nil && int64(n) == *out.ContentLength, err == io.EOF:
		return n, io.EOF
	case err != nil:
		return n, fmt.Errorf("%w: %w", errBrokeOff, err)
	}
	return n, nil
}

// Stat asks for an object's head.
func (b *Bucket) Stat(ctx context.Context, name string) (bytes int64, tag string, at time.Time, err error) {
	out, err := b.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &b.bucket, Key: aws.String(b.prefix + name)})
	if err != nil {
		return 0, "", time.Time{}, explain(err)
	}
	return aws.ToInt64(out.ContentLength), tagOf(aws.ToString(out.ETag)), aws.ToTime(out.LastModified), nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum is a body's CRC-32C as S3 writes it.
func checksum(body []byte) string {
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, crc32.Checksum(body, castagnoli)))
}

// verified returns nil if the bucket's answer repeats the checksum that was sent. A server that does not know checksums says
// nothing of them, and then nothing vouches for the bytes that it has.
func verified(sent string, said *string) error {
	switch {
	case said == nil:
		return errors.New("the server does not verify checksums (x-amz-checksum-crc32c): use one that does")
	case *said != sent:
		return fmt.Errorf("the server speaks of checksum %s, sent was %s", *said, sent)
	}
	return nil
}

// body is the body of a request, of which nothing more is read once its context has ended.
type body struct {
	*bytes.Reader
	ended func() error
	sent  atomic.Bool // read to its end
}

func newBody(ctx context.Context, b []byte) *body {
	return &body{Reader: bytes.NewReader(b), ended: ctx.Err}
}

// lingering returns a context for the request that sends the body. When ctx ends and the body was sent whole, the context goes on for
// answerGrace, for the bucket may still answer; otherwise it ends with ctx.
func (b *body) lingering(ctx context.Context) (context.Context, context.CancelFunc) {
	late, stop := lingering(ctx, answerGrace)
	undo := context.AfterFunc(ctx, func() {
		if !b.sent.Load() {
			stop() // half a body that is stuck in a slow connection is of no use
		}
	})
	return late, func() { undo(); stop() }
}

func (b *body) Read(p []byte) (int, error) {
	if err := b.ended(); err != nil {
		return 0, err
	}
	n, err := b.Reader.Read(p)
	b.sent.Store(b.Len() == 0)
	return n, err
}

// Seek goes back to where sending begins: for another attempt, or after the body was read for its checksum.
func (b *body) Seek(offset int64, whence int) (int64, error) {
	if err := b.ended(); err != nil {
		return 0, err
	}
	b.sent.Store(false)
	return b.Reader.Seek(offset, whence)
}

// WriteTo hides that of the reader inside, which would not ask whether the context has ended.
func (b *body) WriteTo(w io.Writer) (int64, error) { return io.Copy(w, struct{ io.Reader }{b}) }
