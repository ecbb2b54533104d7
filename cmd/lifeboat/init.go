package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/await"
	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/cmd/lifeboat/show"
	"github.com/lifeboat/lifeboat/config"
	"github.com/lifeboat/lifeboat/coordinator"
)

// initPatience is how long a new coordinator may take to answer: it makes its log and elects itself in a second.
const initPatience = 30 * time.Second

func initCommand() *cobra.Command {
	i := initialiser{}
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Make this machine the coordinator of a new fleet, and print how others join",
		Long: `Makes a certificate authority and an operator's certificate in DIR/tls, and the coordinator's own in tls of the data directory, where it
renews it; writes DIR/coordinator.yaml, starts the coordinator where systemd runs it, and prints the one command that makes any other machine a node: it is good for
an hour, and lifeboat token create prints the next. What is there already stays as it is: running it again prints another
command. Keep a copy of DIR/tls elsewhere: every certificate of the fleet hangs on it.`,
		Example: `  lifeboat init
  lifeboat init --advertise 10.0.0.1 --agent      # this machine is to be emptied and filled as well`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			i.out, i.errs = cmd.OutOrStdout(), cmd.ErrOrStderr()
			if err := named(certs.RoleCoordinator, i.name); err != nil {
				return err
			}
			return i.run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.StringVar(&i.advertise, "advertise", "", "the `ADDRESS` of this machine that others reach; by default that of its default route")
	f.StringVar(&i.name, "name", "", "the coordinator's `NAME`; by default the host's")
	f.StringVar(&i.dir, "dir", "/etc/lifeboat", "`DIR` for coordinator.yaml and for tls")
	f.StringVar(&i.dataDir, "data-dir", coordinator.Default().DataDir, "`DIR` for what the coordinator keeps")
	f.BoolVar(&i.agent, "agent", false, "let this machine join, too")
	f.BoolVar(&i.noStart, "no-start", false, "only write the files")
	f.DurationVar(&i.life, "life", time.Hour, "for how long the command is good that is printed")
	return cmd
}

type initialiser struct {
	advertise, name, dir, dataDir string
	cert                          string // the certificate file of settings that were there already; empty: there were none
	port                          string // of listen.grpc in them; empty: the usual one
	agent, noStart                bool
	life                          time.Duration
	out, errs                     io.Writer
}

func (i *initialiser) tls(name string) string { return filepath.Join(i.dir, "tls", name) }

func (i *initialiser) run(ctx context.Context) (err error) {
	if err := absolute(&i.dir, &i.dataDir); err != nil { // they go into the settings, and must mean the same from any directory
		return err
	}
	if i.name == "" {
		i.name = coordinator.Default().Name
	}
	if i.advertise == "" {
		if i.advertise, err = ownAddress(); err != nil {
			return err
		}
	}
	file := filepath.Join(i.dir, "coordinator.yaml")
	if err := i.goBy(file); err != nil {
		return err
	}
	if err := i.certificates(); err != nil {
		return err
	}
	wrote, err := writeSettings(file, fmt.Sprintf(coordinatorSettings, config.Scalar(i.name), config.Scalar(i.own("ca.pem")),
		config.Scalar(i.own(i.name+".pem")), config.Scalar(i.own(i.name+".key")), config.Scalar(i.dataDir), config.Scalar(i.tls("ca.key"))))
	if err != nil {
		return err
	}
	if wrote {
		fmt.Fprintf(i.out, "wrote %s\n", file)
	} else {
		fmt.Fprintf(i.out, "left %s as it was\n", file)
	}
	j := &joiner{dir: i.dir, noStart: i.noStart, out: i.out}
	if err := j.start(ctx, "coordinator"); err != nil || i.noStart {
		return err
	}
	token, err := i.token(ctx)
	if err != nil {
		return err
	}
	if i.agent {
		here := &joiner{coordinator: i.address(), dir: i.dir, dataDir: filepath.Dir(i.dataDir), out: i.out, errs: i.errs}
		parsed, err := certs.ParseToken(token)
		if err != nil {
			return err
		}
		if err := here.run(ctx, parsed); err != nil {
			return err
		}
	}
	fmt.Fprintf(i.out, "\nOn each other machine, within %s:\n\n  lifeboat join %s %s\n\nHere: export LIFEBOAT_COORDINATOR=%s LIFEBOAT_TLS_DIR=%s; lifeboat nodes\n",
		show.Span(i.life), i.address(), token, i.address(), i.tls(""))
	return nil
}

// address is where others reach the coordinator, as join and --coordinator take it.
func (i *initialiser) address() string {
	if _, _, err := net.SplitHostPort(i.advertise); err == nil || i.port == "" {
		return i.advertise
	}
	return net.JoinHostPort(strings.Trim(i.advertise, "[]"), i.port)
}

// goBy takes name, data directory, port and certificate file from settings that are there already, which stay as they are. If the certificate is not
// where they say, and would not be made there, it fails: the coordinator would not start, and a certificate elsewhere would help nobody. If
// there are no settings, the name must be one that a coordinator can have.
func (i *initialiser) goBy(file string) error {
	if !exists(file) {
		return i.nameable()
	}
	c, err := coordinator.Load(file)
	if err != nil {
		return err
	}
	i.name, i.dataDir, i.cert = c.Name, c.DataDir, c.TLS.Cert
	if _, port, err := net.SplitHostPort(c.Listen.GRPC); err == nil && port != coordinatorPort {
		i.port = port
	}
	if own := i.own(i.name + ".pem"); i.cert != "" && i.cert != own && !exists(i.cert) {
		return fmt.Errorf("%s names %s as tls.cert, which is not there: put it there, or have tls name the files that init makes: {ca: %s, cert: %s, key: %s}",
			file, i.cert, i.own("ca.pem"), own, i.own(i.name+".key"))
	}
	return nil
}

