package attest

import (
	"fmt"
	"regexp"
	"time"

	"github.com/lifeboat/lifeboat/config"
)

// Settings are the section of a coordinator's settings that says which clouds' machines may join. A cloud that is left out lets none in.
type Settings struct {
	EC2   EC2    `yaml:"ec2"`
	GCE   GCE    `yaml:"gce"`
	Azure Azure  `yaml:"azure"`
	Names string `yaml:"names"` // proven or any
}

// EC2 lets in instances of accounts. Certificates are files of AWS's regional certificates for RSA-2048 signatures.
type EC2 struct {
	Accounts     []string      `yaml:"accounts"`
	Regions      []string      `yaml:"regions"` // empty: all regions that Certificates has one of
	Certificates []string      `yaml:"certificates"`
	MaxAge       time.Duration `yaml:"max_age"`
}

// GCE lets in instances of projects. Keys is the file of Google's public keys, a set of JWKs (RFC 7517).
type GCE struct {
	Projects []string      `yaml:"projects"`
	Zones    []string      `yaml:"zones"` // empty: all
	Keys     string        `yaml:"keys"`
	MaxAge   time.Duration `yaml:"max_age"`
}

// Azure lets in virtual machines of subscriptions. Certificates are files of roots and intermediates. The metadata service's own certificate
// comes with each document.
type Azure struct {
	Subscriptions []string `yaml:"subscriptions"`
	Certificates  []string `yaml:"certificates"`
}

const (
	namesProven = "proven"
	namesAny    = "any"

	// defaultMaxAge is enough for an image to boot. It also bounds the use of a document that leaks from a machine that never joined.
	defaultMaxAge = 30 * time.Minute
	mostAge       = 10 * 365 * 24 * time.Hour
)

// Default lets no machine in.
func Default() Settings {
	return Settings{Names: namesProven, EC2: EC2{MaxAge: defaultMaxAge}, GCE: GCE{MaxAge: defaultMaxAge}}
}

func (e EC2) set() bool   { return len(e.Accounts)+len(e.Regions)+len(e.Certificates) > 0 }
func (g GCE) set() bool   { return len(g.Projects)+len(g.Zones) > 0 || g.Keys != "" }
func (a Azure) set() bool { return len(a.Subscriptions)+len(a.Certificates) > 0 }

// Set reports whether any cloud's machines may join.
func (s Settings) Set() bool { return s.EC2.set() || s.GCE.set() || s.Azure.set() }

// In returns s with file names that are relative to dir.
func (s Settings) In(dir string) Settings {
	files := func(names []string) (all []string) {
		for _, n := range names {
			all = append(all, config.In(dir, n))
		}
		return all
	}
	s.EC2.Certificates, s.Azure.Certificates, s.GCE.Keys = files(s.EC2.Certificates), files(s.Azure.Certificates), config.In(dir, s.GCE.Keys)
	return s
}

var (
	accountForm      = regexp.MustCompile(`^[0-9]{12}$`)
	regionForm       = regexp.MustCompile(`^[a-z]+(-[a-z]+)+-[0-9]+$`)                     // also eusc-de-east-1
	projectForm      = regexp.MustCompile(`^([a-z0-9.-]+:)?[a-z][a-z0-9-]{4,28}[a-z0-9]$`) // a domain's projects begin with its name
	zoneForm         = regexp.MustCompile(`^[a-z]+-[a-z]+[0-9]+-[a-z][a-z0-9]*$`)          // also europe-west12-a and us-central1-ai1a
	subscriptionForm = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
)

// Validate reports what is out of bounds, under the key join.
func (s Settings) Validate(report config.Report) {
	if s.Names != namesProven && s.Names != namesAny {
		report("join.names", s.Names, "must be proven or any", "use proven")
	}
	listed := func(key string, values []string, required bool, form *regexp.Regexp, like string) {
		if required && len(values) == 0 {
			report(key, nil, "must not be empty: everybody who pays that cloud could join", "list them, like "+like)
		}
		for i, v := range values {
			if !form.MatchString(v) {
				report(fmt.Sprintf("%s[%d]", key, i), v, "is no such name", "write it like "+like)
			}
		}
	}
	if e := s.EC2; e.set() {
		listed("join.ec2.accounts", e.Accounts, true, accountForm, `"123456789012", in quotes`)
		listed("join.ec2.regions", e.Regions, false, regionForm, "eu-west-1")
		if len(e.Certificates) == 0 {
			report("join.ec2.certificates", nil, "must name files", "save AWS's certificates for RSA-2048 signatures, region by region: /usr/share/doc/lifeboat/docs/joining.md says where they are")
		}
		config.CheckBetween(report, "join.ec2.max_age", e.MaxAge, time.Minute, mostAge)
	}
	if g := s.GCE; g.set() {
		listed("join.gce.projects", g.Projects, true, projectForm, "my-project-1")
		listed("join.gce.zones", g.Zones, false, zoneForm, "europe-west1-b")
		if g.Keys == "" {
			report("join.gce.keys", nil, "must name a file", "fetch https://www.googleapis.com/oauth2/v3/certs into it each hour: /usr/share/doc/lifeboat/docs/joining.md says how")
		}
		config.CheckBetween(report, "join.gce.max_age", g.MaxAge, time.Minute, mostAge)
	}
	if a := s.Azure; a.set() {
		listed("join.azure.subscriptions", a.Subscriptions, true, subscriptionForm, "8d10da13-8125-4ba9-a717-bf7490507b3d")
		if len(a.Certificates) == 0 {
			report("join.azure.certificates", nil, "must name files", "save the roots and intermediates of metadata.azure.com: /usr/share/doc/lifeboat/docs/joining.md says where they are")
		}
	}
}
