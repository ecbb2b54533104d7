package reading

import (
	"net/http"
	"net/url"

	"github.com/lifeboat/lifeboat/migration/inventory"
)

// The values of hopHeader: what an agent may answer another that asks for a reader.
const (
	hopFirst = "1" // the bytes, or if they are broken here who else has them
	hopLast  = "2" // the bytes, or that they are not here: a reader is sent on once
)

// sendOn names another holder to an agent that asks for a block which is broken here: the node that it came from, as long
// as that is there, or another one. It reports false if no holder is known, or if the asker was sent here already.
func (rd *Reader) sendOn(w http.ResponseWriter, req *http.Request, id inventory.BlockID) bool {
	if rd.Fetch == nil || req.Header.Get(hopHeader) != hopFirst {
		return false
	}
	holders, _, err := rd.Fetch.resolve(req.Context(), id)
	if err != nil {
		return false
	}
	redirect(w, holders[0], id)
	return true
}

func redirect(w http.ResponseWriter, to Holder, id inventory.BlockID) {
	w.Header().Set("Location", blockURL(to, id))
	w.Header().Set("Lifeboat-Node", to.Node)
	w.WriteHeader(http.StatusTemporaryRedirect)
}

// sentOn returns the node that a holder's redirect names.
func sentOn(resp *http.Response) (h Holder, ok bool) {
	if resp.StatusCode != http.StatusTemporaryRedirect {
		return Holder{}, false
	}
	to, err := url.Parse(resp.Header.Get("Location"))
	if err != nil {
		return Holder{}, false
	}
	h = Holder{Node: resp.Header.Get("Lifeboat-Node"), Address: to.Host}
	return h, h.Node != "" && h.Address != ""
}
