package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/lifeboat/lifeboat/agent"
	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/cmd/lifeboat/show"
	"github.com/lifeboat/lifeboat/coordinator"
	"github.com/lifeboat/lifeboat/preemption"
	"github.com/lifeboat/lifeboat/sidecar"
	"github.com/lifeboat/lifeboat/systemd"
	"github.com/lifeboat/lifeboat/workloads"
)

const (
	defaultAgentConfig = "/etc/lifeboat/agent.yaml"
	// doctorPatience bounds each question: a healthy metadata service answers in a millisecond.
	doctorPatience = 3 * time.Second
)

func doctorCommand() *cobra.Command {
	var to reach
	var out show.Format
	var file string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say what keeps this machine from hearing of its end, or from leaving in time",
		Long: `Looks at this machine as a notice would find it: its cloud and the metadata service, the agent or sidecar and how well its
sources are informed, whether peers have room for what is here and the fallback would take the rest, whether the cap on a drain
lets that through in the time that the cloud gives, its disks, logind's patience, the order of the unit, the clock, the stores of the agent's file: are their directories there, and is anything in
them; and its workloads, or the actions of the sidecar's file: is each found, would it bear the signal that is to tell it, and
is the program there that is to be run. It changes nothing. Exit 1 when something is bad.

Without an agent's file it goes by the sidecar's beside it, or the coordinator's: a host that has but a coordinator carries nothing and
hears of nothing, and what counts there is that the coordinator runs, its certificate and the clock.`,
		Example: `  lifeboat doctor
  lifeboat doctor --config /etc/lifeboat/sidecar.yaml -o json`,
		Args: cobra.NoArgs,
	}
	to.socketFlags(cmd)
	out.Flag(cmd)
	cmd.Flags().StringVar(&file, "config", defaultAgentConfig, "the agent's or sidecar's `FILE`, for its socket, its cloud and whom it names; it need not be there")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		x := examine(cmd.Context(), &to, file, cmd.Flags().Changed("config"))
		if err := context.Cause(cmd.Context()); err != nil { // what it did not come to ask would be called bad
			return fmt.Errorf("doctor: %w", err)
		}
		findings := x.diagnose()
		if out == show.JSON {
			if err := show.WriteJSON(cmd.OutOrStdout(), findings); err != nil {
				return err
			}
		} else if err := printFindings(cmd.OutOrStdout(), findings); err != nil {
			return err
		}
		bad := 0
		for _, f := range findings {
			if f.State == stateBad {
				bad++
			}
		}
		if bad > 0 {
			return fmt.Errorf("doctor: %s bad", are(bad, "thing"))
		}
		return nil
	}
	return cmd
}

// examination is what was seen of a machine. Beside each part is the error if it could not be seen.
type examination struct {
	kind     string // the daemon whose file was read: agent, sidecar or coordinator
	file     string
	config   error  // why the file cannot be used; nil: it can, or it is not there
	unset    string // the file that every daemon of this kind reads by default, and that is not there
	settings preemption.Settings
	firmware string // the provider that the firmware names

	socket   string
	agent    *api.AgentStatus
	agentErr error
	awaits   string // the certificate file that a joining agent waits for; empty: it has one, or does not join

	provider    string // the cloud whose metadata service was asked; none: no cloud's
	instance    preemption.Instance
	instanceErr error
	took        time.Duration // until the answer
	skew        time.Duration // this host's clock, less the metadata service's
	skewErr     error

	container bool
	host      systemd.Host

	carrier bool // there is an agent's file, and stores, drain and told are from it
	stores  []storeLook
	drain   agent.Drain
	told    []doubtful

	ca, name             string    // the file of the CA, of which its key is asked for beside it; a coordinator's name
	certBegins, certEnds time.Time // a coordinator's; zero: config says why not
}

// doubtful is a workload of the agent's file, or an action of the sidecar's, and the doubts about it.
type doubtful struct {
	name, what string
	doubts     []workloads.Doubt
	err        error
}

// examine looks at the settings, the agent, the cloud and the host, once each.
func examine(ctx context.Context, to *reach, file string, given bool) *examination {
	x := &examination{kind: "agent", settings: preemption.DefaultSettings(), firmware: preemption.Detect("/"), container: inContainer()}
	if !given {
		file = ofThisHost(file)
	}
	x.file = file
	_, there := os.Stat(file)
	if there == nil {
		if kind, _ := kindOf(file); kind != "agent" {
			x.kind = kind
		}
	}
	var look func(context.Context)
	if look, to.otherwise, x.config = x.load(file); !given && errors.Is(there, fs.ErrNotExist) {
		x.config, x.unset = nil, file
	}
	x.socket = to.socketPath()
	x.agent, x.agentErr = askAgent(ctx, to)
	x.askCloud(ctx)
	asking, cancel := context.WithTimeout(ctx, doctorPatience)
	defer cancel()
	x.host = systemd.Facts(asking, "lifeboat-"+x.kind+".service")
	look(ctx)
	return x
}

// ofThisHost is the agent's file, or if it is not there the sidecar's or the coordinator's beside it.
func ofThisHost(file string) string {
	for _, kind := range []string{"agent", "sidecar", "coordinator"} {
		path := filepath.Join(filepath.Dir(file), kind+".yaml")
		if exists(path) {
			return path
		}
	}
	return file
}

