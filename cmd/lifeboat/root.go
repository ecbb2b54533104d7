package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lifeboat/lifeboat/cmd/lifeboat/show"
)

// rootCommand returns the command with every verb.
func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "lifeboat",
		Short: "Gets a machine's work and data off it before the cloud takes the machine away",
		Long: `Lifeboat gets a machine's work and data off it before the cloud takes the machine away.

Exit codes: 0 done, 1 failed, 2 used wrongly, 3 not found, 4 done but something was lost or timed out.`,
		Example: `  lifeboat dev                                        # see what it does, on loopback
  lifeboat nodes --watch                              # which machine goes, and how long it has
  lifeboat decommission host-b --timeout 10m --wait   # let one leave
  lifeboat manifest host-b                            # where its blocks went
  lifeboat get cache/-/model-7.bin -o model-7.bin     # read one, wherever it is now`,
		Version:       thisBuild().String(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	group := func(title string, verbs ...*cobra.Command) {
		root.AddGroup(&cobra.Group{ID: title, Title: title + ":"})
		for _, v := range verbs {
			v.GroupID = title
			root.AddCommand(v)
		}
	}
	group("Daemons",
		agentCommand(),
		coordinatorCommand(),
		sidecarCommand(),
		devCommand(),
	)
	group("Nodes",
		nodesCommand(),
		nodeCommand(),
		decommissionCommand(),
		recommissionCommand(),
		drainCommand(),
		deactivateCommand(),
		reactivateCommand(),
		forgetCommand(),
		maintenanceCommand(),
		refreshNodesCommand(),
		cancelCommand(),
		simulateCommand(),
		statusCommand(),
		doctorCommand(),
		eventsCommand(),
		auditCommand(),
		brakeCommand(),
		webCommand(),
	)
	group("Disks",
		disksCommand(),
		diskCommand(),
	)
	group("Blocks",
		appsCommand(),
		shufflesCommand(),
		blocksCommand(),
		valueCommand(),
		locateCommand(),
		getCommand(),
		manifestCommand(),
	)
	group("Setting up",
		initCommand(),
		joinCommand(),
		tokenCommand(),
		revokeCommand(),
		tlsCommand(),
		configCommand(),
		raftCommand(),
		serviceCommand(),
		generalizeCommand(),
		versionCommand(),
	)
	root.AddCommand(manCommand(), probesCommand())
	return root
}

// strict makes cobra's own verbs, help and completion, refuse unknown arguments, as ours do.
func strict(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, v := range root.Commands() {
		switch v.Name() {
		case "completion":
			v.Args, v.RunE = cobra.ArbitraryArgs, needsVerb
		case "help":
			v.RunE = func(cmd *cobra.Command, args []string) error {
				about, rest, err := root.Find(args)
				if err != nil || len(rest) > 0 {
					return usagef("help: there is no %q", "lifeboat "+strings.Join(args, " "))
				}
				about.InitDefaultHelpFlag()
				return about.Help()
			}
		}
	}
}

// foldHelp folds the paragraphs of help texts to width: they are written wider than many terminals. Indented lines stay as they are.
func foldHelp(cmd *cobra.Command, width int) {
	var all, paragraph []string
	end := func() {
		if len(paragraph) > 0 {
			all, paragraph = append(all, show.Fold(strings.Join(paragraph, " "), width)...), nil
		}
	}
	for line := range strings.SplitSeq(cmd.Long, "\n") {
		if line == "" || strings.ContainsRune(" \t", rune(line[0])) {
			end()
			all = append(all, line)
		} else {
			paragraph = append(paragraph, line)
		}
	}
	end()
	cmd.Long = strings.TrimSuffix(strings.Join(all, "\n"), "\n")
	for _, c := range cmd.Commands() {
		foldHelp(c, width)
	}
}

// foldFlags folds what help says of flags to a width. With cobra's templates package text/template would be in the binary, which calls
// methods by names that only data has: the linker would keep every method of every type, 8 MB of them.
func foldFlags(root *cobra.Command, width int) {
	usual := root.UsageFunc()
	root.SetUsageFunc(func(cmd *cobra.Command) error {
		out, text := cmd.OutOrStderr(), &strings.Builder{}
		cmd.SetOut(text)
		err := usual(cmd)
		cmd.SetOut(out)
		said := text.String()
		for _, flags := range []*pflag.FlagSet{cmd.LocalFlags(), cmd.InheritedFlags()} {
			said = strings.Replace(said, strings.TrimRight(flags.FlagUsages(), " \n"), strings.TrimRight(flags.FlagUsagesWrapped(width), " \n"), 1)
		}
		_, wrote := io.WriteString(out, said)
		return errors.Join(err, wrote)
	})
}

