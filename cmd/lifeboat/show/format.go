package show

import (
	"fmt"

	"github.com/spf13/cobra"
)

// Format is -o: a table for people or JSON for programs.
type Format string

const (
	Tables Format = "table"
	JSON   Format = "json"
)

func (f *Format) String() string { return string(*f) }
func (f *Format) Type() string   { return "FORMAT" }

func (f *Format) Set(s string) error {
	switch v := Format(s); v {
	case Tables, JSON:
		*f = v
		return nil
	}
	return fmt.Errorf("want table or json")
}

func (f *Format) Flag(cmd *cobra.Command) {
	*f = Tables
	cmd.Flags().VarP(f, "output", "o", "table or json")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]cobra.Completion{"table", "json"}, cobra.ShellCompDirectiveNoFileComp))
}
