package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lifeboat/lifeboat/agent"
	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/cmd/lifeboat/show"
	"github.com/lifeboat/lifeboat/config"
	"github.com/lifeboat/lifeboat/coordinator"
	"github.com/lifeboat/lifeboat/coordinator/hosts"
	"github.com/lifeboat/lifeboat/sidecar"
)

func configCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "config",
		Short:   "Check the settings of an agent, a coordinator or a sidecar",
		Example: `  lifeboat config check /etc/lifeboat/agent.yaml`,
		Args:    cobra.ArbitraryArgs,
		RunE:    needsVerb,
	}
	cmd.AddCommand(configCheckCommand())
	return cmd
}

func configCheckCommand() *cobra.Command {
	said := map[string]*bool{}
	var out show.Format
	cmd := &cobra.Command{
		Use:   "check FILE",
		Short: "Say all that is wrong with a file of settings, each fault with its line and remedy",
		Long: `Says all that is wrong with a file of settings and with conf.d and NAME.d beside it, and exits 2 if anything is. Whose file it is, an
agent's, a coordinator's or a sidecar's, is said by a flag; without one it shows in keys that not all of them have, else in the
file's name (coordinator*.yaml, sidecar*.yaml), else it is an agent's, and which it was taken for is printed. Certificates are
checked, too: they must be there, unless it is an agent's file with join in it. So are a coordinator's host files. What is odd and
no fault is remarked on: a file without stores, directories of stores and of the fallback that are not there, a file in conf.d that
is not read for its name.`,
		Example: `  lifeboat config check /etc/lifeboat/agent.yaml
  lifeboat config check --coordinator /etc/lifeboat/main.yaml
  lifeboat config check -o json agent.yaml | jq -r '.faults[] | "\(.file):\(.line) \(.key)"'`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			kind := ""
			for _, k := range daemonKinds {
				if *said[k] {
					kind = k
				}
			}
			return checkConfig(cmd, out, args[0], kind)
		},
	}
	for _, k := range daemonKinds {
		said[k] = cmd.Flags().Bool(k, false, "it is "+article(k)+"'s file")
	}
	cmd.MarkFlagsMutuallyExclusive(daemonKinds...) // for completion, which offers none after the first
	oneFlag(cmd, false, daemonKinds...)
	out.Flag(cmd)
	return cmd
}

