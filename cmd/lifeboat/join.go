package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lifeboat/lifeboat/agent"
	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/cmd/lifeboat/show"
	"github.com/lifeboat/lifeboat/config"
	"github.com/lifeboat/lifeboat/durable"
	"github.com/lifeboat/lifeboat/enrol"
	"github.com/lifeboat/lifeboat/systemd"
)

// joinPatience is how long join tries to get its machine a certificate. A fault that lasts longer needs a person, who joins again.
const joinPatience = 2 * time.Minute

func joinCommand() *cobra.Command {
	j := joiner{}
	cmd := &cobra.Command{
		Use:   "join ADDRESS {TOKEN | -}",
		Short: "Make this machine a node of a fleet",
		Long: `Gets this machine a certificate from the coordinator at ADDRESS, writes ` + settingsOf("agent") + ` unless there is one, and starts
the agent where systemd runs it. The machine's key is made here and does not leave it; the token is told to the fleet that
made it and to nobody else. Joining again does no harm: it gets the same node a new certificate.

Whoever has an account on this machine can read TOKEN while this runs, as any argument: with - it is read from stdin.`,
		Example: `  lifeboat join 10.0.0.1 lifeboat1.0123456789ab.SECRET.PIN
  lifeboat join 10.0.0.1,10.0.0.2,10.0.0.3 lifeboat1.0123456789ab.SECRET.PIN --name host-a
  lifeboat join 10.0.0.1 - < token`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			j.coordinator, j.out, j.errs = args[0], cmd.OutOrStdout(), cmd.ErrOrStderr()
			said := args[1]
			if said == "-" {
				b, err := io.ReadAll(io.LimitReader(typed(cmd.Context(), cmd.InOrStdin()), 1<<10))
				if err != nil {
					return fmt.Errorf("read the token from stdin: %w", err)
				}
				said = string(b)
			}
			token, err := certs.ParseToken(said)
			if err != nil {
				return usagef("%w", err)
			}
			if err := named(certs.RoleNode, j.name); err != nil {
				return err
			}
			return j.run(cmd.Context(), token)
		},
	}
	f := cmd.Flags()
	f.StringVar(&j.name, "name", "", "the node's `NAME`; by default the host's")
	f.StringVar(&j.dir, "dir", "/etc/lifeboat", "`DIR` for agent.yaml")
	f.StringVar(&j.dataDir, "data-dir", agent.Default().DataDir, "`DIR` for what the agent keeps; the certificate goes to tls in it")
	f.BoolVar(&j.noStart, "no-start", false, "leave the agent as it is")
	return cmd
}

// named refuses a --name that is not valid for the role, before any file is made for it.
func named(role certs.Role, name string) error {
	if err := (certs.Name{Role: role, Name: name}).Check(); name != "" && err != nil {
		return usagef("--name %s: %w", name, err)
	}
	return nil
}

type joiner struct {
	coordinator, name, dir, dataDir string
	noStart                         bool
	out, errs                       io.Writer
}

