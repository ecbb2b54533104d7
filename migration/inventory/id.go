package inventory

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/lifeboat/lifeboat/config"
)

// BlockID names a block, or one member of a block, in the whole fleet: STORE/SCOPE/NAME. The scope is the application's
// id where the layout knows it, else the directory that stands for it, or "-" if there is none. The name is the file's
// path inside the scope.
type BlockID string

// MaxIDBytes is Linux's PATH_MAX: no file could have a longer name anyway.
const MaxIDBytes = 4096

// maxComponentBytes is NAME_MAX of every file system that the agent serves.
const maxComponentBytes = 255

// errBadID is wrapped by every error of ParseBlockID.
var errBadID = errors.New("not a block id")

// ParseBlockID checks an id that came from a person or from another machine. What it accepts names a file strictly
// below its store: no empty, "." or ".." component, no NUL or control character, valid UTF-8, nothing longer than a file
// system takes. Files are reached through os.Root besides; this check is for clear words, not for safety alone.
func ParseBlockID(s string) (BlockID, error) {
	bad := func(why string, args ...any) (BlockID, error) {
		return "", &badID{s, fmt.Sprintf(why, args...)}
	}
	if len(s) > MaxIDBytes {
		return bad("%d bytes long, at most %d", len(s), MaxIDBytes)
	}
	if !plainASCII(s) {
		if !utf8.ValidString(s) {
			return bad("not UTF-8")
		}
		for _, r := range s {
			if unicode.IsControl(r) {
				return bad("control character %U", r)
			}
		}
	}
	if strings.Count(s, "/") < 2 {
		return bad("want STORE/SCOPE/NAME")
	}
	for p := range strings.SplitSeq(s, "/") {
		switch {
		case p == "":
			return bad("empty component")
		case p == "." || p == "..":
			return bad("component %q", p)
		case len(p) > maxComponentBytes:
			return bad("a component of %d bytes, at most %d", len(p), maxComponentBytes)
		}
	}
	if store, _, _ := strings.Cut(s, "/"); !config.IsName(store) {
		return bad("store %q: want lower-case letters, digits, dots, dashes", store)
	}
	return BlockID(s), nil
}

// badID is what ParseBlockID says is wrong with an id.
type badID struct{ id, why string }

func (e *badID) Error() string {
	shown := e.id
	if len(shown) > 80 {
		shown = shown[:80] + "..."
	}
	return fmt.Sprintf("%q: %v: %s", shown, errBadID, e.why)
}

func (e *badID) Unwrap() error { return errBadID }

// nonID returns an id for accounts, for a file whose name makes no id: it has the name as Go quotes it.
func (s *Store) nonID(scope, name string) BlockID {
	quoted := strconv.QuoteToASCII(name)
	if len(quoted) > maxNonID {
		const gap = "..."
		end := maxNonID / 2
		quoted = quoted[:maxNonID-end-len(gap)] + gap + quoted[len(quoted)-end:]
	}
	return BlockID(s.Name + "/" + scope + "/" + quoted)
}

// maxNonID is far below what the coordinator takes, and longer than what people read.
const maxNonID = 1 << 10

// remedyFor says what to do about a file whose name makes no id, and why, short enough for a table.
func remedyFor(err error) string {
	why := err.Error()
	if bad, is := errors.AsType[*badID](err); is {
		why = bad.why
	}
	return "rename the file: " + why
}

// plainASCII reports whether s has only printable ASCII, as nearly every id has.
func plainASCII(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// Store, Scope and Name take a parsed id apart.
func (id BlockID) Store() string { s, _, _ := strings.Cut(string(id), "/"); return s }

// Scope is the second part of the id.
func (id BlockID) Scope() string {
	_, rest, _ := strings.Cut(string(id), "/")
	s, _, _ := strings.Cut(rest, "/")
	return s
}

// Name is the rest of the id: a slash-separated path inside the scope.
func (id BlockID) Name() string {
	_, rest, _ := strings.Cut(string(id), "/")
	_, name, _ := strings.Cut(rest, "/")
	return name
}

// Block returns the id of the block that id names, or that the file with that id belongs to: landed and lost blocks are
// on record by the block's id.
func (id BlockID) Block() BlockID {
	if m := MapOutputFile.FindStringSubmatch(id.Name()); m != nil {
		return id.Sibling(m[1])
	}
	return id
}

// OnRecord returns the ids under which a block may be on record that a reader asks for: the id itself, and if it is a
// file's the block's.
func (id BlockID) OnRecord() []BlockID {
	if block := id.Block(); block != id {
		return []BlockID{id, block}
	}
	return []BlockID{id}
}

// Sibling is the id of another name in the same scope.
func (id BlockID) Sibling(name string) BlockID {
	return BlockID(id.Store() + "/" + id.Scope() + "/" + name)
}

// App returns the app that a block belongs to; "": its id names none.
func (id BlockID) App() string {
	if scope := id.Scope(); scope != noScope {
		return scope
	}
	return ""
}

// MembersError answers a read of a block of several files as if it were one file.
type MembersError struct {
	Members []NamedMember `json:"members"`
}

// NamedMember is a file of a block.
type NamedMember struct {
	ID    string `json:"id"`
	Bytes int64  `json:"bytes"`
}

func (e *MembersError) Error() string { return fmt.Sprintf("a block of %d files", len(e.Members)) }

// Add adds a file.
func (e *MembersError) Add(id BlockID, bytes int64) {
	e.Members = append(e.Members, NamedMember{string(id), bytes})
}
