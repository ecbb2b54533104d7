package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// manCommand writes the manual's pages. It is hidden: package builds call it, and people read the pages with man(1).
func manCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "man DIR",
		Short:   "Write the pages of the manual into a directory",
		Example: "  lifeboat man /usr/local/share/man/man1",
		Hidden:  true,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			date, err := manDate()
			if err != nil {
				return err
			}
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			return writeMan(cmd.Root(), args[0], date)
		},
	}
}

// manDate returns the date in the pages: SOURCE_DATE_EPOCH if it is set, so that two builds of one source are alike
// (reproducible-builds.org/specs/source-date-epoch), else today.
func manDate() (time.Time, error) {
	epoch := os.Getenv("SOURCE_DATE_EPOCH")
	if epoch == "" {
		return time.Now().UTC(), nil
	}
	seconds, err := strconv.ParseInt(epoch, 10, 64)
	if err != nil {
		return time.Time{}, usagef("SOURCE_DATE_EPOCH %q: want seconds since 1970", epoch)
	}
	return time.Unix(seconds, 0).UTC(), nil
}

// writeMan writes the page of a verb and those of the verbs below it.
func writeMan(cmd *cobra.Command, dir string, date time.Time) error {
	if cmd.Hidden || cmd.Name() == "help" {
		return nil
	}
	name := manName(cmd)
	if err := os.WriteFile(filepath.Join(dir, name+".1"), []byte(manPage(cmd, date)), 0o644); err != nil {
		return err
	}
	for _, c := range cmd.Commands() {
		if err := writeMan(c, dir, date); err != nil {
			return err
		}
	}
	return nil
}

// manName is lifeboat-tls-init for `lifeboat tls init`.
func manName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// manPage is the page of one verb, in the macros of man(7).
func manPage(cmd *cobra.Command, date time.Time) string {
	cmd.InitDefaultHelpFlag()
	var b strings.Builder
	fmt.Fprintf(&b, ".TH %s 1 %s \"lifeboat\" \"Lifeboat\"\n.nh\n.ad l\n", roff(strings.ToUpper(manName(cmd))), date.Format(time.DateOnly))
	section(&b, "NAME", fmt.Sprintf("%s \\- %s\n", roff(manName(cmd)), roff(lowerFirst(cmd.Short))))
	synopsis := roff(cmd.UseLine())
	if cmd.HasAvailableSubCommands() {
		synopsis = roff(cmd.CommandPath()) + " \\fIverb\\fR [\\fIflags\\fR]"
	}
	section(&b, "SYNOPSIS", "\\fB"+roff(cmd.CommandPath())+"\\fR"+strings.TrimPrefix(synopsis, roff(cmd.CommandPath()))+"\n")
	section(&b, "DESCRIPTION", paragraphs(cmp.Or(cmd.Long, cmd.Short+".")))
	section(&b, "VERBS", verbs(cmd))
	section(&b, "OPTIONS", options(cmd.NonInheritedFlags()))
	section(&b, "INHERITED OPTIONS", options(cmd.InheritedFlags()))
	if cmd.Example != "" {
		section(&b, "EXAMPLES", ".nf\n"+lines(cmd.Example)+".fi\n")
	}
	if !cmd.HasParent() {
		section(&b, "FILES", definitions([][2]string{
			{"/etc/lifeboat", "agent.yaml, coordinator.yaml or sidecar.yaml, agent.d and so on, conf.d, and this host's certificate and key"},
			{"/var/lib/lifeboat", "the agent's journal and vault; below it, in coordinator, what a coordinator keeps"},
			{"/run/lifeboat/agent.sock", "the agent's socket: to look, for its group; to change something, for root"},
			{"/usr/lib/lifeboat/decommission-self", "the script by which shutdown hooks and cron let this machine leave"},
		}))
		section(&b, "ENVIRONMENT", definitions([][2]string{
			{"LIFEBOAT_COORDINATOR", "the coordinator that the verbs ask, for --coordinator"},
			{"LIFEBOAT_TLS_DIR", "the directory of the caller's certificate, for --tls-dir"},
			{"LIFEBOAT_SOCKET", "the socket of this machine's agent, for --socket"},
		}))
	}
	section(&b, "EXIT STATUS", definitions([][2]string{
		{"0", "done"}, {"1", "failed"}, {"2", "used wrongly"}, {"3", "not found"}, {"4", "done, but something was lost or timed out"},
	}))
	section(&b, "SEE ALSO", seeAlso(cmd))
	return b.String()
}

// section writes a section, unless its text is empty.
func section(w io.Writer, title, text string) {
	if text != "" {
		fmt.Fprintf(w, ".SH %s\n%s", title, text)
	}
}

func verbs(cmd *cobra.Command) string {
	var all [][2]string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() && c.Name() != "help" {
			all = append(all, [2]string{c.Name(), c.Short})
		}
	}
	return definitions(all)
}

func options(flags *pflag.FlagSet) string {
	var b strings.Builder
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		value, usage := pflag.UnquoteUsage(f)
		b.WriteString(".TP\n")
		if f.Shorthand != "" {
			fmt.Fprintf(&b, "\\fB\\-%s\\fR, ", f.Shorthand)
		}
		fmt.Fprintf(&b, "\\fB\\-\\-%s\\fR", roff(f.Name))
		if value != "" {
			fmt.Fprintf(&b, " \\fI%s\\fR", roff(value))
		}
		switch f.DefValue {
		case "", "false", "0", "0s", "[]":
		default:
			usage += fmt.Sprintf(" (default: %s)", f.DefValue)
		}
		b.WriteString("\n" + lines(usage))
	})
	return b.String()
}

// definitions formats a list of terms with their definitions.
func definitions(all [][2]string) string {
	var b strings.Builder
	for _, d := range all {
		fmt.Fprintf(&b, ".TP\n\\fB%s\\fR\n%s", roff(d[0]), lines(d[1]))
	}
	return b.String()
}

func seeAlso(cmd *cobra.Command) string {
	var all []string
	if p := cmd.Parent(); p != nil {
		all = append(all, manName(p))
	}
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() && c.Name() != "help" {
			all = append(all, manName(c))
		}
	}
	for i, name := range all {
		all[i] = fmt.Sprintf(".BR %s (1)", roff(name))
	}
	if len(all) == 0 {
		return ""
	}
	return strings.Join(all, " ,\n") + "\n"
}

// paragraphs formats running text, in which an empty line separates paragraphs.
func paragraphs(text string) string {
	var all []string
	for p := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		all = append(all, lines(p))
	}
	return strings.Join(all, ".PP\n")
}

// lines escapes text, and also each line that roff would take for a request of its own.
func lines(text string) string {
	var b strings.Builder
	for line := range strings.SplitSeq(strings.Trim(text, "\n"), "\n") {
		line = roff(line)
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			line = `\&` + line
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}

// roff escapes what has a meaning to roff within a line. A hyphen becomes a minus, which can be copied into a shell.
func roff(text string) string { return strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text) }

func lowerFirst(s string) string { return strings.ToLower(s[:1]) + s[1:] }
