package main

import (
	"strings"
	"testing"

	"github.com/lifeboat/lifeboat/api"
)

// A coordinator with a full disk leads no more: its status says why.
func TestStatusOfACoordinatorWithAFullDisk(t *testing.T) {
	var b strings.Builder
	if err := printCoordinator(&b, &api.CoordinatorStatus{Name: "c1", DiskTrouble: "no space left on device"}); err != nil {
		t.Fatal(err)
	}
	if got := b.String(); !strings.Contains(got, "DISK         no space left on device\n") {
		t.Errorf("got:\n%s", got)
	}
}