// checkConfig checks a file of settings as the daemon of that kind would read it; empty: of the kind that the file seems to be for.
func checkConfig(cmd *cobra.Command, out show.Format, file, kind string) error {
	guess := ""
	if kind == "" {
		if _, err := os.Stat(file); err != nil {
			if out == show.JSON {
				if err := show.WriteJSON(cmd.OutOrStdout(), checkedOf(file, "", "", nil, []error{err})); err != nil {
					return err
				}
			}
			if errors.Is(err, fs.ErrPermission) {
				err = fmt.Errorf("%w: %s", err, whoMayRead)
			}
			return usagef("config check: %w", err)
		}
		kind, guess = kindOf(file)
	}
	note, remarks, wrong := fits(cmd.Context(), kind, file)
	remarks = append(remarks, config.Replaced(file)...)
	for _, name := range config.Overlooked(file) {
		remarks = append(remarks, name+" is not read: only what ends in .yaml is")
	}
	if out == show.JSON {
		if err := show.WriteJSON(cmd.OutOrStdout(), checkedOf(file, kind, note, remarks, wrong)); err != nil {
			return err
		}
	}
	if err := errors.Join(wrong...); err != nil {
		if guess != "" {
			guess = " (" + guess + ")"
		}
		return usagef("config check %s: not fit for %s%s:\n%w", file, article(kind), guess, err)
	}
	if out == show.JSON {
		return nil
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s: fit for %s\n", file, article(kind))
	for _, more := range append([]string{note, guess}, remarks...) {
		if more != "" {
			fmt.Fprintln(cmd.OutOrStdout(), more)
		}
	}
	return nil
}

// whoMayRead is the remedy for files that the caller may not read.
const whoMayRead = "ask as root, or as the user that the daemon runs as"

// checked is what config check found, as JSON.
type checked struct {
	File    string         `json:"file"`
	Kind    string         `json:"kind"` // agent, coordinator or sidecar; empty: the file is not there, so its kind is not known
	Fit     bool           `json:"fit"`
	Faults  []config.Fault `json:"faults"`
	Error   string         `json:"error,omitempty"`   // an error that is of no key: a file that cannot be read, a wrong certificate
	Note    string         `json:"note,omitempty"`    // what was not checked
	Remarks []string       `json:"remarks,omitempty"` // what is odd, but no fault
}

func checkedOf(file, kind, note string, remarks []string, wrong []error) checked {
	c := checked{File: file, Kind: kind, Fit: true, Faults: []config.Fault{}, Note: note, Remarks: remarks}
	var others []error
	for _, err := range wrong {
		faults, is := errors.AsType[*config.Faults](err)
		switch {
		case is:
			c.Faults = append(c.Faults, *faults...)
		case err != nil:
			others = append(others, err)
		}
		c.Fit = c.Fit && err == nil
	}
	if len(others) > 0 {
		c.Error = errors.Join(others...).Error()
	}
	return c
}

// daemonKinds are the daemons that have settings, the most usual first.
var daemonKinds = []string{"agent", "coordinator", "sidecar"}

// kindOf guesses which daemon's settings a file has, and says by what, and which flags overrule the guess. A file that is not YAML has no
// keys, so its name decides.
func kindOf(file string) (kind, guess string) {
	strange := map[string]int{
		"agent":       config.Strange(file, new(agent.Config)),
		"coordinator": config.Strange(file, new(coordinator.Config)),
		"sidecar":     config.Strange(file, new(sidecar.Config)),
	}
	var likely, others []string
	for _, k := range daemonKinds {
		if strange[k] == min(strange["agent"], strange["coordinator"], strange["sidecar"]) {
			likely = append(likely, k)
		}
	}
	kind, by := likely[0], "for want of a sign"
	switch named := slices.IndexFunc(likely, func(k string) bool { return strings.HasPrefix(filepath.Base(file), k) }); {
	case len(likely) == 1:
		by = "by its keys"
	case named >= 0:
		kind, by = likely[named], "by its name"
	}
	for _, k := range daemonKinds {
		if k != kind {
			others = append(others, "--"+k)
		}
	}
	return kind, fmt.Sprintf("taken for %s's %s: %s says otherwise", article(kind), by, strings.Join(others, " or "))
}

// fits checks a settings file as its daemon does at the start. It also returns what was not checked, what is odd, and all that is wrong.
func fits(ctx context.Context, kind, file string) (note string, remarks []string, wrong []error) {
	switch kind {
	case "sidecar":
		_, err := sidecar.Load(file)
		return "", nil, []error{err}
	case "coordinator":
		c, err := coordinator.Load(file)
		if err != nil {
			return "", nil, []error{err}
		}
		note, err = certified(file, map[string]string{"tls.ca": c.TLS.CA, "tls.cert": c.TLS.Cert, "tls.key": c.TLS.Key, "issue.ca_key": c.Issue.CAKey},
			false, "make it with lifeboat init or lifeboat tls, or copy it there", func() (*certs.Identity, error) {
				id, err := c.Identity()
				if err == nil && c.Issue.CAKey != "" {
					if _, err = certs.LoadAuthority(c.TLS.CA, c.Issue.CAKey); err != nil {
						err = fmt.Errorf("issue.ca_key: %w", err)
					}
				}
				return id, err
			})
		_, unread := hosts.Read(c.Hosts, nil)
		if unread != nil {
			unread = fmt.Errorf("host files: %w", unread)
		}
		return note, nil, []error{err, unread}
	}
	c, err := agent.Load(file)
	if err != nil {
		return "", nil, []error{err}
	}
	note, err = certified(file, map[string]string{"tls.ca": c.TLS.CA, "tls.cert": c.TLS.Cert, "tls.key": c.TLS.Key},
		c.Join != (agent.Join{}), "make it with lifeboat tls issue, get it with lifeboat join, or set join", c.Identity)
	remarks, fault := storeRemarks(ctx, file, c.Stores)
	linked := config.Further(file, func(report config.Report) { c.CheckLinks(ctx, report) })
	return note, append(remarks, fallbackRemarks(ctx, c.Fallback.Dir)...), []error{err, fault, linked}
}

// certified checks the certificate files that settings name (named, by key), and returns a note on what it could not check. A missing file
// keeps a daemon from starting, so it is a fault, unless the daemon is an agent that joins. A key that the caller may not read is no
// fault: people who check settings need not have access to keys.
func certified(file string, named map[string]string, joins bool, remedy string, identity func() (*certs.Identity, error)) (note string, err error) {
	if !joins {
		err := config.Further(file, func(report config.Report) {
			for _, key := range slices.Sorted(maps.Keys(named)) {
				if _, err := os.Stat(named[key]); named[key] != "" && errors.Is(err, fs.ErrNotExist) {
					report(key, named[key], "is not there", remedy)
				}
			}
		})
		if err != nil {
			return "", err
		}
	}
	switch _, err = identity(); {
	case joins && errors.Is(err, fs.ErrNotExist):
		return fmt.Sprintf("the certificate %s is not there yet, and was not checked: the agent joins to get it", named["tls.cert"]), nil
	case errors.Is(err, fs.ErrPermission):
		return fmt.Sprintf("the certificate was not checked: %v: %s", err, whoMayRead), nil
	}
	return "", err
}
