package main

import (
	"errors"
	"slices"
	"testing"
)

func testFrame(last bool, path string, piece uint32, body string) []byte {
	f := append(make([]byte, headerBytes), path+body...)
	putHeader(f, last, len(path), piece)
	return f
}

// Wherever a stream is cut, frames that are whole are counted and others are not.
func TestVerifier(t *testing.T) {
	first, empty, second := testFrame(false, "a/b", 0, "some"), testFrame(true, "", 0, ""), testFrame(true, "", 1, "thing")
	stream := slices.Concat(first, empty, second)
	for cut := range len(stream) + 1 {
		var v verifier
		if err := errors.Join(v.take(stream[:cut]), v.take(nil)); err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		want := 0
		for _, f := range [][]byte{first, empty, second} {
			if want+len(f) > cut {
				break
			}
			want += len(f)
		}
		if v.sound != int64(want) || (v.have == 0) != (want == cut) {
			t.Errorf("cut at %d: %d bytes are sound and %d of a header, want %d", cut, v.sound, v.have, want)
		}
		if err := v.take(stream[cut:]); err != nil || v.sound != int64(len(stream)) || v.have != 0 {
			t.Errorf("cut at %d: got %d bytes and error %v, want %d", cut, v.sound, err, len(stream))
		}
	}
	for at := range stream {
		bad := slices.Clone(stream)
		bad[at] ^= 1
		var v verifier
		if err := v.take(bad); err == nil && v.have == 0 {
			t.Errorf("byte %d is flipped and the stream is whole", at)
		}
	}
}

func TestSome(t *testing.T) {
	x := &index{rest: []byte("300000 a\n300000 b\n1 c\n2 d")}
	for _, want := range []string{"300000 a\n300000 b\n", "1 c\n2 d", ""} {
		if got := string(x.some()); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
