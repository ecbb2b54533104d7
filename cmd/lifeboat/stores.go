package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/lifeboat/lifeboat/agent"
	"github.com/lifeboat/lifeboat/migration"
)

// storeLook is what a store of the agent's file looks like from here.
type storeLook struct {
	agent.Store
	absent []string // of its directories
	err    error    // why one cannot be looked into
	bare   bool     // nothing is in any of them
}

// lookAtStores looks into their directories. One on a disk that hangs is left behind.
func lookAtStores(ctx context.Context, stores []agent.Store) (all []storeLook) {
	ctx, cancel := context.WithTimeout(ctx, doctorPatience)
	defer cancel()
	for _, s := range stores {
		l := storeLook{Store: s, bare: true}
		for _, path := range s.Paths {
			found := make(chan error, 1)
			go func() { found <- lookInto(path) }()
			var err error
			select {
			case err = <-found:
			case <-ctx.Done():
				err = fmt.Errorf("%s: no answer in time", path)
			}
			switch {
			case errors.Is(err, fs.ErrNotExist):
				l.absent = append(l.absent, path)
			case errors.Is(err, io.EOF):
			case err != nil:
				l.err, l.bare = err, false
			default:
				l.bare = false
			}
		}
		all = append(all, l)
	}
	return all
}

// lookInto returns io.EOF of a directory in which nobody has put anything: what the agent and mkfs make there does not count.
func lookInto(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	defer dir.Close()
	for {
		names, err := dir.Readdirnames(100)
		if err != nil || slices.ContainsFunc(names, func(name string) bool { return name[0] != '.' && name != "lost+found" }) {
			return err
		}
	}
}

// storeRemarks say what is odd about stores and is no fault: a disk may be mounted later.
func storeRemarks(ctx context.Context, stores []agent.Store) (remarks []string) {
	if len(stores) == 0 {
		remarks = append(remarks, "no stores: this node carries nothing")
	}
	for _, l := range lookAtStores(ctx, stores) {
		for _, path := range l.absent {
			remarks = append(remarks, fmt.Sprintf("store %s: %s is not there: the agent makes it; is its disk mounted?", l.Name, path))
		}
	}
	return remarks
}

func (x *examination) diagnoseStores(add adder) {
	if x.carrier && len(x.stores) == 0 {
		add("stores", stateWarn, "list under stores what is to be carried, unless this node is there for others alone", "none: this node carries nothing of its own")
	}
	for _, l := range x.stores {
		check, where := "store "+l.Name, strings.Join(l.Paths, ", ")
		switch {
		case len(l.absent) > 0:
			add(check, stateWarn, "mount its disk, then restart the agent; or is it misspelled?", "not there: %s", strings.Join(l.absent, ", "))
		case l.err != nil:
			add(check, stateUnknown, "", "%s", firstLine(l.err))
		case l.bare:
			add(check, stateWarn, "see that its disk is mounted, and that this is where the engine writes", "%s: nothing is there", where)
		case x.indexed() == l.Name:
			i := x.agent.GetIndex()
			add(check, stateOK, "", "%s: %s, %s, as of %s ago", where, count(i.GetBlocks(), "block"), size(i.GetBytes()), age(i.GetAge()))
		default:
			add(check, stateOK, "", "%s", where)
		}
	}
}

// indexed is the store that the agent's index is of, if it is of one alone: of plain files.
func (x *examination) indexed() (name string) {
	if x.agent.GetIndex() == nil {
		return ""
	}
	for _, l := range x.stores {
		if l.Layout == migration.LayoutFiles {
			if name != "" {
				return ""
			}
			name = l.Name
		}
	}
	return name
}
