package registry

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/lifeboat/lifeboat/certs"
)

// Door is what the registry knows of join tokens, of the certificates that machines got when they joined, and of revoked certificates.
// Its maps are replaced, never changed.
type Door struct {
	Tokens map[string]JoinToken `json:"tokens,omitempty"` // by id
	Given  map[string]given     `json:"given,omitempty"`  // certificates of machines that joined, by role and name

	Revoked   map[string]time.Time `json:"revoked,omitempty"`   // when, by role and name: certificates made before then are refused
	RevokedAt time.Time            `json:"revoked_at,omitzero"` // when Revoked last changed
}

// JoinToken lets a machine that knows its secret join.
type JoinToken struct {
	ID      string     `json:"id"`
	Sum     string     `json:"sum"` // of the secret
	Role    certs.Role `json:"role"`
	Name    string     `json:"name,omitempty"` // the only name it is good for; empty: any
	Uses    int64      `json:"uses"`           // that are left; negative: any number
	Joined  int64      `json:"joined,omitempty"`
	Expires time.Time  `json:"expires"`
	By      string     `json:"by"`
}

// given is the key that a name was given to.
type given struct {
	Key string    `json:"key"` // SHA-256 of the public key
	By  string    `json:"by"`  // the token, or the machine as its cloud names it
	At  time.Time `json:"at"`
}

// Pass is one command about the door: one of Token, Revoke, Join and Certs is set.
type Pass struct {
	Token  *JoinToken    `json:"token,omitempty"` // a new one, good for Life
	Life   time.Duration `json:"life,omitempty"`
	Revoke string        `json:"revoke,omitempty"` // the id of a token
	Join   *Joining      `json:"join,omitempty"`
	Certs  *certs.Name   `json:"certs,omitempty"` // the name whose certificates are revoked
	Undo   bool          `json:"undo,omitempty"`  // with Certs: they are good again
}

// Joining is a machine that has shown why it may join.
type Joining struct {
	Token string     `json:"token,omitempty"` // its id
	As    string     `json:"as,omitempty"`    // without a token: the machine, as its cloud vouches for it
	Name  certs.Name `json:"name"`
	Key   string     `json:"key"`
}

// keptTokens bounds the tokens that have not expired. A token that is used up stays until it expires: a machine whose answer got lost
// asks again with it.
const keptTokens = 1000

const DoPass Verb = "pass"

const EventJoined = "NodeJoined" // a machine was given a certificate

// Reasons why a machine may not join.
var (
	ErrNoToken    = errors.New("the join token is not known here: it was used up, revoked, or has expired")
	errOtherName  = errors.New("the join token is good for another name")
	errNameTaken  = errors.New("another machine has this name and lives")
	errOtherKey   = errors.New("this machine has joined with another key: if it was made anew, let it join with a token")
	errTwoNames   = errors.New("this machine has joined under another name")
	errManyTokens = fmt.Errorf("there are %d tokens: revoke some", keptTokens)
)

// tryPass works out the door after c. It leaves t as it is if c only repeats what is so already.
func (m *Registry) tryPass(c Command, t *trial) error {
	after := m.Door
	after.Tokens, after.Given, after.Revoked = maps.Clone(m.Door.Tokens), maps.Clone(m.Door.Given), maps.Clone(m.Door.Revoked)
	if after.Tokens == nil {
		after.Tokens, after.Given = map[string]JoinToken{}, map[string]given{}
	}
	maps.DeleteFunc(after.Tokens, func(_ string, t JoinToken) bool { return !c.At.Before(t.Expires) })
	maps.DeleteFunc(after.Given, func(name string, g given) bool { return m.forgotten(name, g, c.At) })
	switch p := c.Pass; {
	case p.Token != nil:
		if len(after.Tokens) >= keptTokens {
			return errManyTokens
		}
		token := *p.Token
		token.Expires = c.At.Add(p.Life)
		after.Tokens[token.ID] = token
	case p.Revoke != "":
		if _, ok := after.Tokens[p.Revoke]; !ok {
			return ErrNoToken
		}
		delete(after.Tokens, p.Revoke)
	case p.Certs != nil:
		if err := after.revoke(*p.Certs, p.Undo, c.At); err != nil {
			return err
		}
	case p.Join != nil:
		s := step{cmd: c, name: p.Join.Name.Name, last: m.LastEvent}
		if joined, err := m.join(&after, &s); err != nil || !joined {
			return err
		}
		t.events = s.events
	}
	t.door, t.changed = after, true
	return nil
}

