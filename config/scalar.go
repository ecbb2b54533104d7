package config

import (
	"strconv"

	"github.com/goccy/go-yaml"
)

// Scalar is s as a value in a YAML flow mapping: bare if YAML reads the same text back, else in quotes. A host may be called 0x10 or no,
// and a directory may have a comma in its name.
func Scalar(s string) string {
	var back map[string]any
	if err := yaml.Unmarshal([]byte("{k: "+s+"}"), &back); err == nil && len(back) == 1 && back["k"] == s {
		return s
	}
	return strconv.Quote(s)
}
