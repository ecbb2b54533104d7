package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/lifeboat/lifeboat/agent"
	"github.com/lifeboat/lifeboat/cmd/lifeboat/show"
	"github.com/lifeboat/lifeboat/config"
	"github.com/lifeboat/lifeboat/migration/inventory"
)

// storeLook is what this command finds of a store in the agent's settings.
type storeLook struct {
	agent.Store
	absent []string // paths that do not exist
	files  []string // paths that are no directories
	err    error    // why one of its directories cannot be read
	bare   bool     // all of its directories are empty or absent
	closed error    // why the agent cannot use a directory that this command can
}

// lookAtStores looks into the stores' directories as this process sees them and, unless agentRoot is empty, as the agent sees them below
// agentRoot. It gives up on a disk that hangs after doctorPatience.
func lookAtStores(ctx context.Context, stores []agent.Store, agentRoot string) (all []storeLook) {
	ctx, cancel := context.WithTimeout(ctx, doctorPatience)
	defer cancel()
	var answers []<-chan [2]error
	for _, s := range stores {
		for _, path := range s.Paths {
			answers = append(answers, lookInTime(ctx, path, agentRoot))
		}
	}
	for _, s := range stores {
		l := storeLook{Store: s, bare: true}
		for _, path := range s.Paths {
			both := <-answers[0]
			answers = answers[1:]
			err := both[0]
			l.closed = cmp.Or(l.closed, both[1])
			switch {
			case errors.Is(err, fs.ErrNotExist):
				l.absent = append(l.absent, path)
			case errors.Is(err, io.EOF):
			case err != nil:
				if l.err, l.bare = err, false; errors.Is(err, unix.ENOTDIR) {
					l.files = append(l.files, path)
				}
			default:
				l.bare = false
			}
		}
		all = append(all, l)
	}
	return all
}

// lookInTime answers with the results of lookInto and closedTo, or with an error once ctx ends.
func lookInTime(ctx context.Context, path, agentRoot string) <-chan [2]error {
	found, answer := make(chan [2]error, 1), make(chan [2]error, 1)
	go func() { found <- [2]error{lookInto(path), closedTo(agentRoot, path)} }()
	go func() {
		select {
		case both := <-found:
			answer <- both
		case <-ctx.Done():
			answer <- [2]error{fmt.Errorf("%s: no answer in time", path)}
		}
	}()
	return answer
}

// lookInto returns io.EOF for an empty directory, nil for one with files. What the agent and mkfs make (dot files, lost+found) does not count.
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

// closedTo says why the agent cannot use a directory that this process can; root is the agent's root directory as seen from here. Units
// hide parts of the machine from their processes, or make them read-only (ProtectHome= and ProtectSystem= in systemd.exec(5)).
func closedTo(root, path string) error {
	if _, err := os.Stat(root + "/"); root == "" || err != nil {
		return nil // the agent has ended, or only the superuser may look
	}
	if _, err := os.Stat(path); err != nil {
		return nil
	}
	if _, err := os.Stat(root + path); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s is there, and hidden from the agent by its unit", path)
	}
	var there, here unix.Statfs_t
	if errors.Join(unix.Statfs(root+path, &there), unix.Statfs(path, &here)) == nil && there.Flags&unix.ST_RDONLY > here.Flags&unix.ST_RDONLY {
		return fmt.Errorf("%s can be written to, and not by the agent, by its unit", path)
	}
	return nil
}

// closedByUnit maps what the packages' unit closes to the agent to the line of a drop-in that opens it again.
var closedByUnit = map[string]string{
	"/home": "ProtectHome=no", "/root": "ProtectHome=no", "/run/user": "ProtectHome=no",
	"/usr": "ProtectSystem=no", "/boot": "ProtectSystem=no", "/etc": "ProtectSystem=no",
}

func closedRemarks(paths []string) (remarks []string) {
	for _, path := range paths {
		for dir, remedy := range closedByUnit {
			if path == dir || strings.HasPrefix(path, dir+"/") {
				remarks = append(remarks, fmt.Sprintf("%s: the agent's unit closes %s to it: systemctl edit lifeboat-agent, and under [Service] %s", path, dir, remedy))
			}
		}
	}
	return remarks
}

// storeRemarks returns remarks on what is odd about stores but no fault, such as a missing directory, whose disk may be mounted later.
// A path that is no directory is a fault: the agent does not start with it.
func storeRemarks(ctx context.Context, file string, stores []agent.Store) (remarks []string, fault error) {
	if len(stores) == 0 {
		remarks = append(remarks, "no stores: this node carries nothing")
	}
	for _, s := range stores {
		remarks = append(remarks, closedRemarks(s.Paths)...)
	}
	looks := lookAtStores(ctx, stores, "")
	for _, l := range looks {
		for _, path := range l.absent {
			remarks = append(remarks, fmt.Sprintf("store %s: %s is not there: the agent makes it; is its disk mounted?", l.Name, path))
		}
	}
	return remarks, config.Further(file, func(report config.Report) {
		for i, l := range looks {
			for _, path := range l.files {
				report(fmt.Sprintf("stores[%d].paths[%d]", i, slices.Index(l.Paths, path)), path, "is no directory", "name another")
			}
		}
	})
}

// fallbackRemarks remarks on a missing directory of the fallback, which the agent, unlike those of stores, does not make.
func fallbackRemarks(ctx context.Context, dir string) []string {
	if dir == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, doctorPatience)
	defer cancel()
	if err := (<-lookInTime(ctx, dir, ""))[0]; errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return []string{fmt.Sprintf("fallback: %s is no directory, and the agent makes none: is its share mounted?", dir)}
	}
	return nil
}

func (x *examination) diagnoseStores(add adder) {
	if x.carrier && len(x.stores) == 0 {
		add("stores", stateWarn, "list under stores what is to be carried, unless this node is there for others alone", "none: this node carries nothing of its own")
	}
	for _, l := range x.stores {
		check, where := "store "+l.Name, strings.Join(l.Paths, ", ")
		switch {
		case l.closed != nil:
			add(check, stateBad, "systemctl edit lifeboat-agent, and under [Service] ProtectHome=no or ReadWritePaths= as /usr/share/doc/lifeboat/docs/install.md has it; then restart the agent", "%v", l.closed)
		case len(l.absent) > 0:
			add(check, stateWarn, "mount its disk, then restart the agent; or is it misspelled?", "not there: %s", strings.Join(l.absent, ", "))
		case l.err != nil:
			add(check, stateUnknown, "", "%s", firstLine(l.err))
		case l.bare:
			add(check, stateWarn, "see that its disk is mounted, and that this is where the engine writes", "%s: nothing is there", where)
		case x.indexed() == l.Name:
			i := x.agent.GetIndex()
			add(check, stateOK, "", "%s: %s, %s, as of %s ago", where, show.Count(i.GetBlocks(), "block"), show.Size(i.GetBytes()), show.Age(i.GetAge()))
		default:
			add(check, stateOK, "", "%s", where)
		}
	}
}

// indexed returns the store that the agent's index is of: the only store of plain files. Empty: there are several, none, or no index.
func (x *examination) indexed() (name string) {
	if x.agent.GetIndex() == nil {
		return ""
	}
	for _, l := range x.stores {
		if l.Layout == inventory.LayoutFiles {
			if name != "" {
				return ""
			}
			name = l.Name
		}
	}
	return name
}
