package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kardianos/service"
	"github.com/spf13/cobra"

	"github.com/lifeboat/lifeboat/systemd"
	"github.com/lifeboat/lifeboat/systemd/units"
)

func serviceCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "service",
		Short: "Let the service manager of this host run a daemon, where no package does",
		Long: `Lets the service manager of this host run the agent (or, named, the coordinator or the sidecar) with this very program
and /etc/lifeboat/DAEMON.yaml. On systemd it is the unit of the packages, with its user and directories; other managers get
a script of the usual kind. Where a package is installed its own units do this: use systemctl.`,
		Example: `  lifeboat service install
  lifeboat service start
  lifeboat service status coordinator`,
		Args: cobra.ArbitraryArgs,
		RunE: needsVerb,
	}
	verb := func(name, short string, do func(io.Writer, service.Service, string) error) {
		cmd.AddCommand(&cobra.Command{
			Use:       name + " [" + strings.Join(units.Daemons(), "|") + "]",
			Short:     short,
			Example:   "  lifeboat service " + name + "\n  lifeboat service " + name + " coordinator",
			Args:      cobra.MaximumNArgs(1),
			ValidArgs: units.Daemons(),
			RunE: func(cmd *cobra.Command, args []string) error {
				daemon := "agent"
				if len(args) > 0 {
					daemon = args[0]
				}
				s, err := managed(daemon)
				if err != nil {
					return err
				}
				if err := do(cmd.OutOrStdout(), s, daemon); err != nil {
					return fmt.Errorf("service %s %s: %w", name, daemon, err)
				}
				return nil
			},
		})
	}
	verb("install", "Have a daemon started when the host boots; it is not started now", installService)
	verb("uninstall", "Stop a daemon and forget it; its settings and what it keeps stay", uninstallService)
	verb("start", "Start a daemon", startService)
	verb("stop", "Stop a daemon. An agent that stops decommissions nothing", stopService)
	verb("status", "Say whether a daemon runs: exit 0 if so, 1 if not, 3 if it is not installed", statusService)
	return cmd
}

// unmanaged is the daemon that the library wants for running it. Ours run by their verbs, so it does nothing.
type unmanaged struct{}

func (unmanaged) Start(service.Service) error { return nil }
func (unmanaged) Stop(service.Service) error  { return nil }

