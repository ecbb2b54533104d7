package durable_test

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lifeboat/lifeboat/disks/smalldisk"
	"github.com/lifeboat/lifeboat/durable"
)

func TestBallastIsRoomOnAFullDisk(t *testing.T) {
	dir := smalldisk.New(t, 1<<20)
	b := durable.NewBallast(filepath.Join(dir, "ballast"))
	if err := b.Keep(48 << 10); err != nil || b.Bytes() != 48<<10 {
		t.Fatalf("got %d bytes (%v), want 48 KiB", b.Bytes(), err)
	}
	page, full := filepath.Join(dir, "page"), filepath.Join(dir, "full")
	if err := os.WriteFile(full, make([]byte, 2<<20), 0o600); !durable.Full(err) {
		t.Fatalf("fill the disk: %v", err)
	}
	if err := durable.WriteFile(page, make([]byte, 40<<10)); !durable.Full(err) {
		t.Fatalf("the disk is not full: %v", err)
	}
	if !b.Free() || b.Free() {
		t.Error("it was not given up once")
	}
	if err := durable.WriteFile(page, make([]byte, 40<<10)); err != nil {
		t.Error(err)
	}
	if err := b.Keep(48 << 10); err != nil || b.Bytes() != 0 {
		t.Errorf("a full disk was made fuller: %d bytes (%v)", b.Bytes(), err)
	}
	if err := os.Remove(full); err != nil {
		t.Fatal(err)
	}
	if err := b.Keep(1 << 30); err != nil || b.Bytes() == 0 || b.Bytes() > 1<<20/16 {
		t.Errorf("got %d bytes (%v), want what the disk can spare", b.Bytes(), err)
	}
}

// A copy of a disk may have the ballast as a hole, which takes no room.
func TestBallastThatIsAHoleIsMadeAnew(t *testing.T) {
	path := filepath.Join(smalldisk.New(t, 1<<20), "ballast")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 48<<10); err != nil {
		t.Fatal(err)
	}
	b := durable.NewBallast(path)
	if n := b.Bytes(); n != 0 {
		t.Errorf("a hole counts as %d bytes of room", n)
	}
	if err := b.Keep(48 << 10); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil || st.Blocks*512 < 48<<10 {
		t.Errorf("%d bytes are kept, %v, want 48 KiB", st.Blocks*512, err)
	}
}

func TestClaimedRoomIsNobodyElses(t *testing.T) {
	dir := smalldisk.New(t, 1<<20)
	f, err := os.OpenFile(filepath.Join(dir, "account"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := durable.Claim(f, 256<<10); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "full"), make([]byte, 2<<20), 0o600); !durable.Full(err) {
		t.Fatalf("fill the disk: %v", err)
	}
	if n, err := f.Write(make([]byte, 256<<10)); err != nil {
		t.Errorf("wrote %d bytes of 256 KiB: %v", n, err)
	}
}
