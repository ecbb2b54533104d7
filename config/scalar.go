package config

import (
	"strconv"

	"github.com/goccy/go-yaml"
)

// Scalar is a text as it stands in a file's flow mapping: bare where YAML reads the same text back, else in quotes. A host may be
// called 0x10 or no, and a directory have a comma in its name.
func Scalar(s string) string {
	var back map[string]any
	if err := yaml.Unmarshal([]byte("{k: "+s+"}"), &back); err == nil && len(back) == 1 && back["k"] == s {
		return s
	}
	return strconv.Quote(s)
}
