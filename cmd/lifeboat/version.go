package main

import (
	"cmp"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/lifeboat/lifeboat/cmd/lifeboat/show"
)

func versionCommand() *cobra.Command {
	var out show.Format
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Say which build this is",
		Example: `  lifeboat version
  lifeboat version -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b := thisBuild()
			if out == show.JSON {
				return show.WriteJSON(cmd.OutOrStdout(), b)
			}
			_, err := io.WriteString(cmd.OutOrStdout(), b.line())
			return err
		},
	}
	out.Flag(cmd)
	return cmd
}

// release is the version that the build was given (VERSION of make build and of packaging/build); empty: none.
var release string

type build struct {
	Version  string `json:"version"`
	Revision string `json:"revision"`
	Modified bool   `json:"modified"`
	Time     string `json:"time"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// String returns the version as a node reports it, or the commit for a build without a version.
func (b build) String() string {
	if b.Version != "devel" || b.Revision == "" {
		return b.Version
	}
	s := "devel+" + b.Revision[:min(12, len(b.Revision))]
	if b.Modified {
		s += "-modified"
	}
	return s
}

// line is the output of the version verb for people.
func (b build) line() string { return fmt.Sprintf("lifeboat %s (%s, %s)\n", b, b.Go, b.Platform) }

// thisBuild reads what the Go linker wrote into the binary. Without git or a tag in the source, that has no version.
func thisBuild() build {
	b := build{Version: cmp.Or(release, "devel"), Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if v := info.Main.Version; release == "" && v != "(devel)" {
		b.Version = cmp.Or(v, "devel")
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}
