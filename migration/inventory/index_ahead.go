package inventory

// ahead finds a directory's blocks in the index by their names. A directory lists its names in much the same order each
// time, with some gone and others between, so only a few blocks have to be in memory. A name that is not among the next
// mostUnmet blocks is treated as unknown.
type ahead struct {
	next   func() (wasBlock, error)
	unread int
	read   map[string]unmet // read from the index, and not yet met in the directory
	last   int              // place of the last block met
	swept  int              // the value of last at the last sweep
	at     int
}

type unmet struct {
	wasBlock
	place int
}

// mostUnmet blocks take some hundred KiB.
const mostUnmet = 1024

func (a *ahead) find(name []byte) (was wasBlock, ok bool, err error) {
	if p, ok := a.read[string(name)]; ok {
		delete(a.read, string(name))
		a.last = max(a.last, p.place)
		return p.wasBlock, true, nil
	}
	if len(a.read) == mostUnmet && a.swept < a.last {
		for name, p := range a.read { // a block not met by now is gone
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
		was.name = nil // it is valid only until the next record is read
		a.read[at] = unmet{was, a.at}
	}
	return was, false, nil
}