// forgotten reports whether the record of a name's key can go: it is a node's, the node is not known (any more), and the key was given
// longer than ForgetAfter ago.
func (m *Registry) forgotten(name string, g given, at time.Time) bool {
	role, node, _ := strings.Cut(name, " ")
	_, known := m.Nodes[node]
	return role == string(certs.RoleNode) && !known && at.Sub(g.At) > ForgetAfter
}

// join lets one machine in. A machine that asks again with the key that has the name did not get its answer: it is in already, and
// uses up nothing.
func (m *Registry) join(d *Door, s *step) (changed bool, err error) {
	j := s.cmd.Pass.Join
	was, has := d.Given[j.Name.String()]
	if has && was.Key == j.Key {
		if at := d.Revoked[j.Name.String()]; was.At.Before(at) {
			return false, fmt.Errorf("%w at %s, and this key is the one that it was for: make the machine anew, with a key of its own", certs.ErrRevoked, Stamp(at))
		}
		return false, nil
	}
	by := j.As
	if j.Token != "" {
		t, ok := d.Tokens[j.Token]
		switch {
		case !ok || t.Uses == 0 || t.Role != j.Name.Role:
			return false, ErrNoToken
		case t.Name != "" && t.Name != j.Name.Name:
			return false, fmt.Errorf("%w: %s", errOtherName, t.Name)
		}
		if t.Joined++; t.Uses > 0 {
			t.Uses--
		}
		d.Tokens[t.ID], by = t, "token "+t.ID
	} else if err := m.vouched(d, j, s.cmd.At); err != nil {
		return false, err
	}
	if n, known := m.Nodes[j.Name.Name]; j.Name.Role == certs.RoleNode && known && n.State != Lost && n.State != Decommissioned {
		return false, fmt.Errorf("%w: %s is %s: give the machine another name, or wait until the other one is gone", errNameTaken, n.Name, n.State)
	}
	d.Given[j.Name.String()] = given{Key: j.Key, By: by, At: s.cmd.At}
	s.tell(EventJoined, "role", string(j.Name.Role), "by", by, "key", j.Key[:min(len(j.Key), 16)])
	return true, nil
}

// ComesWithin is how long a machine that was given a name may take to register. After that another machine may have the name. Agents
// register within seconds.
const ComesWithin = 10 * time.Minute

// vouched says why a machine that its cloud vouches for may not have the name that it asks for; nil: it may. The machine keeps its first
// key and name: otherwise any program on it that gets hold of the cloud's document could join as a second node.
func (m *Registry) vouched(d *Door, j *Joining, at time.Time) error {
	for name, g := range d.Given {
		switch {
		case g.By != j.As:
		case g.Key != j.Key:
			return errOtherKey
		case name != j.Name.String():
			return fmt.Errorf("%w, %s: it keeps that", errTwoNames, name)
		}
	}
	was, has := d.Given[j.Name.String()]
	if _, known := m.Nodes[j.Name.Name]; has && !known && at.Sub(was.At) < ComesWithin {
		return fmt.Errorf("%w: %s was given to %s a moment ago", errNameTaken, j.Name.Name, was.By)
	}
	return nil
}

// mostRevoked bounds the list, which is sent to every agent.
const mostRevoked = 1000

var (
	ErrNotRevoked  = errors.New("no certificate of that name was revoked: lifeboat revoke lists those that were")
	ErrManyRevoked = fmt.Errorf("the certificates of %d names are revoked: bring a new CA, or take back those of which all have ended", mostRevoked)
)

// revoke makes the certificates of a name that were made until now invalid, or with undo valid again.
func (d *Door) revoke(of certs.Name, undo bool, at time.Time) error {
	was, known := d.Revoked[of.String()]
	switch {
	case undo && !known:
		return ErrNotRevoked
	case undo:
		delete(d.Revoked, of.String())
	case !known && len(d.Revoked) >= mostRevoked:
		return ErrManyRevoked
	default:
		if d.Revoked == nil {
			d.Revoked = map[string]time.Time{}
		}
		d.Revoked[of.String()] = at
		if was.After(at) { // by the clock of an earlier leader, or before this one's was set back: what is refused stays so
			d.Revoked[of.String()] = was
		}
	}
	if !at.After(d.RevokedAt) { // a leader's clock may be behind that of the one before
		at = d.RevokedAt.Add(1)
	}
	d.RevokedAt = at
	return nil
}
