package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/client"
)

// coordinators are one or three real coordinator processes, with certificates of their own.
type coordinators struct {
	*lifeboat
	dir   string
	desk  *certs.Identity // the operator's certificate
	all   []*coordinator
	conns []func() error
}

// coordinator is one coordinator process.
type coordinator struct {
	name, grpc, http string
	*daemon          // nil: it does not run
	starts           int
}

// newCoordinators starts n coordinators. Each has these lines in its settings.
func newCoordinators(ctx context.Context, b bench, n int, settings string) (_ *coordinators, err error) {
	into, err := b.g.fresh()
	if err != nil {
		return nil, err
	}
	c := &coordinators{lifeboat: &lifeboat{binary: b.binary, pki: filepath.Join(into, "pki")}, dir: into}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close())
		}
	}()
	if err := c.issue(ctx); err != nil {
		return nil, err
	}
	if c.desk, err = certs.LoadDir(c.pki); err != nil {
		return nil, err
	}
	ports, err := freePorts(2 * n)
	if err != nil {
		return nil, err
	}
	var peers []string
	for i := range n {
		one := &coordinator{name: fmt.Sprintf("c%d", i+1), grpc: ports[2*i], http: ports[2*i+1]}
		if _, _, err := command(ctx, c.binary, "tls", "issue", "--dir", c.pki, "--coordinator", one.name); err != nil {
			return nil, err
		}
		c.all = append(c.all, one)
		peers = append(peers, fmt.Sprintf("{name: %s, address: %q}", one.name, one.grpc))
	}
	if n > 1 {
		settings += "peers: [" + strings.Join(peers, ", ") + "]\n"
	}
	f := &fleet{lifeboat: c.lifeboat, dir: into}
	for _, one := range c.all {
		conf := fmt.Sprintf("name: %s\nlisten: {grpc: %q, http: %q}\ndata_dir: %s\n%s%s", one.name, one.grpc, one.http, f.data(one.name), f.tls(one.name), settings)
		if err := f.settings(one.name, conf); err != nil {
			return nil, err
		}
		if err := c.start(ctx, one); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// start starts a coordinator, for the first time or again, and returns once it takes connections.
func (c *coordinators) start(ctx context.Context, one *coordinator) (err error) {
	one.starts++
	log := filepath.Join(c.dir, fmt.Sprintf("%s.%d.log", one.name, one.starts))
	if one.daemon, err = start(ctx, log, c.binary, "coordinator", "--config", filepath.Join(c.dir, one.name, "lifeboat.yaml")); err != nil {
		return err
	}
	return one.listens(ctx, one.grpc)
}

// kill ends the process without a chance to clean up, as a power cut would.
func (one *coordinator) kill() error {
	err := one.cmd.Process.Kill()
	<-one.ended
	return err
}

func (c *coordinators) addresses() (all []string) {
	for _, one := range c.all {
		all = append(all, one.grpc)
	}
	return all
}

// client is the TLS configuration of an operator.
func (c *coordinators) client(protos ...string) *tls.Config {
	return c.desk.Client(protos, certs.Name{Role: certs.RoleCoordinator})
}

// operator returns a client that finds the leader and asks it.
func (c *coordinators) operator() api.OperatorClient {
	conn := client.New(client.Config{Addresses: c.addresses(), Credentials: credentials.NewTLS(c.client("h2"))})
	c.conns = append(c.conns, conn.Close)
	return api.NewOperatorClient(conn)
}

// leader waits until there is a leader that all coordinators follow, and none of them is behind.
func (c *coordinators) leader(ctx context.Context, operator api.OperatorClient) (*coordinator, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		s, err := operator.GetStatus(ctx, &api.GetStatusRequest{OfLeader: true})
		if err == nil {
			if len(c.all) == 1 {
				return c.all[0], nil
			}
			leads, well := "", 0
			for _, m := range s.GetMembers() {
				if m.GetLeader() {
					leads = m.GetName()
				}
				if m.GetReached() && m.GetLag() == 0 {
					well++
				}
			}
			for _, one := range c.all {
				if one.name == leads && well == len(c.all) {
					return one, nil
				}
			}
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return nil, errors.Join(fmt.Errorf("wait for a leader that all follow: %w", err), c.all[0].trouble(errors.New("the first")))
		}
	}
}

// member is a connection with the certificate of that node: a node may speak only for itself.
func (c *coordinators) member(ctx context.Context, node string) (api.MembershipClient, error) {
	if _, _, err := command(ctx, c.binary, "tls", "issue", "--dir", c.pki, "--node", node); err != nil {
		return nil, err
	}
	at := func(end string) string { return filepath.Join(c.pki, node+end) }
	id, err := certs.Load(filepath.Join(c.pki, "ca.pem"), at(".pem"), at(".key"))
	if err != nil {
		return nil, err
	}
	conn := client.New(client.Config{
		Addresses:   c.addresses(),
		Credentials: credentials.NewTLS(id.Client([]string{"h2"}, certs.Name{Role: certs.RoleCoordinator})),
	})
	c.conns = append(c.conns, conn.Close)
	return api.NewMembershipClient(conn), nil
}

// direct is a new connection to the first coordinator, with small buffers: a thousand followers are in this
// process.
func (c *coordinators) direct() (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+c.all[0].grpc, grpc.WithTransportCredentials(credentials.NewTLS(c.client("h2"))), grpc.WithNoProxy(),
		grpc.WithReadBufferSize(4<<10), grpc.WithWriteBufferSize(4<<10))
}

// pages is an HTTP client with a connection of its own.
func (c *coordinators) pages() *http.Client {
	return &http.Client{Transport: &http.Transport{TLSClientConfig: c.client("http/1.1"), ReadBufferSize: 4 << 10, DisableKeepAlives: true}}
}

func (c *coordinators) close() error {
	var errs []error
	for _, hangUp := range c.conns {
		errs = append(errs, hangUp())
	}
	for _, one := range c.all {
		if one.daemon != nil {
			_, err := one.stop()
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
