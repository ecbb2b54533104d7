package fallback_test

import (
	"errors"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/lifeboat/lifeboat/fallback"
)

// A share that can neither link nor look says so, and not that somebody else has the name.
func TestDirectoryThatCannotLookIsNotTaken(t *testing.T) {
	d := fallback.NewDirectory(t.TempDir())
	err := d.Put(t.Context(), strings.Repeat("x", 300), 1, strings.NewReader("x"), true)
	if !errors.Is(err, syscall.ENAMETOOLONG) || errors.Is(err, fs.ErrExist) {
		t.Errorf("got %v, want the share's own error", err)
	}
}
