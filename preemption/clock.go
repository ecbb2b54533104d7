package preemption

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"time"
)

// serviceClock is a metadata service's clock as its answers tell of it (RFC 9110, 6.6.1: Date). The cloud writes its times by it,
// and a host that has not found a time server yet would believe that it has more time than there is, or none.
type serviceClock struct{ ahead atomic.Int64 } // nanoseconds, of this host's

// clockGrain is how far the two clocks may seem apart and be one: a Date has a grain of a second, and comes as late as its
// answer. clockSlack is what does not matter between them: as much is kept back from a deadline.
const clockGrain, clockSlack = 2 * time.Second, 5 * time.Second

func (c *serviceClock) hear(answer *http.Response) {
	date, err := http.ParseTime(answer.Header.Get("Date"))
	if err != nil {
		return
	}
	if ahead := time.Until(date); (ahead - time.Duration(c.ahead.Load())).Abs() > clockGrain {
		c.ahead.Store(int64(ahead))
	}
}

// differs is how far the service's clock is ahead of this host's, and what to say of it; 0 where that does not matter.
func (c *serviceClock) differs() (ahead time.Duration, word string) {
	ahead = time.Duration(c.ahead.Load())
	if ahead.Abs() <= clockSlack {
		return 0, ""
	}
	return ahead, fmt.Sprintf(" (by the service's clock: this host's is off by %s)", ahead.Abs().Round(time.Second))
}

// by has times read by the service's clock, where this host's differs: it is the one that they were written by.
func (c *serviceClock) by(read func([]byte, time.Time) ([]Notice, error)) func([]byte, time.Time) ([]Notice, error) {
	return func(body []byte, now time.Time) ([]Notice, error) {
		ahead, word := c.differs()
		said, err := read(body, now.Add(ahead))
		for i := range said {
			if !said[i].Deadline.IsZero() {
				said[i].Deadline = said[i].Deadline.Add(-ahead)
				said[i].Reason += word
			}
		}
		return said, err
	}
}
