package reading

import (
	"net/http"
	"time"
)

// readerPatience is how long a reader may take nothing of what it asked for. Somebody who looks through a block with a pager does for
// minutes; one that stands still for good would keep the file open, and a segment from giving its space back, for as long as its kernel
// answers ours.
const readerPatience = 10 * time.Minute

// patient is an answer whose reader is given up when it takes nothing for readerPatience.
type patient struct {
	http.ResponseWriter
	conn *http.ResponseController
}

func newPatient(w http.ResponseWriter) patient {
	return patient{w, http.NewResponseController(w)}
}

func (p patient) Write(b []byte) (int, error) {
	_ = p.conn.SetWriteDeadline(time.Now().Add(readerPatience)) // where there is none to set, there is no connection
	return p.ResponseWriter.Write(b)
}

// end leaves the connection to what is asked next on it.
func (p patient) end() { _ = p.conn.SetWriteDeadline(time.Time{}) }

// Unwrap is for http.ResponseController.
func (p patient) Unwrap() http.ResponseWriter { return p.ResponseWriter }
