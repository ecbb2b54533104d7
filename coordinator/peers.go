package coordinator

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/config"
)

// Peer is one coordinator of several: its name, as in its certificate, and the address at which agents, operators and the
// other coordinators reach it. All coordinators' files have the same list of all of them.
type Peer struct {
	Name    string `yaml:"name"`
	Address string `yaml:"address"`
}

const (
	// defaultElection is how long a leader may be silent before the others elect another one. Measured with three processes
	// on one machine, 200 ms gives 0.4 s from kill -9 to the next decision, and 0.55 s at worst. 100 ms is for machines where nothing
	// ever stalls that long, and 2 s for coordinators that are oceans apart.
	defaultElection = 200 * time.Millisecond
	minElection     = 100 * time.Millisecond
	maxElection     = 2 * time.Second

	// mostPeers coordinators survive three failures. More would only make each decision wait for more disks.
	mostPeers = 7
)

func (c *Config) checkPeers(report func(key string, value any, bound, remedy string)) {
	if len(c.Peers) == 0 {
		return
	}
	switch n := len(c.Peers); {
	case n%2 == 0:
		report("peers", n, fmt.Sprintf("must be an odd number: %d survive no more failures than %d, and more may fail", n, n-1), "name three or five coordinators")
	case n > mostPeers:
		report("peers", n, fmt.Sprintf("must be at most %d: every decision waits for more than half of them", mostPeers), "name three or five coordinators")
	}
	own := false
	for i, p := range c.Peers {
		key := "peers[" + strconv.Itoa(i) + "]."
		if err := (certs.Name{Role: certs.RoleCoordinator, Name: p.Name}).Check(); err != nil {
			report(key+"name", p.Name, err.Error(), "set it to the name in the certificate of that coordinator")
		}
		config.CheckDial(report, key+"address", p.Address)
		if c.TLS.DevInsecure && !config.Loopback(p.Address) {
			report(key+"address", p.Address, "must be a loopback address while tls.dev_insecure is true", "use 127.0.0.1, or certificates: lifeboat tls init")
		}
		for _, q := range c.Peers[:i] {
			if p.Name == q.Name {
				report(key+"name", p.Name, "must differ from the other peers'", "name each coordinator once")
			}
			if p.Address == q.Address {
				report(key+"address", p.Address, "must differ from the other peers'", "name each coordinator once")
			}
		}
		own = own || p.Name == c.Name
	}
	if !own {
		report("peers", strings.Join(namesOf(c.Peers), ", "), fmt.Sprintf("must name this coordinator, %s, too", c.Name), "give every coordinator the same list")
	}
}

func (c *Config) checkNode(report func(key string, value any, bound, remedy string)) {
	if c.Node == "" {
		return
	}
	if err := (certs.Name{Role: certs.RoleNode, Name: c.Node}).Check(); err != nil {
		report("node", c.Node, err.Error(), "set it to node.name of the agent on this coordinator's machine, or leave it out")
	}
}

func namesOf(peers []Peer) []string {
	names := make([]string, len(peers))
	for i, p := range peers {
		names[i] = p.Name
	}
	return names
}

// own is this coordinator's place in the list.
func (c *Config) own() (Peer, bool) {
	i := slices.IndexFunc(c.Peers, func(p Peer) bool { return p.Name == c.Name })
	if i < 0 {
		return Peer{}, false
	}
	return c.Peers[i], true
}