// nameable refuses a name, which may be the host's, that no coordinator can have: nothing is made for it.
func (i *initialiser) nameable() error {
	if err := (certs.Name{Role: certs.RoleCoordinator, Name: i.name}).Check(); err != nil {
		return usagef("init: a coordinator cannot be %q: %w: say another with --name", i.name, err)
	}
	if i.name == "ca" || i.name == "operator" { // its certificate would be looked for where theirs are
		return usagef("init: the name %q belongs to files of the CA: say another with --name", i.name)
	}
	return nil
}

// own is the path of a file of the coordinator's certificate: in its data directory, the only place where it can renew it, because it is
// not root and its unit lets it write nowhere else. A certificate that is already beside the CA stays there.
func (i *initialiser) own(name string) string {
	if old := i.tls(i.name + ".pem"); exists(old) {
		return i.tls(name)
	}
	return filepath.Join(i.dataDir, "tls", name)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// certificates makes the CA and the coordinator's certificate if they are not there yet.
func (i *initialiser) certificates() error {
	if !exists(i.tls("ca.pem")) {
		if err := certs.InitCA(i.tls("")); err != nil {
			return err
		}
		fmt.Fprintf(i.out, "made a certificate authority: keep a copy of %s elsewhere\n", i.tls(""))
	} else if !exists(i.tls("operator.pem")) { // an init was cut short, or it was taken away; and this one asks the coordinator with it
		if _, _, err := certs.Issue(i.tls(""), certs.Name{Role: certs.RoleOperator, Name: "operator"}, nil, nil); err != nil {
			return err
		}
	}
	made := !exists(cmp.Or(i.cert, i.own(i.name+".pem")))
	if made {
		if err := i.certify(); err != nil {
			return fmt.Errorf("make a certificate for coordinator %s: %w", i.name, err)
		}
	}
	return i.letRead(made)
}

// firstLife is the life of the first certificate, the same as with lifeboat tls issue. Renewed ones have issue.life.
const firstLife = 365 * 24 * time.Hour

func (i *initialiser) certify() error {
	authority, err := certs.LoadAuthority(i.tls("ca.pem"), i.tls("ca.key"))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(i.dataDir), 0o755); err != nil { // data_dir itself is made for the coordinator alone
		return err
	}
	key, err := certs.NewKey(i.own(i.name + ".key"))
	if err != nil {
		return err
	}
	request, err := certs.Request(key)
	if err != nil {
		return err
	}
	var ips []net.IP
	if ip := net.ParseIP(i.advertise); ip != nil {
		ips = append(ips, ip)
	}
	cert, err := authority.Sign(request, certs.Name{Role: certs.RoleCoordinator, Name: i.name}, firstLife, ips, []string{i.name})
	if err != nil {
		return err
	}
	return certs.Write(i.own("ca.pem"), i.own(i.name+".pem"), authority.PEM(), cert)
}

// letRead lets the coordinator, which is not root, read the CA and its key, and makes it the owner of its certificate if that was made now.
func (i *initialiser) letRead(made bool) error {
	daemon, err := user.Lookup("lifeboat")
	if err != nil || os.Geteuid() != 0 {
		return nil // there is no user lifeboat: the user who runs this also runs the coordinator
	}
	uid, err1 := strconv.Atoi(daemon.Uid)
	gid, err2 := strconv.Atoi(daemon.Gid)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	for name, mode := range map[string]os.FileMode{"": 0o750, "ca.pem": 0o644, "ca.key": 0o640} {
		if err := errors.Join(os.Chown(i.tls(name), 0, gid), os.Chmod(i.tls(name), mode)); err != nil {
			return fmt.Errorf("let the coordinator read its CA: %w", err)
		}
	}
	if !made {
		return nil
	}
	for _, path := range []string{i.dataDir, i.own(""), i.own("ca.pem"), i.own(i.name + ".pem"), i.own(i.name + ".key")} {
		if err := os.Lchown(path, uid, gid); err != nil {
			return fmt.Errorf("give the coordinator its certificate: %w", err)
		}
	}
	return nil
}

// token gets a join token from the coordinator that was just started. It tries for initPatience until one answers, yes or no.
func (i *initialiser) token(ctx context.Context) (string, error) {
	operator, l, err := (&reach{cmd: &cobra.Command{Use: "init"}, coordinator: i.address(), tlsDir: i.tls("")}).operator()
	if err != nil {
		return "", err
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(ctx, initPatience)
	defer cancel()
	for {
		reply, err := operator.CreateToken(ctx, &api.CreateTokenRequest{Life: durationpb.New(i.life), Reason: "lifeboat init"})
		if err == nil {
			return reply.GetToken(), nil
		}
		err = l.away("make a join token", err)
		if _, away := errors.AsType[errAway](err); !away {
			return "", err
		}
		if !await.Sleep(ctx, 200*time.Millisecond) {
			return "", fmt.Errorf("once the coordinator runs, lifeboat init prints how machines join: %w", err)
		}
	}
}

// coordinatorSettings is a format of: name, CA file, certificate file, key file, data_dir, and the file of the CA's key.
const coordinatorSettings = `# Written by lifeboat init. What else there is: /usr/share/doc/lifeboat/examples/coordinator.yaml
name: %s
tls: {ca: %s, cert: %s, key: %s}
data_dir: %s

# It makes certificates for machines that join, and renews them.
issue: {ca_key: %s}
`