// run is the program: it returns the exit code and leaves the exiting to main.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := rootCommand()
	if len(args) == 1 && (args[0] == "--version" || args[0] == "-v") { // cobra has other words for it, and a template for ours: see foldFlags
		args = []string{"version"}
	}
	root.SetArgs(append([]string{}, args...)) // never nil: cobra reads os.Args instead of a nil list
	out := &kept{Writer: stdout}
	if root.SetOut(stdout); !show.IsTerminal(stdout) {
		root.SetOut(out)
	}
	root.SetErr(stderr)
	root.SetFlagErrorFunc(wrongFlag)
	strict(root) // after SetOut: the completion verb writes to the output that is set when it is made
	width := min(show.WidthOf(stdout), show.Width)
	foldHelp(root, width)
	foldFlags(root, width)
	started := false
	onStart(root, func() { started = true })

	cmd, err := root.ExecuteContextC(ctx)
	if err == nil && out.err != nil { // exit code 0 would tell a script that it got all of the output
		err = &exitError{exitFailed, fmt.Errorf("what it printed is not all there: %w", out.err)}
	}
	if err == nil {
		return exitDone
	}
	for i, line := range strings.Split(strings.TrimSpace(err.Error()), "\n") { // may quote a hostile machine, hence show.Plain
		if i == 0 {
			line = "lifeboat: " + line
		}
		fmt.Fprintln(stderr, show.Plain(strings.ReplaceAll(line, "\t", "  "))) // cobra indents its suggestions with tabs
	}
	code := exitCode(err, started || out.err != nil)
	if code == exitUsage {
		fmt.Fprintf(stderr, "see: %s --help\n", cmd.CommandPath())
	}
	linger(ctx, err)
	return code
}

// onStart has began called before a verb runs. What cobra refuses before that (a flag, an argument, an unknown verb) is the caller's
// mistake; a later error need not be. onStart also replaces cobra's errors about arguments by our own, which show how the verb is called.
func onStart(cmd *cobra.Command, began func()) {
	for _, c := range cmd.Commands() {
		onStart(c, began)
	}
	if inner := cmd.Args; inner != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if i := slices.Index(args, ""); i >= 0 {
				return usagef("argument %d of %s is empty: a variable that is not set?", i+1, cmd.CommandPath())
			}
			err := inner(cmd, args)
			if _, ours := errors.AsType[*exitError](err); err == nil || ours {
				return err
			}
			if len(args) > 0 && cmd.HasSubCommands() {
				return needsVerb(cmd, args)
			}
			// Cobra would say "accepts 1 arg(s)", or "unknown command". The arguments are not quoted: one may be a token.
			return usagef("want %q, got %s", strings.TrimSuffix(cmd.UseLine(), " [flags]"), show.Count(int64(len(args)), "argument"))
		}
	}
	if inner := cmd.RunE; inner != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			began()
			return inner(cmd, args)
		}
	}
}

// needsVerb is the error of a verb with verbs below it that is called alone, or with an argument that is none of them.
func needsVerb(cmd *cobra.Command, args []string) error {
	var names []string
	for _, c := range cmd.Commands() {
		names = append(names, c.Name())
	}
	if len(args) > 0 {
		return usagef("%s has no %q: it has %s", verb(cmd), args[0], strings.Join(names, ", "))
	}
	return usagef("%s needs one of: %s", verb(cmd), strings.Join(names, ", "))
}

// verb returns the path of a command without the program's name. Every error message begins with it.
func verb(cmd *cobra.Command) string {
	return strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")
}

// wrongFlag rewords the error of a flag whose value cobra could not parse: it shows the error of Go's parser.
func wrongFlag(_ *cobra.Command, err error) error {
	bad, is := errors.AsType[*pflag.InvalidValueError](err)
	if !is {
		return err
	}
	name, value := bad.GetFlag().Name, bad.GetValue()
	switch bad.GetFlag().Value.Type() {
	case "duration":
		return usagef("--%s %s: want a time such as 90s or 10m", name, value)
	case "bool":
		return usagef("--%s=%s: want --%s alone, or --%s=false", name, value, name, name)
	case "uint64":
		return usagef("--%s %s: want a whole number, 0 or more", name, value)
	case "int", "int64":
		return usagef("--%s %s: want a whole number", name, value)
	}
	return err
}

// oneFlag makes a verb refuse more than one of some flags and, with must, none of them. Cobra can do that, but its messages speak of groups.
func oneFlag(cmd *cobra.Command, must bool, flags ...string) {
	before := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		var all, given []string
		for _, name := range flags {
			if all = append(all, "--"+name); cmd.Flags().Changed(name) {
				given = append(given, "--"+name)
			}
		}
		switch {
		case len(given) > 1:
			return usagef("%s: %s: give one of them", verb(cmd), strings.Join(given, ", "))
		case must && len(given) == 0:
			return usagef("%s: give %s", verb(cmd), strings.Join(all, " or "))
		case before != nil:
			return before(cmd, args)
		}
		return nil
	}
}

// someNamed wants at least one argument, and its error says what to name.
func someNamed(verb, what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usagef("%s: name the %s", verb, what)
		}
		return nil
	}
}

// kept keeps the first write error: not every verb checks each line that it prints, and cobra checks none of its help.
type kept struct {
	io.Writer
	err error
}

func (k *kept) Write(p []byte) (int, error) {
	n, err := k.Writer.Write(p)
	k.err = cmp.Or(k.err, err)
	return n, err
}