func (j *joiner) run(ctx context.Context, token certs.Token) error {
	if err := absolute(&j.dir, &j.dataDir); err != nil {
		return err
	}
	if j.name == "" {
		j.name = agent.HostName()
	}
	if err := j.startAnew(ctx); err != nil {
		return err
	}
	if err := j.sameNode(); err != nil {
		return err
	}
	addresses := (&reach{coordinator: j.coordinator}).coordinatorAddrs()
	joining, cancel := context.WithTimeoutCause(ctx, joinPatience, fmt.Errorf("given up after %s: mend that, and join again", joinPatience))
	defer cancel()
	files := enrol.In(j.dataDir)
	said, until := map[string]bool{}, time.Now().Add(joinPatience)
	reply, err := enrol.Join(joining, enrol.Config{
		Coordinators: addresses, Name: j.name, Pin: token.Pin, Token: token.String(), Files: files,
		Trouble: func(err error) {
			if why := err.Error(); !said[why] {
				said[why] = true
				fmt.Fprintf(j.errs, "not yet, trying for %s more: %s\n", show.Span(time.Until(until)), show.Plain(why))
			}
		},
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(j.out, "this machine is %s (%s)\n", reply.Name, files.Cert)
	if len(reply.Coordinators) > 0 {
		addresses = reply.Coordinators
	}
	wrote, err := writeSettings(filepath.Join(j.dir, "agent.yaml"), fmt.Sprintf(agentSettings,
		`"`+strings.Join(addresses, `", "`)+`"`, config.Scalar(j.dataDir), config.Scalar(files.CA), config.Scalar(files.Cert), config.Scalar(files.Key)))
	if err != nil {
		return err
	}
	if wrote {
		fmt.Fprintf(j.out, "wrote %s: it has no stores yet, so this node takes blocks and has none of its own to move\n", filepath.Join(j.dir, "agent.yaml"))
	} else {
		fmt.Fprintf(j.out, "left %s as it was: see that it names %s and the coordinators %s\n", filepath.Join(j.dir, "agent.yaml"), files.Cert, strings.Join(addresses, ", "))
	}
	return j.start(ctx, "agent")
}

// startAnew drops the identity of another machine, if this machine's disk is a copy of that one's. It comes before sameNode, whose
// error says to let the named node leave: that node is another machine, which still serves.
func (j *joiner) startAnew(ctx context.Context) error {
	cfg, err := agent.Load(filepath.Join(j.dir, "agent.yaml"))
	if err != nil {
		cfg = agent.Default() // they only say which cloud to ask what machine this is; the agent reports the faults of the file
	}
	cfg.DataDir = j.dataDir
	copied, err := cfg.StartAnew(ctx, slog.New(slog.DiscardHandler))
	if err == nil && copied {
		fmt.Fprintf(j.out, "this machine's disk was copied from another machine: it is a node of its own now, and keeps but the blocks in %s\n", j.dataDir)
	}
	return err
}

// sameNode refuses to join a machine that is a node already under another name: its settings would name one node and its certificate
// the other, and the agent would not start again.
func (j *joiner) sameNode() error {
	file, cert := filepath.Join(j.dir, "agent.yaml"), enrol.In(j.dataDir).Cert
	// A file that cannot be read refuses nothing: join replaces a broken certificate, and the agent reports what is wrong with its settings.
	if n, err := certs.NameOf(cert); err == nil && n.Name != j.name {
		return fmt.Errorf("join: this machine is node %s already (%s), and cannot be %s as well: "+
			"--name %s gets that node a new certificate; to make it another node, let %s leave, stop the agent, run lifeboat generalize, remove node.name from %s if it is there, and join then",
			n.Name, cert, j.name, n.Name, n.Name, file)
	}
	if cfg, err := agent.Load(file); err == nil && cfg.Node.Name != "" && cfg.Node.Name != j.name {
		return fmt.Errorf("join: the settings of this machine call it %s (node.name in %s), so it cannot be %[3]s: remove that to join as %[3]s, or join with --name %[1]s",
			cfg.Node.Name, file, j.name)
	}
	return nil
}

func absolute(paths ...*string) (err error) {
	for _, p := range paths {
		if *p, err = filepath.Abs(*p); err != nil {
			return err
		}
	}
	return nil
}

// start has systemd enable and restart a daemon, if systemd runs this machine; else it prints the command that starts the daemon.
func (j *joiner) start(ctx context.Context, daemon string) error {
	unit := "lifeboat-" + daemon + ".service"
	if j.noStart || !systemd.Booted() {
		fmt.Fprintf(j.out, "start it: lifeboat %s --config %s\n", daemon, filepath.Join(j.dir, daemon+".yaml"))
		return nil
	}
	for _, verb := range []string{"enable", "restart"} { // not start: the daemon may run with older settings, or be failing
		if err := runs(exec.CommandContext(ctx, "systemctl", verb, unit)); err != nil {
			return err
		}
	}
	fmt.Fprintf(j.out, "%s runs, and starts with the host\n", unit)
	return nil
}

// agentSettings is the text of a new agent.yaml; its arguments are the coordinators, data_dir, and the files of the certificate. It does
// not set node.name, which the certificate has: every machine made from an image of this one would be called the same.
const agentSettings = `# Written by lifeboat join. What else there is: /usr/share/doc/lifeboat/examples/agent.yaml
coordinators: [%s]
data_dir: %s
tls: {ca: %s, cert: %s, key: %s}

# What is to be saved when this machine goes. Check an edit, then restart: lifeboat config check FILE
#stores:
#  - {name: cache, kind: cache,   layout: files, paths: [/mnt/d0/cache]}
#  - {name: spark, kind: shuffle, layout: spark, paths: [/mnt/d0/spark, /mnt/d1/spark]}
`

// writeSettings makes a file of settings, unless there is one. The file appears whole or not at all: a part of one would stay as it is when
// the verb is run again, and keep the daemon from starting. Every daemon may read it, whatever the umask: the coordinator is not root.
func writeSettings(path, text string) (wrote bool, err error) {
	if exists(path) {
		return false, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return false, err
	}
	if err := durable.WriteFile(path, []byte(text)); err != nil {
		return false, fmt.Errorf("write %s: %w", path, err)
	}
	return true, os.Chmod(path, 0o644)
}

// ownAddress returns the address by which others reach this machine: the source address of its default route, or else its only address.
func ownAddress() (string, error) {
	// Connecting a UDP socket sends nothing: the kernel only picks the route. Both addresses are reserved for documentation
	// (192.0.2.0/24: RFC 5737).
	for _, far := range []string{"192.0.2.1:9", "[2001:db8::1]:9"} {
		conn, err := net.Dial("udp", far)
		if err != nil {
			continue
		}
		host, _, err := net.SplitHostPort(conn.LocalAddr().String())
		conn.Close()
		if err == nil && !net.ParseIP(host).IsLoopback() {
			return host, nil
		}
	}
	all := addresses()
	if len(all) != 1 {
		return "", fmt.Errorf("this machine has %d addresses that others might reach, and no route says which (%s): give --advertise ADDRESS", len(all), strings.Join(all, ", "))
	}
	return all[0], nil
}

// addresses returns the global unicast addresses of this machine's interfaces, without loopback.
func addresses() (all []string) {
	wires, _ := net.Interfaces() // an error means no addresses, which the caller reports
	for _, w := range wires {
		if w.Flags&net.FlagLoopback != 0 {
			continue
		}
		on, _ := w.Addrs()
		for _, a := range on {
			if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() {
				all = append(all, n.IP.String())
			}
		}
	}
	return all
}
