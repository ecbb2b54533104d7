package fallback

import (
	"net"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/lifeboat/lifeboat/config"
)

// Settings are the section fallback of an agent's file. Without a directory and a bucket there is no fallback.
type Settings struct {
	Name    string        `yaml:"name"`
	Layout  string        `yaml:"layout"` // blocks or spark-fallback
	Streams int           `yaml:"streams"`
	Dir     string        `yaml:"dir"`
	Keep    time.Duration `yaml:"keep"` // of a directory; 0: for ever
	S3      S3            `yaml:"s3"`
}

// S3 names a bucket and how it is spoken to. What is empty is as the SDK's default chain has it.
type S3 struct {
	Bucket          string `yaml:"bucket"`
	Prefix          string `yaml:"prefix"`
	Region          string `yaml:"region"`
	Endpoint        string `yaml:"endpoint"`
	PathStyle       bool   `yaml:"path_style"`
	CredentialsFile string `yaml:"credentials_file"`
	Profile         string `yaml:"profile"`
}

// Default is a section that names no storage.
func Default() Settings { return Settings{Name: "storage", Layout: "blocks", Streams: 8} }

// On reports whether the settings name a storage.
func (s Settings) On() bool { return s.Dir != "" || s.S3.Bucket != "" }

const (
	// mostStreams bounds memory, where each upload has a part, and the requests at once: too many, and a bucket says "slow down".
	mostStreams = 64
	// mostPuts bounds the small contents that may be put at once, besides those streams.
	mostPuts = 256
	// leastKeep is more than any drain takes: what is being put must not be removed.
	leastKeep = 24 * time.Hour
	mostKeep  = 10 * 365 * 24 * time.Hour
	// longestPrefix leaves most of a key's 1024 bytes to the block's id.
	longestPrefix = 256
)

var (
	// https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html
	buckets  = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)
	prefixes = regexp.MustCompile(`^([A-Za-z0-9!_.*'()=-]+/)+$`)
)

// Validate reports every value out of its bounds, by keys below "fallback". Its caller checks where the directory lies, for it
// knows the agent's other directories.
func (s Settings) Validate(report config.Report) {
	if s == (Settings{}) {
		return // not from a file
	}
	if !config.IsName(s.Name) {
		report("fallback.name", s.Name, config.NameBound, "rename it")
	}
	if s.Layout != "blocks" && s.Layout != "spark-fallback" {
		report("fallback.layout", s.Layout, "must be blocks or spark-fallback", "use blocks")
	}
	config.CheckBetween(report, "fallback.streams", s.Streams, 1, mostStreams)
	if s.Dir != "" && s.S3.Bucket != "" {
		report("fallback.s3.bucket", s.S3.Bucket, "must not stand beside fallback.dir: there is one last resort", "remove one of them")
	}
	if s.Keep != 0 {
		config.CheckBetween(report, "fallback.keep", s.Keep, leastKeep, mostKeep)
		if s.Dir == "" {
			report("fallback.keep", s.Keep, "must stand beside fallback.dir: a bucket removes what is old by its own lifecycle rule", "remove it and see /usr/share/doc/lifeboat/docs/fallback.md")
		}
	}
	s.S3.validate(report, s.Dir != "")
}

func (s S3) validate(report config.Report, dir bool) {
	switch {
	case s.Bucket != "" && !buckets.MatchString(s.Bucket):
		report("fallback.s3.bucket", s.Bucket, "must be a bucket's name: 3 to 63 of a-z, 0-9, '.' and '-'", "write the name alone, without s3:// and without a path")
	case s.Bucket == "" && s != (S3{}) && !dir:
		report("fallback.s3.bucket", nil, "must name the bucket", "set it, or remove the rest of fallback.s3")
	}
	switch {
	case s.Prefix == "":
	case !prefixes.MatchString(s.Prefix) || strings.Contains("/"+s.Prefix, "/./") || strings.Contains("/"+s.Prefix, "/../"):
		report("fallback.s3.prefix", s.Prefix, "must be words with a '/' after each", "write it like lifeboat/ or prod/spill/")
	case len(s.Prefix) > longestPrefix:
		report("fallback.s3.prefix", s.Prefix, "must be at most 256 bytes: a key has 1024 with the block's id", "shorten it")
	}
	if s.Endpoint == "" {
		return
	}
	u, err := url.Parse(s.Endpoint)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.Path != "" || u.RawQuery != "" || u.Fragment != "":
		report("fallback.s3.endpoint", s.Endpoint, "must be a URL of a scheme and a host", "write it like https://s3.example:9000")
	case u.Scheme == "http" && !config.Loopback(net.JoinHostPort(u.Hostname(), "80")):
		report("fallback.s3.endpoint", s.Endpoint, "must not carry blocks across the network in clear", "use https")
	}
}
