package reading

import (
	"net/http"
	"time"
)

// readerPatience is how long a reader may take no bytes of its answer. A person who looks through a block with a pager takes minutes. A
// reader that stands still for good would keep the file open, and a segment from giving its space back, for as long as its kernel
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
	_ = p.conn.SetWriteDeadline(time.Now().Add(readerPatience)) // an error means that there is no connection
	return p.ResponseWriter.Write(b)
}

// end takes the deadline off again: the next request on the connection begins without one.
func (p patient) end() { _ = p.conn.SetWriteDeadline(time.Time{}) }

// Unwrap serves http.ResponseController.
func (p patient) Unwrap() http.ResponseWriter { return p.ResponseWriter }
