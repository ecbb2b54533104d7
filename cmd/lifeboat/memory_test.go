package main

import (
	"encoding/binary"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"

	"golang.org/x/sys/unix"
)

// A daemon counts as large as what it touches of its own binary. The kernel would map sixteen pages for one.
func TestBinaryIsMappedPageByPage(t *testing.T) {
	if !pageByPage() {
		t.Skip("this kernel, or a filter of calls, has no userfaultfd that watches asynchronously")
	}
	giveBack()
	page, around := uintptr(os.Getpagesize()), uintptr(16)
	for begin, size := range ownPages() {
		// Tests that run in parallel touch pages too: look for sixteen in a row that are not mapped.
		for at := (begin + size/2) &^ (around*page - 1); at+around*page <= begin+size; at += around * page {
			if mapped(t, at, around) > 0 {
				continue
			}
			if _, _, errno := unix.Syscall(unix.SYS_MADVISE, at, page, unix.MADV_POPULATE_READ); errno != 0 {
				t.Skip("this kernel touches no page on request: ", errno)
			}
			if n := mapped(t, at, around); n != 1 {
				t.Errorf("%d pages are mapped for one that was touched, want it alone", n)
			}
			break
		}
	}
}

// mapped counts those of n pages that this process has mapped: proc_pid_pagemap(5).
func mapped(t *testing.T, at, n uintptr) (count int) {
	t.Helper()
	f, err := os.Open("/proc/self/pagemap")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const present = 1 << 63
	words := make([]byte, 8*n)
	if _, err := f.ReadAt(words, int64(at/uintptr(os.Getpagesize()))*8); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if binary.NativeEndian.Uint64(words[8*i:])&present != 0 {
			count++
		}
	}
	return count
}

// A daemon with a large live heap collects less often, and as often as before once it is small again. The test needs its own process: cobra
// keeps every command that ever got completions, and with those of other tests the heap stays large.
func TestGCPercentFollowsTheHeap(t *testing.T) {
	const alone = "LIFEBOAT_TEST_ALONE"
	if os.Getenv(alone) == "" {
		child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		child.Env = append(os.Environ(), alone+"=1")
		if out, err := child.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	debug.SetGCPercent(gcPercent)
	followGC(gcPercent)
	inHand := make([]byte, 4*smallHeap)
	wantPercent(t, roomyPercent)
	runtime.KeepAlive(inHand)
	wantPercent(t, gcPercent)
}

// wantPercent collects until the percent is as wanted: it is set a moment after a collection.
func wantPercent(t *testing.T, want int) {
	t.Helper()
	percent := []metrics.Sample{{Name: "/gc/gogc:percent"}}
	for range 1000 {
		runtime.GC()
		if metrics.Read(percent); percent[0].Value.Uint64() == uint64(want) {
			return
		}
	}
	t.Errorf("%d %% after a thousand collections, want %d", percent[0].Value.Uint64(), want)
}