// load reads the daemon's file. It returns a function that looks at the stores and workloads, or the actions, of the file, and the socket of
// the file.
func (x *examination) load(file string) (look func(context.Context), socket string, err error) {
	if x.kind == "sidecar" {
		cfg, err := sidecar.Load(file)
		if err != nil {
			return func(context.Context) {}, sidecar.Default().Listen.Socket, err
		}
		x.settings = cfg.Cloud
		return func(ctx context.Context) {
			ctx, cancel := context.WithTimeout(ctx, doctorPatience)
			defer cancel()
			all, err := cfg.Doubts(ctx)
			if err != nil {
				x.config = err
			}
			for _, d := range all {
				x.told = append(x.told, doubtful{name: "action " + d.Name, what: d.What, doubts: d.Doubts})
			}
		}, cfg.Listen.Socket, nil
	}
	if x.kind == "coordinator" {
		cfg, err := coordinator.Load(file)
		if err != nil {
			return func(context.Context) {}, "", err
		}
		x.ca, x.name = cfg.TLS.CA, cfg.Name
		if cfg.Issue.CAKey != "" {
			x.ca = filepath.Join(filepath.Dir(cfg.Issue.CAKey), "ca.pem")
		}
		x.settings.Provider = "none" // a coordinator listens to no cloud
		id, err := cfg.Identity()
		switch {
		case errors.Is(err, fs.ErrPermission):
			err = nil // a key that this user may not read says nothing about the certificate
		case err == nil && !cfg.TLS.DevInsecure:
			x.certBegins, x.certEnds = id.Leaf().NotBefore, id.Leaf().NotAfter
		}
		return func(context.Context) {}, "", err
	}
	cfg, err := agent.Load(file)
	if err != nil {
		return func(context.Context) {}, "", err
	}
	x.settings, x.carrier, x.drain, x.ca = cfg.Cloud, true, cfg.Drain, cfg.TLS.CA
	_, err = cfg.Identity()
	switch {
	case errors.Is(err, fs.ErrPermission):
		err = nil // as of a coordinator
	case cfg.Join != (agent.Join{}) && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, certs.ErrExpired)):
		x.awaits, err = cfg.TLS.Cert, nil
	}
	return func(ctx context.Context) {
		x.stores = lookAtStores(ctx, cfg.Stores, x.agentRoot())
		ctx, cancel := context.WithTimeout(ctx, doctorPatience)
		defer cancel()
		for _, s := range cfg.Workloads {
			x.told = append(x.told, doubtsOf(ctx, s))
		}
	}, cfg.Listen.Socket, err
}

// agentRoot is a path to the root directory as the agent's process sees it; empty: the agent does not run, or its process is not known.
func (x *examination) agentRoot() string {
	pid := x.host.Unit.MainPID
	if len(x.host.Locks) > 0 {
		pid = int(x.host.Locks[0].PID)
	}
	if pid == 0 {
		return ""
	}
	return fmt.Sprintf("/proc/%d/root", pid)
}

// doubtsOf looks for doubts about a workload, without telling it anything.
func doubtsOf(ctx context.Context, s workloads.Settings) doubtful {
	d := doubtful{name: "workload " + s.Name}
	w, err := s.Open(workloads.Systemd{}, "")
	if err != nil {
		d.err = err
		return d
	}
	d.what, d.doubts = w.String(), w.Doubts(ctx)
	return d
}

func askAgent(ctx context.Context, to *reach) (s *api.AgentStatus, err error) {
	err = ask(ctx, to.agent, "doctor", doctorPatience, func(ctx context.Context, agent api.LocalClient) (err error) {
		s, err = agent.GetStatus(ctx, &api.GetAgentStatusRequest{})
		return err
	})
	return s, err
}

func (x *examination) askCloud(ctx context.Context) {
	x.provider = x.settings.Resolve()
	cloud, err := x.settings.Open(slog.New(slog.DiscardHandler), nil, nil)
	if cloud == nil || err != nil {
		x.instanceErr = err
		return
	}
	asking, cancel := context.WithTimeout(ctx, doctorPatience)
	defer cancel()
	began := time.Now()
	x.instance, x.instanceErr = cloud.Instance(asking)
	x.took = time.Since(began)
	if x.instanceErr == nil {
		x.skew, x.skewErr = clockSkew(asking, x.settings.Address())
	}
}

// clockSkew compares this host's clock with the Date header of the metadata service's answer, whatever else the answer says.
func clockSkew(ctx context.Context, url string) (time.Duration, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	transport := &http.Transport{Proxy: nil, DisableKeepAlives: true}
	answer, err := transport.RoundTrip(request)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	date, err := http.ParseTime(answer.Header.Get("Date"))
	if err != nil {
		return 0, errors.New("the metadata service does not say what time it is")
	}
	return time.Since(date.Add(time.Second / 2)), nil // the header is in whole seconds: on average half a second more has passed
}

// inContainer reports whether this process runs in a container, which may be one network hop further from the metadata service.
func inContainer() bool {
	for _, mark := range []string{"/.dockerenv", "/run/.containerenv"} {
		if _, err := os.Stat(mark); err == nil {
			return true
		}
	}
	return false
}

func printFindings(w io.Writer, findings []finding) error {
	t := show.Table{Folded: true}
	t.Row("", "CHECK", "FOUND")
	for _, f := range findings {
		mark := map[string]string{stateOK: "ok", stateWarn: "look", stateBad: "BAD", stateUnknown: "?"}[f.State]
		t.Row(mark, f.Check, f.Found)
		if f.Remedy != "" {
			t.Row("", "", "-> "+f.Remedy)
		}
	}
	return t.Print(w)
}
