// Package fields writes and reads what goes over the wire and into files of an agent's own: varints and length-prefixed strings, one after
// the other. It knows no message: who reads one says which fields it has, and in which order.
package fields

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// AppendString appends a string with its length before it.
func AppendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// Decoder takes fields off a payload, in their order; after the first fault every further field is zero and end tells.
type Decoder struct {
	p      []byte
	copied string // the whole payload, that strings are cut out of; "": each is made by itself
	err    error
}

// Decode takes the fields off p.
func Decode(p []byte) Decoder { return Decoder{p: p} }

// DecodeText does so with strings that share one copy of p, which stays as long as any of them.
func DecodeText(p []byte) Decoder { return Decoder{p: p, copied: string(p)} }

// errShort says that there is less than there must be.
var errShort = errors.New("cut short")

// Sound is false once a field was faulty.
func (d *Decoder) Sound() bool { return d.err == nil }

// Fail says that a field has what nobody writes: no more is taken.
func (d *Decoder) Fail() { d.err, d.p = errShort, nil }

// Uvarint takes a number that is not negative.
func (d *Decoder) Uvarint() uint64 {
	v, n := binary.Uvarint(d.p)
	if n <= 0 {
		d.Fail()
		return 0
	}
	d.p = d.p[n:]
	return v
}

// Varint takes a number.
func (d *Decoder) Varint() int64 {
	v, n := binary.Varint(d.p)
	if n <= 0 {
		d.Fail()
		return 0
	}
	d.p = d.p[n:]
	return v
}

// Byte takes one byte.
func (d *Decoder) Byte() byte {
	if len(d.p) == 0 {
		d.Fail()
		return 0
	}
	v := d.p[0]
	d.p = d.p[1:]
	return v
}

// Text takes what AppendString wrote.
func (d *Decoder) Text() string {
	v := d.Take()
	if d.copied == "" {
		return string(v)
	}
	end := len(d.copied) - len(d.p)
	return d.copied[end-len(v) : end]
}

// Bytes does so, and returns bytes that are the caller's.
func (d *Decoder) Bytes() []byte { return bytes.Clone(d.Take()) }

// Take does so, and returns a piece of the payload.
func (d *Decoder) Take() []byte {
	n := d.Uvarint()
	if n > uint64(len(d.p)) {
		d.Fail()
		return nil
	}
	v := d.p[:n]
	d.p = d.p[n:]
	return v
}

// Like takes what AppendString wrote, which is often the same as before.
func (d *Decoder) Like(before string) string {
	if s := d.Take(); string(s) != before {
		return string(s)
	}
	return before
}

// End says what was wrong with the fields of what, or that there are more than there should be.
func (d *Decoder) End(what string) error {
	switch {
	case d.err != nil:
		return fmt.Errorf("payload of %s: %w", what, d.err)
	case len(d.p) != 0:
		return fmt.Errorf("payload of %s: %d bytes too many", what, len(d.p))
	}
	return nil
}

// EndOrMore is End for what two builds say to each other: a newer one may have put more behind the fields that are known here.
func (d *Decoder) EndOrMore(what string) error {
	d.p = nil
	return d.End(what)
}

// AppendFlags appends a byte with a bit for each, the first the lowest.
func AppendFlags(b []byte, flags ...bool) []byte {
	var set byte
	for i, is := range flags {
		if is {
			set |= 1 << i
		}
	}
	return append(b, set)
}

// Flags are the bits that AppendFlags wrote. What a newer build has added to them means nothing here.
func (d *Decoder) Flags(into ...*bool) {
	set := d.Byte()
	for i, is := range into {
		*is = set&(1<<i) != 0
	}
}
