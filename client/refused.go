package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Why a fleet does not hand out a block.
var (
	ErrUnknown  = errors.New("no node has it")                          // 404: every node that could have it was asked
	ErrLost     = errors.New("lost: recompute it")                      // 410: a node had it, and none does
	ErrInFlight = errors.New("in flight: it is being carried just now") // 503, for longer than the patience: try again later
	ErrChanged  = errors.New("it is another one now")                   // between two parts of one reading: begin again
)

// InFlightError is ErrInFlight with the time after which to ask again, and the agent's words: the holder may also be away,
// and the coordinator, too.
type InFlightError struct {
	Retry time.Duration
	Words string // none after HEAD
}

func (e *InFlightError) Error() string {
	if e.Words == "" {
		return ErrInFlight.Error()
	}
	return fmt.Sprintf("not to be had just now: it answered %q", e.Words)
}

func (e *InFlightError) Unwrap() error { return ErrInFlight }

// LostError is ErrLost with the reason, as far as that is known.
type LostError struct{ Why string }

func (e *LostError) Error() string {
	if e.Why == "" {
		return ErrLost.Error()
	}
	return ErrLost.Error() + " (" + e.Why + ")"
}
func (e *LostError) Unwrap() error { return ErrLost }

// MembersError says that an id is a map output's: its members are read by ids of their own (300).
type MembersError struct {
	Members []Member `json:"members"` // none after HEAD
}

// Member is one file of a map output.
type Member struct {
	ID    string `json:"id"`
	Bytes int64  `json:"bytes"`
}

func (e *MembersError) Error() string {
	if len(e.Members) == 0 {
		return "it is a map output: read its members"
	}
	return fmt.Sprintf("it is a map output of %d members: read them", len(e.Members))
}

const (
	longestWait = 5 * time.Second // between two tries for a block that is being carried
	mostMembers = 1 << 20         // bytes, far above what a list of members takes: a map output has three
)

// Refused reads an agent's answer to GET /blocks/ID that does not have the bytes asked for, and returns it as an error:
// ErrUnknown, *LostError, ErrChanged, *InFlightError, *MembersError, or one with the agent's words.
func Refused(resp *http.Response) error {
	switch resp.StatusCode {
	case http.StatusMultipleChoices:
		return readMembers(resp.Body)
	case http.StatusNotFound:
		return ErrUnknown
	case http.StatusGone:
		return &LostError{resp.Header.Get("Lifeboat-Why")}
	case http.StatusPreconditionFailed, http.StatusRequestedRangeNotSatisfiable:
		return ErrChanged
	case http.StatusServiceUnavailable:
		seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")) // the other form, a date, is not what agents say
		if err != nil || seconds < 1 {
			seconds = 1
		}
		return &InFlightError{min(time.Duration(min(seconds, 3600))*time.Second, longestWait), words(resp.Body, 400)}
	case http.StatusOK:
		if resp.ContentLength == 0 {
			return ErrChanged // an empty block has no parts
		}
		return errors.New("it answered the whole block where a part was asked for")
	}
	err := fmt.Errorf("it answered %d %s", resp.StatusCode, strings.ToLower(http.StatusText(resp.StatusCode)))
	if said := words(resp.Body, 200); said != "" { // none after HEAD
		err = fmt.Errorf("%w %q", err, said)
	}
	return err
}

// words returns the beginning of what an agent said.
func words(body io.Reader, most int64) string {
	said, _ := io.ReadAll(io.LimitReader(body, most))
	return strings.TrimSpace(string(said))
}

func readMembers(body io.Reader) error {
	m := &MembersError{}
	switch err := json.NewDecoder(io.LimitReader(body, mostMembers)).Decode(m); {
	case err == io.EOF: // the answer to HEAD
	case err != nil:
		return fmt.Errorf("read the list of members: %w", err)
	case len(m.Members) == 0:
		return errors.New("it says that there are members, and names none")
	}
	return m
}
