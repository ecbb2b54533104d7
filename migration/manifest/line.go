package manifest

import (
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A manifest has a line of JSON for every block, written as its receipt comes and read again for the last report. Next to
// the few microseconds that a small block takes, encoding/json is slow, so the lines that this node writes are put
// together and taken apart by hand. A line with a string that has to be escaped is left to encoding/json, both ways.

// AppendLine writes what json.Marshal would, and ends the line.
func (e Entry) AppendLine(b []byte) []byte {
	b = e.appendFields(b)
	if e.Version != "" {
		b = appendQuoted(append(b, `,"version":`...), e.Version)
	}
	return append(b, "}\n"...)
}

// appendFields writes all but the version.
func (e Entry) appendFields(b []byte) []byte {
	b = appendQuoted(append(b, `{"id":`...), e.ID)
	b = strconv.AppendInt(append(b, `,"bytes":`...), e.Bytes, 10)
	b = appendQuoted(append(b, `,"outcome":`...), string(e.Outcome))
	if e.Peer != "" {
		b = appendQuoted(append(b, `,"peer":`...), e.Peer)
	}
	if e.Reason != "" {
		b = appendQuoted(append(b, `,"reason":`...), e.Reason)
	}
	return b
}

// ParseLine reads any line that json.Unmarshal would.
func ParseLine(line []byte) (e Entry, err error) {
	if e, ok := parsePlain(string(line)); ok {
		return e, nil
	}
	return parseAny(line)
}

// parseAny is a function of its own because an Entry that encoding/json fills in is an allocation.
func parseAny(line []byte) (e Entry, err error) {
	err = json.Unmarshal(line, &e)
	return e, err
}

// parsePlain reads what AppendLine writes where no string has to be escaped.
func parsePlain(line string) (e Entry, ok bool) {
	r := plainReader{rest: line}
	r.must(`{"id":`)
	e.ID = r.quoted()
	r.must(`,"bytes":`)
	e.Bytes = r.number()
	r.must(`,"outcome":`)
	e.Outcome = Outcome(r.quoted())
	if r.skip(`,"peer":`) {
		e.Peer = r.quoted()
	}
	if r.skip(`,"reason":`) {
		e.Reason = r.quoted()
	}
	if r.skip(`,"version":`) {
		e.Version = r.quoted()
	}
	r.must("}\n")
	return e, !r.bad && r.rest == ""
}

// plainReader takes a line apart from its beginning; once something is not as expected, the rest means nothing.
type plainReader struct {
	rest string
	bad  bool
}

func (r *plainReader) skip(word string) (ok bool) {
	r.rest, ok = strings.CutPrefix(r.rest, word)
	return ok
}

func (r *plainReader) must(word string) { r.bad = !r.skip(word) || r.bad }

func (r *plainReader) quoted() (s string) {
	r.must(`"`)
	n := plainBytes(r.rest)
	s, r.rest = r.rest[:n], r.rest[n:]
	r.must(`"`)
	return s
}

// number reads a number as AppendLine writes one of bytes: without a sign, and without zeros before it.
func (r *plainReader) number() int64 {
	n := 0
	for n < len(r.rest) && '0' <= r.rest[n] && r.rest[n] <= '9' {
		n++
	}
	digits := r.rest[:n]
	v, err := strconv.ParseInt(digits, 10, 64)
	r.rest, r.bad = r.rest[n:], r.bad || err != nil || n > 1 && digits[0] == '0'
	return v
}

func appendQuoted(b []byte, s string) []byte {
	if plainBytes(s) == len(s) {
		return append(append(append(b, '"'), s...), '"')
	}
	quoted, err := json.Marshal(s)
	if err != nil {
		panic(err) // a string is always JSON
	}
	return append(b, quoted...)
}

// plainBytes is how much of a string encoding/json writes as it is, as far as that can be told byte by byte.
func plainBytes(s string) int {
	for i := range len(s) {
		if special[s[i]] {
			return i
		}
	}
	return len(s)
}

// special are the bytes that encoding/json does not write as they are, or not always.
var special = func() (is [256]bool) {
	for c := range is {
		is[c] = c < ' ' || c >= utf8.RuneSelf || strings.IndexByte(`"\<>&`, byte(c)) >= 0
	}
	return is
}()
