package fallback_test

import (
	"testing"

	"github.com/lifeboat/lifeboat/fallback"
	"github.com/lifeboat/lifeboat/fallback/storagetest"
)

func TestDirectory(t *testing.T) { storagetest.Run(t, fallback.NewDirectory(t.TempDir())) }

func TestBucket(t *testing.T) {
	_, b := newFakeS3(t)
	storagetest.Run(t, b)
}
