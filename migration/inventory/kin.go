package inventory

import "sync"

// Kin remembers which managers share an executor, from one look through Spark's directories to the next. A later look meets only files that
// have changed, and has less to tell it by.
type Kin struct {
	mu    sync.Mutex
	mates map[kinSide]kinsman
}

// kinsman names a manager by its place.
type kinsman struct {
	store string
	root  int
	path  string
}

type kinSide struct {
	of kinsman
	at seat
}

func (s *Store) kinsman(m *blockManager) kinsman { return kinsman{s.Name, m.root, m.path} }

// learn notes the mates that a look has found. A nil kin learns nothing.
func (k *Kin) learn(s *Store, all *managers) {
	if k == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.mates == nil {
		k.mates = map[kinSide]kinsman{}
	}
	for side, mate := range all.mates {
		k.mates[kinSide{s.kinsman(side.of), side.at}] = s.kinsman(mate)
	}
}

// tell gives a look the mates that are known of managers which are still there.
func (k *Kin) tell(s *Store, all *managers) {
	if k == nil {
		return
	}
	is := map[kinsman]*blockManager{}
	for _, m := range all.all {
		is[s.kinsman(m)] = m
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for known, mate := range k.mates {
		if of, mate := is[known.of], is[mate]; of != nil && mate != nil {
			all.mates[side{of, known.at}] = mate
		}
	}
}
