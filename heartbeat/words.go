package heartbeat

import (
	"slices"

	"github.com/lifeboat/lifeboat/api"
)

// words say what became of blocks here, in the order in which it happened. They are kept as the messages that they go out in, which takes
// a third of the memory of a list of blocks. A coordinator reads what landed in a message before what is gone, but a block may have come,
// gone and come again: so each message holds only one of the two, and one reason for gone blocks.
type words struct {
	messages []*message
	count    int
}

type message struct {
	heldRuns // counts gone blocks too
	gone     []string
	why      string // they are gone
	full     bool
}

func (w *words) landed(b *api.HeldBlock) {
	m := w.last(false, "")
	m.full = m.add(b)
	w.count++
}

func (w *words) gone(id, why string) {
	m := w.last(true, why)
	m.gone = append(m.gone, id)
	m.full = m.size.add(len(id))
	w.count++
}

// last returns the message that takes the next word.
func (w *words) last(gone bool, why string) *message {
	if n := len(w.messages); n > 0 {
		if m := w.messages[n-1]; !m.full && m.why == why && gone == (m.gone != nil) {
			return m
		}
	}
	m := &message{why: why}
	w.messages = append(w.messages, m)
	return m
}

// follow puts later words behind these.
func (w *words) follow(later words) {
	w.messages = append(w.messages, later.messages...)
	w.count += later.count
}

// onlyGone drops all but the words of gone blocks, and of those whole messages beyond the most that are to stay.
func (w *words) onlyGone(most int) {
	w.count = 0
	w.messages = slices.DeleteFunc(w.messages, func(m *message) bool {
		if m.gone == nil || w.count+len(m.gone) > most {
			return true
		}
		w.count += len(m.gone)
		return false
	})
}

func (w words) send(send func(*api.ReportBlocksRequest) error) error {
	for _, m := range w.messages {
		if err := send(&api.ReportBlocksRequest{Runs: m.runs, Gone: m.gone, Why: m.why}); err != nil {
			return err
		}
	}
	return nil
}
