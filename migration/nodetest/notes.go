package nodetest

import (
	"strings"
	"sync"
)

// Notes are a log that is read while it is written.
type Notes struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *Notes) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// Count is how often it says that.
func (l *Notes) Count(what string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), what)
}
