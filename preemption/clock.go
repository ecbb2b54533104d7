package preemption

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"time"
)

// serviceClock follows a metadata service's clock by its answers (RFC 9110, 6.6.1: Date). The cloud writes its deadlines by
// that clock, and a host that has not found a time server yet would think it has more time than there is, or none.
type serviceClock struct{ ahead atomic.Int64 } // nanoseconds, of this host's

// clockGrain is how far apart the two clocks may seem and still agree: a Date has a grain of a second, and arrives as late
// as its answer. clockSlack is a difference that does not matter, because the tail keeps as much back from a deadline.
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

// differs returns how far the service's clock is ahead of this host's, and a remark on it for people; 0 where that does not
// matter.
func (c *serviceClock) differs() (ahead time.Duration, word string) {
	ahead = time.Duration(c.ahead.Load())
	if ahead.Abs() <= clockSlack {
		return 0, ""
	}
	return ahead, fmt.Sprintf(" (by the service's clock: this host's is off by %s)", ahead.Abs().Round(time.Second))
}

// by wraps read so that it takes deadlines by the service's clock, by which they are written, and turns them into this
// host's time.
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
