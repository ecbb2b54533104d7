package e2e_test

import (
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/attest/attestfake"
	"github.com/lifeboat/lifeboat/preemption/ec2fake"
)

// cloud is a pretend EC2 region, and a fleet that admits instances by the region's signed documents.
type cloud struct {
	*fleet
	aws *attestfake.EC2
	pin string
}

func newCloud(t *testing.T) *cloud {
	t.Helper()
	c := &cloud{aws: attestfake.NewEC2()}
	c.fleet = newFleet(t, "issue: {ca_key: tls/ca.key}", `join: {ec2: {accounts: ["123456789012"], regions: [eu-west-1], certificates: [aws.pem]}}`)
	c.write("aws.pem", string(c.aws.Certificate()))
	c.pin = strings.TrimSpace(run(t, nil, nil, binary, "tls", "pin", filepath.Join(c.tls, "ca.pem")).exits(0).stdout)
	return c
}

// launch adds an instance that knows the fleet's address and its pin, and nothing else.
func (c *cloud) launch(account, id string) *node {
	c.t.Helper()
	service := ec2fake.New(ec2fake.Instance{ID: id, Type: "r5.4xlarge", Zone: "eu-west-1a", LifeCycle: "spot"})
	text := attestfake.Instance{Account: account, Region: "eu-west-1", ID: id, PrivateIP: "127.0.0.1", Pending: time.Now()}.Text()
	service.Attest(func() string { return c.aws.Sign(text) })
	metadata := httptest.NewServer(service)
	c.t.Cleanup(metadata.Close)
	return c.agent(id, "tls: {}", listensTo("ec2", metadata), fmt.Sprintf("join: {cloud: true, pin: %q}", c.pin))
}

// identity returns what tells a node from others: its certificate and its incarnation.
func (n *node) identity() (certificate, incarnation string) {
	n.f.t.Helper()
	pem, err := os.ReadFile(filepath.Join(n.data(), "tls/node.pem"))
	if err != nil {
		n.f.t.Fatal(err)
	}
	return string(pem), n.seen().Incarnation
}

// An instance with no secret in its image joins by its cloud's signed document, registers, and has the same identity after a
// restart. A copy of its disk in another instance becomes another node. An instance of another account is refused, and its
// log says why.
func TestInstancesJoinByThemselves(t *testing.T) {
	c := newCloud(t)
	one := c.launch("123456789012", "i-00000000000000001")
	c.start()
	certificate, incarnation := one.identity()
	one.stop()
	one.start()
	c.until(one.is("ACTIVE"))
	if again, same := one.identity(); again != certificate || same != incarnation {
		t.Error("after a restart it has another certificate or incarnation")
	}
	one.verb("status").exits(0)
	one.stop()

	two := c.launch("123456789012", "i-00000000000000002")
	if err := os.CopyFS(two.data(), os.DirFS(one.data())); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(two.data(), "tls/node.key"), 0o600); err != nil {
		t.Fatal(err)
	}
	one.start()
	two.start()
	c.until(one.is("ACTIVE"))
	c.until(two.is("ACTIVE"))
	if other, life := two.identity(); other == certificate || life == incarnation {
		t.Error("the copy has the certificate or the incarnation of the machine that it was copied from")
	}
	if !strings.Contains(two.logged(), "comes from another machine") {
		t.Error("the copy does not say that it was one")
	}
	if again, _ := one.identity(); again != certificate {
		t.Error("the first has another certificate since it was copied")
	}

	stranger := c.launch("210987654321", "i-00000000000000003")
	stranger.start()
	c.until(func() error {
		if !strings.Contains(stranger.logged(), "may not join") {
			return fmt.Errorf("the stranger does not say why it waits")
		}
		return nil
	})
	c.verb("node", "i-00000000000000003").exits(3)
	stranger.stop()
}

// An agent whose token file comes late waits for it. generalize removes the identity from a machine that becomes an image,
// and refuses to while the agent runs.
func TestTokenFileAndImage(t *testing.T) {
	c := newCloud(t)
	n := c.agent("host-a", "tls: {}", "join: {token_file: token}")
	c.coordinator.start()
	n.start()
	c.until(func() error {
		if !strings.Contains(n.logged(), "join.token_file") {
			return fmt.Errorf("it does not say that it waits for its token")
		}
		return nil
	})
	c.write("token", strings.TrimSpace(c.verb("token", "create", "--uses", "1").exits(0).stdout))
	c.until(n.is("ACTIVE"))

	config := "--config=" + filepath.Join(c.dir, "host-a.yaml")
	c.verb("generalize", config).exits(1).tells("stop it first")
	n.stop()
	c.write("sidecar.yaml", "data_dir: "+filepath.Join(c.dir, "sidecar"), "listen: {socket: "+filepath.Join(c.dir, "sidecar.sock")+"}", "actions: [{name: engine, hook: {command: [/bin/true]}}]")
	if err := os.Mkdir(filepath.Join(c.dir, "sidecar"), 0o755); err != nil {
		t.Fatal(err)
	}
	c.write("sidecar/incident.json", "{}") // a copy that has it tells nobody of a notice of its own
	c.verb("generalize", config, "--dry-run").exits(0).tells("would remove", "tls", "sidecar/incident.json")
	c.verb("generalize", config).exits(0).tells("incarnation", "token", "sidecar/incident.json")
	for _, name := range []string{"tls", "incarnation", "machine", "vault"} {
		if _, err := os.Stat(filepath.Join(n.data(), name)); !os.IsNotExist(err) {
			t.Errorf("%s is still in the image (%v)", name, err)
		}
	}
}
