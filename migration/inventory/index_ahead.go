package inventory

// ahead finds the blocks of a directory by their names. A directory's names come in much the same order each time that it is
// read, less those that went and with others between, so few of its blocks are in memory: what is not met within so many is
// looked at as if nothing were known of it.
type ahead struct {
	next   func() (wasBlock, error)
	unread int
	read   map[string]unmet // and not met yet
	last   int              // the place of the last that was met
	swept  int              // of that when those before it were forgotten
	at     int
}

type unmet struct {
	wasBlock
	place int
}

// mostUnmet are some hundred KiB.
const mostUnmet = 1024

func (a *ahead) find(name []byte) (was wasBlock, ok bool, err error) {
	if p, ok := a.read[string(name)]; ok {
		delete(a.read, string(name))
		a.last = max(a.last, p.place)
		return p.wasBlock, true, nil
	}
	if len(a.read) == mostUnmet && a.swept < a.last {
		for name, p := range a.read { // what was not met by now is gone
			if p.place < a.last {
				delete(a.read, name)
			}
		}
		a.swept = a.last
	}
	for a.unread > 0 && len(a.read) < mostUnmet {
		was, err := a.next()
		if err != nil {
			return was, false, err
		}
		a.unread--
		a.at++
		if string(was.name) == string(name) {
			a.last = a.at
			return was, true, nil
		}
		if a.read == nil {
			a.read = map[string]unmet{}
		}
		at := string(was.name)
		was.name = nil // it is valid until the next is read
		a.read[at] = unmet{was, a.at}
	}
	return was, false, nil
}
