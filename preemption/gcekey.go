package preemption

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/lifeboat/lifeboat/await"
)

const (
	// hangFor is how long the server is asked to wait for a change: as long as Google's own guest agent asks. hangLimit
	// leaves it time to answer that there was none.
	hangFor   = time.Minute
	hangLimit = hangFor + 5*time.Second

	// shortestPause and longestPause bound the pause after a hanging GET that was answered at once without news. Some
	// servers do not wait, and a client that does not pause makes 26,000 requests a second.
	shortestPause = 50 * time.Millisecond
	longestPause  = time.Second

	// missingEvery is how often an urgent key is asked for while it does not exist, for then no GET can hang on it.
	missingEvery = 2 * time.Second
)

// gceKey listens at one key of the metadata server: with a GET that hangs until the value changes, if the key is worth a
// connection, and with plain GETs. One goroutine runs it.
type gceKey struct {
	path, query string
	every       time.Duration // between plain GETs
	hangs       bool
	// ahead is called before an answer is read, to ask for more keys that the reading needs. It may be nil.
	ahead func(ctx context.Context, body []byte)

	belief *belief
	plain  asker[answer] // plain GETs
	get    func(ctx context.Context, path string) (answer, error)
	polled func(Poll)
	news   *queue

	last  string        // the body of the last answer
	etag  string        // its ETag; empty: there is none, or the last GET failed, so a plain one comes next
	pause time.Duration // the spacing of hanging GETs, which grows while they bring nothing and do not wait
	waits streak        // of hanging GETs that fail while plain ones work
}

// run listens until ctx ends.
func (k *gceKey) run(ctx context.Context) {
	defer k.plain.giveUp()
	k.pause = shortestPause
	for ctx.Err() == nil {
		began := time.Now()
		var pause time.Duration
		if k.etag == "" {
			pause = k.look(ctx)
		} else {
			pause = k.hang(ctx)
		}
		if sleepUntil(ctx, began.Add(pause)) != nil { // from its start, so that a GET that took long does not delay the next further
			return
		}
	}
}

// look asks for the value as it is now, and returns how long after its start the next GET is due.
func (k *gceKey) look(ctx context.Context) time.Duration {
	one, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	answer, took, err := k.plain.get(one)
	if ctx.Err() != nil {
		return 0
	}
	_, err = k.hear(ctx, answer, err)
	k.tell(Poll{Result: result(err), Took: took})
	switch {
	case err != nil:
		return k.patience(err)
	case !k.hangs:
		k.etag = ""
		return jittered(k.every)
	case !answer.found:
		return jittered(missingEvery)
	case answer.etag == "":
		return jittered(longestPause)
	default:
		return k.pause
	}
}

// hang waits for the value to change, and returns how long after its start the next GET is due. A plain GET now and then
// covers the case that the hanging GET was lost. If the plain GET fails, or sees a change first, it ends the hanging GET and
// closes its connection: nothing else would tell the server that nobody listens any more. So answers are always weighed in
// the order in which they were true.
func (k *gceKey) hang(ctx context.Context) time.Duration {
	began := time.Now()
	var said answer
	var err error
	waiting, cancel := context.WithTimeout(ctx, hangLimit)
	target := k.target(url.Values{
		"wait_for_change": {"true"}, "last_etag": {k.etag}, "timeout_sec": {strconv.Itoa(int(hangFor.Seconds()))},
	})
	answered := await.Beside(func() { said, err = k.get(waiting, target) })
	defer func() { cancel(); <-answered }()
	for {
		select {
		case <-answered:
			if ctx.Err() != nil {
				return 0
			}
			return k.end(ctx, said, err, time.Since(began))
		case <-time.After(jittered(k.every)):
			known := k.etag
			if pause := k.look(ctx); k.etag != known {
				return pause
			}
		}
	}
}

// end weighs the answer of a hanging GET, and returns how long after its start the next GET is due. A failure alone is no
// trouble: the plain GET that comes next shows whether the server can be asked.
func (k *gceKey) end(ctx context.Context, answer answer, err error, took time.Duration) time.Duration {
	if err == nil && answer.found {
		_, err = k.belief.read(answer.body, time.Now())
	}
	var changed bool
	if err != nil {
		k.etag = ""
	} else {
		changed, err = k.hear(ctx, answer, nil)
	}
	k.tell(Poll{Result: result(err)})
	switch {
	case changed, err == nil && took >= longestPause:
		k.pause = shortestPause
		k.waits.worked()
	case took >= longestPause: // the server did wait: try again at once
		k.pause = shortestPause
	default:
		k.pause = min(2*k.pause, longestPause)
		if err != nil && k.pause == longestPause {
			k.waits.failed(err)
		}
	}
	if err != nil {
		return shortestPause
	}
	return k.pause
}

// hear weighs an answer, and tells whether it differs from the last one. The error is why it counts for nothing.
func (k *gceKey) hear(ctx context.Context, answer answer, err error) (changed bool, _ error) {
	if err == nil && k.ahead != nil {
		k.ahead(ctx, answer.body)
	}
	news, err := k.belief.hear(answer.body, answer.found, err, time.Now())
	if err != nil {
		k.etag = ""
		return false, err
	}
	for _, n := range news {
		k.news.push(n)
	}
	changed = string(answer.body) != k.last
	k.last, k.etag = string(answer.body), answer.etag
	return changed, nil
}

// patience is the pause after a plain GET that failed: a twentieth of how long the trouble has lasted. So a short trouble
// costs little of the thirty seconds that a preemption leaves, and a long one causes little traffic. A refusal by rule (403)
// is no outage, and its pauses grow longer.
func (k *gceKey) patience(err error) time.Duration {
	longest := k.every / 10
	if s, ok := errors.AsType[*statusError](err); ok && s.Code == http.StatusForbidden {
		longest = k.every / 2
	}
	return jittered(max(k.every/200, min(time.Since(k.belief.trouble.failing)/20, longest)))
}

// target is the path of the key with its query and more parameters.
func (k *gceKey) target(more url.Values) string {
	switch query := more.Encode(); {
	case k.query == "" && query == "":
		return k.path
	case k.query == "" || query == "":
		return k.path + "?" + k.query + query
	default:
		return k.path + "?" + k.query + "&" + query
	}
}

func (k *gceKey) tell(p Poll) {
	if k.polled != nil {
		p.Source, p.Path = SourceGCE, k.path
		k.polled(p)
	}
}

// jittered returns d give or take a tenth, so that the machines of a fleet do not ask in step.
func jittered(d time.Duration) time.Duration {
	return d - d/10 + rand.N(d/5)
}
