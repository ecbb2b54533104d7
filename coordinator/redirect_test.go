package coordinator

import "testing"

// The address of a coordinator's pages is where it listens, or that port at the host that the other coordinators know.
func TestPagesAddress(t *testing.T) {
	for _, s := range []struct{ listen, peer, want string }{
		{"0.0.0.0:7410", "10.0.0.1:7411", "10.0.0.1:7410"},
		{":7410", "10.0.0.1:7411", "10.0.0.1:7410"},
		{"[::]:7410", "[2001:db8::1]:7411", "[2001:db8::1]:7410"},
		{"0.0.0.0:7410", "c1.example:7411", "c1.example:7410"},
		{"10.1.0.1:7410", "10.0.0.1:7411", "10.1.0.1:7410"},
		{"c1.example:7410", "10.0.0.1:7411", "c1.example:7410"},
	} {
		cfg := Config{Name: "c1", Listen: Listen{HTTP: s.listen}, Peers: []Peer{{"c1", s.peer}}}
		if got := cfg.pages(); got != s.want {
			t.Errorf("pages at %s of the peer at %s: got %q, want %q", s.listen, s.peer, got, s.want)
		}
	}
}