// managed returns a daemon as the host's service manager sees it.
func managed(daemon string) (service.Service, error) {
	if !slices.Contains(units.Daemons(), daemon) {
		return nil, usagef("service: there is no daemon %q: want %s", daemon, strings.Join(units.Daemons(), ", "))
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	unit, err := unitTemplate(daemon)
	if err != nil {
		return nil, err
	}
	return service.New(unmanaged{}, &service.Config{
		Name:        units.Name(daemon),
		DisplayName: units.Name(daemon),
		Description: "Lifeboat's " + daemon,
		Executable:  self,
		Arguments:   []string{daemon, "--config", settingsOf(daemon)},
		Option:      service.KeyValue{"SystemdScript": unit},
	})
}

// unitTemplate returns the packages' unit as a template of the library, with the path of this program in the place of the packages'.
func unitTemplate(daemon string) (string, error) {
	unit, err := units.Service(daemon)
	return strings.ReplaceAll(unit, "="+units.Binary+" ", "={{Path | cmdEscape}} "), err
}

func settingsOf(daemon string) string { return "/etc/lifeboat/" + daemon + ".yaml" }

const (
	packagedUnits = "/usr/lib/systemd/system"
	ownUnits      = "/etc/systemd/system"
)

func installService(w io.Writer, s service.Service, daemon string) error {
	if systemd.Booted() {
		name := units.Name(daemon) + ".service"
		if exists(filepath.Join(packagedUnits, name)) {
			return fmt.Errorf("a package has installed it: systemctl enable --now %s", name)
		}
		own := filepath.Join(ownUnits, name)
		if to, err := os.Readlink(own); err == nil && to == os.DevNull {
			return fmt.Errorf("its unit is masked, as a package that was removed leaves it: systemctl unmask %s", name)
		}
		if exists(own) {
			return fmt.Errorf("it is installed already (%s): lifeboat service uninstall %s first, to have this program and its unit in the place of that", own, daemon)
		}
		if err := surround(w); err != nil {
			return err
		}
	}
	if err := s.Install(); err != nil {
		return err
	}
	fmt.Fprintf(w, "%s is installed (%s) and starts with the host\n", units.Name(daemon), s.Platform())
	if !exists(settingsOf(daemon)) {
		fmt.Fprintf(w, "it has no settings yet: write %s, then: lifeboat service start %s\n", settingsOf(daemon), daemon)
	}
	return nil
}

// surround makes what the units rely on: their user, their directories, and a longer shutdown delay of logind.
func surround(w io.Writer) error {
	files, err := units.Surrounding()
	if err != nil {
		return err
	}
	for path, text := range files {
		path = filepath.Join("/etc", path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	if err := runs(exec.Command("systemd-sysusers", "lifeboat.conf")); err != nil {
		return err
	}
	if err := runs(exec.Command("systemd-tmpfiles", "--create", "lifeboat.conf")); err != nil {
		return err
	}
	// HUP has logind read its settings again. On a host without logind nothing delays a shutdown, but the daemon is of use there too.
	if err := runs(exec.Command("systemctl", "kill", "--signal=HUP", "systemd-logind.service")); err != nil {
		fmt.Fprintf(w, "logind was not told how long a shutdown may wait (%v): it learns it when it is started\n", err)
	}
	return nil
}

func runs(c *exec.Cmd) error {
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(c.Args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}

func uninstallService(w io.Writer, s service.Service, daemon string) error {
	if _, err := s.Status(); errors.Is(err, service.ErrNotInstalled) {
		return notFoundf("%s is not installed", units.Name(daemon))
	}
	if systemd.Booted() {
		if name := units.Name(daemon) + ".service"; !exists(filepath.Join(ownUnits, name)) {
			return fmt.Errorf("something else has installed it, such as a package: systemctl disable --now %s", name)
		}
	}
	if err := s.Stop(); err != nil {
		return err
	}
	if err := s.Uninstall(); err != nil {
		return err
	}
	if err := unlinkRunlevels("/etc", units.Name(daemon)); err != nil {
		return err
	}
	fmt.Fprintf(w, "%s is uninstalled\n", units.Name(daemon))
	if name := units.Name(daemon) + ".service"; systemd.Booted() && exists(filepath.Join(packagedUnits, name)) {
		fmt.Fprintf(w, "a package has one of its own: systemctl enable --now %s\n", name)
	}
	return unsurround()
}

// unlinkRunlevels removes the links to an init script from the runlevels' directories: the library makes them, and leaves them when it
// removes the script.
func unlinkRunlevels(etc, name string) error {
	links, err := filepath.Glob(filepath.Join(etc, "rc[0-6].d", "[SK][0-9][0-9]"+name))
	for _, link := range links {
		if to, _ := os.Readlink(link); to == filepath.Join("/etc/init.d", name) {
			err = errors.Join(err, os.Remove(link))
		}
	}
	return err
}

// unsurround removes the files that surround wrote once no daemon needs them. The user and its directories stay, since they own files.
func unsurround() error {
	left, err := filepath.Glob(filepath.Join(ownUnits, units.Name("*")+".service"))
	if err != nil || len(left) > 0 {
		return err
	}
	files, err := units.Surrounding()
	if err != nil {
		return err
	}
	for path := range files {
		if err := os.Remove(filepath.Join("/etc", path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func startService(w io.Writer, s service.Service, daemon string) error {
	if _, err := os.Stat(settingsOf(daemon)); err != nil { // systemd would skip the start and call that a success
		return fmt.Errorf("it has no settings: %w", err)
	}
	if err := s.Start(); err != nil {
		return err
	}
	return statusService(w, s, daemon)
}

func stopService(w io.Writer, s service.Service, daemon string) error {
	if err := s.Stop(); err != nil {
		return err
	}
	fmt.Fprintf(w, "%s is stopped\n", units.Name(daemon))
	return nil
}

func statusService(w io.Writer, s service.Service, daemon string) error {
	state, err := s.Status()
	switch {
	case stopped("/", s.Platform(), daemon, err):
		return errors.New("it does not run")
	case errors.Is(err, service.ErrNotInstalled), err != nil && !installed(daemon):
		return notFoundf("%s is not installed", units.Name(daemon))
	case err != nil:
		return fmt.Errorf("ask the service manager for %s: %w: is it systemd that runs this host?", units.Name(daemon), err)
	case state != service.StatusRunning:
		return errors.New("it does not run")
	}
	fmt.Fprintf(w, "%s runs\n", units.Name(daemon))
	return nil
}

// stopped reports whether an error says that a daemon does not run: where init scripts start daemons, the library's script prints that and
// exits with 1, and the library returns what it makes of a script that is not there as well.
func stopped(root, platform, daemon string, err error) bool {
	_, exited := errors.AsType[*exec.ExitError](err)
	return exited && platform == "unix-systemv" && exists(filepath.Join(root, "etc/init.d", units.Name(daemon)))
}

// installed reports whether there is a unit file. It is asked where no service manager answers, as in a container (systemd.unit(5), unit
// search path).
func installed(daemon string) bool {
	return slices.ContainsFunc([]string{"/etc", "/run", "/usr/local/lib", "/usr/lib", "/lib"}, func(dir string) bool {
		_, err := os.Stat(filepath.Join(dir, "systemd/system", units.Name(daemon)+".service"))
		return err == nil
	})
}
