package fallback_test

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/lifeboat/lifeboat/fallback"
	"github.com/lifeboat/lifeboat/fallback/storagetest"
)

func TestDirectory(t *testing.T) { storagetest.Run(t, fallback.NewDirectory(t.TempDir())) }

func TestBucket(t *testing.T) {
	_, b := newFakeS3(t)
	storagetest.Run(t, b)
}

// hasAll is a storage that says of every name that it is there, as some gateways do.
type hasAll struct{ fallback.Storage }

func (hasAll) Get(context.Context, string, int64, []byte) (int, error) { return 0, io.EOF }

func TestStorageThatHasEverythingIsSaidToBeNone(t *testing.T) {
	err := fallback.Check(t.Context(), hasAll{fallback.NewDirectory(t.TempDir())})
	if err == nil || strings.Contains(err.Error(), "%!") || !strings.Contains(err.Error(), "which nobody puts") {
		t.Errorf("got %v", err)
	}
}
