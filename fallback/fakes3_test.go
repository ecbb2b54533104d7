package fallback_test

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/pem"
	"encoding/xml"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/fallback"
)

// fakeS3 is as much of S3 as a fallback asks for, with faults. The same table is run against a real server (package
// interop), so that it does not only agree with our own errors.
type fakeS3 struct {
	mu      sync.Mutex
	objects map[string][]byte
	at      map[string]time.Time
	uploads map[string]map[int][]byte
	sums    map[string]string // of what was put together from parts
	asked   []string          // METHOD /bucket/key?query, in order

	fault func(w http.ResponseWriter, r *http.Request) (answered bool) // nil: none
	mute  bool                                                         // says nothing of checksums, as servers that do not know them
}

// newFakeS3 returns the fake and a client of it.
func newFakeS3(t *testing.T) (*fakeS3, *fallback.Bucket) {
	t.Helper()
	f := &fakeS3{objects: map[string][]byte{}, at: map[string]time.Time{}, uploads: map[string]map[int][]byte{}}
	srv := httptest.NewServer(f)
	t.Cleanup(srv.Close)
	return f, clientOf(t, srv.URL)
}

// newFakeS3OverTLS is newFakeS3 for a server that knows HTTP/2, too.
func newFakeS3OverTLS(t *testing.T) (*fakeS3, *fallback.Bucket) {
	t.Helper()
	f := &fakeS3{objects: map[string][]byte{}, at: map[string]time.Time{}, uploads: map[string]map[int][]byte{}}
	srv := httptest.NewUnstartedServer(f)
	srv.EnableHTTP2 = true
	srv.StartTLS()
	t.Cleanup(srv.Close)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_CA_BUNDLE", ca)
	return f, clientOf(t, srv.URL)
}

func clientOf(t *testing.T, url string) *fallback.Bucket {
	t.Helper()
	t.Setenv("AWS_ACCESS_KEY_ID", "who")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	b, err := fallback.OpenBucket(t.Context(), fallback.S3{Bucket: "spill", Prefix: "fleet/", Endpoint: url, PathStyle: true}, (&net.Dialer{}).DialContext)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func refuse(w http.ResponseWriter, status int, word string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code><Message>as the test has it</Message></Error>", word)
}

func crc(b []byte) string {
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))))
}

func (f *fakeS3) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.asked = append(f.asked, r.Method+" "+r.URL.RequestURI())
	fault := f.fault
	f.mu.Unlock()
	if fault != nil && fault(w, r) {
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has gone
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	key, q := r.URL.Path, r.URL.Query()
	sum := r.Header.Get("x-amz-checksum-crc32c")
	if r.Method == http.MethodPut {
		if sum == "" || sum != crc(body) {
			refuse(w, http.StatusBadRequest, "BadDigest")
			return
		}
		if !f.mute {
			w.Header().Set("x-amz-checksum-crc32c", sum)
		}
		w.Header().Set("ETag", `"`+hex.EncodeToString([]byte(sum))+`"`)
	}
	_, taken := f.objects[key]
	taken = taken && r.Header.Get("If-None-Match") == "*"
	switch upload := q.Get("uploadId"); {
	case r.Method == http.MethodPost && q.Has("uploads"):
		id := strconv.Itoa(len(f.uploads) + 1)
		f.uploads[id] = map[int][]byte{}
		fmt.Fprintf(w, "<InitiateMultipartUploadResult><UploadId>%s</UploadId></InitiateMultipartUploadResult>", id)
	case upload != "" && f.uploads[upload] == nil:
		refuse(w, http.StatusNotFound, "NoSuchUpload")
	case r.Method == http.MethodPut && upload != "":
		no, _ := strconv.Atoi(q.Get("partNumber"))
		f.uploads[upload][no] = body
	case r.Method == http.MethodDelete && upload != "":
		delete(f.uploads, upload)
		w.WriteHeader(http.StatusNoContent)
	case taken:
		refuse(w, http.StatusPreconditionFailed, "PreconditionFailed")
	case r.Method == http.MethodPost && upload != "":
		f.complete(w, key, upload, body)
	case r.Method == http.MethodPut:
		f.objects[key], f.at[key] = body, time.Now()
		delete(f.sums, key)
	default:
		f.get(w, r, key)
	}
}

func (f *fakeS3) complete(w http.ResponseWriter, key, upload string, body []byte) {
	var list struct {
		Part []struct {
			PartNumber     int
			ChecksumCRC32C string
		}
	}
	if err := xml.Unmarshal(body, &list); err != nil {
		refuse(w, http.StatusBadRequest, "MalformedXML")
		return
	}
	var whole, sums []byte
	for _, p := range list.Part {
		part := f.uploads[upload][p.PartNumber]
		if part == nil || crc(part) != p.ChecksumCRC32C {
			refuse(w, http.StatusBadRequest, "InvalidPart")
			return
		}
		whole = append(whole, part...)
		sums = binary.BigEndian.AppendUint32(sums, crc32.Checksum(part, crc32.MakeTable(crc32.Castagnoli)))
	}
	delete(f.uploads, upload)
	if f.sums == nil {
		f.sums = map[string]string{}
	}
	f.sums[key] = fmt.Sprintf("%s-%d", crc(sums), len(list.Part))
	f.objects[key], f.at[key] = whole, time.Now()
	fmt.Fprintf(w, "<CompleteMultipartUploadResult><ETag>%s</ETag></CompleteMultipartUploadResult>", crc(whole))
}

func (f *fakeS3) get(w http.ResponseWriter, r *http.Request, key string) {
	body, there := f.objects[key]
	if !there {
		refuse(w, http.StatusNotFound, "NoSuchKey")
		return
	}
	w.Header().Set("ETag", `"`+crc(body)+`"`)
	if sum := f.sums[key]; sum != "" && r.Header.Get("x-amz-checksum-mode") == "ENABLED" {
		w.Header().Set("x-amz-checksum-crc32c", sum)
	}
	if rng := r.Header.Get("Range"); rng != "" {
		var from int
		fmt.Sscanf(rng, "bytes=%d-", &from)
		if from >= len(body) {
			refuse(w, http.StatusRequestedRangeNotSatisfiable, "InvalidRange")
			return
		}
	}
	http.ServeContent(w, r, "", f.at[key], bytes.NewReader(body))
}

func (f *fakeS3) set(fault func(w http.ResponseWriter, r *http.Request) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault = fault
}

// count is how often something was asked whose line contains all of these words.
func (f *fakeS3) count(words ...string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, line := range f.asked {
		if !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(line, word) }) {
			n++
		}
	}
	return n
}

func (f *fakeS3) openUploads() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.uploads)
}
