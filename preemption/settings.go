package preemption

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/lifeboat/lifeboat/config"
)

// Settings are the section of a configuration file that says whose notices are listened for. Provider is auto, none or one
// of Providers; Endpoint replaces the metadata service's address.
type Settings struct {
	Provider string        `yaml:"provider"`
	Endpoint string        `yaml:"endpoint"`
	Poll     time.Duration `yaml:"poll"`

	// AllowIMDSv1 allows asking EC2's metadata service without a token where it gives none.
	AllowIMDSv1   bool          `yaml:"allow_imds_v1"`
	LifecycleHook LifecycleHook `yaml:"lifecycle_hook"`

	// MachineName is what Azure's events call this machine; empty: Azure is asked. With Acknowledge, an event of Azure's
	// that names only this machine may begin before its time, once the node is empty.
	MachineName string `yaml:"machine_name"`
	Acknowledge bool   `yaml:"acknowledge"`
}

// DefaultSettings are those of an empty file.
func DefaultSettings() Settings {
	return Settings{Provider: "auto", Poll: time.Second, Acknowledge: true}
}

// longestHook is how long Auto Scaling lets an instance wait in all (Auto Scaling User Guide, lifecycle hooks: 48 hours, or
// 100 times the hook's timeout).
const longestHook = 48 * time.Hour

// AWS recommends a poll every 5 s (docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html); a
// slower one would spend the two minutes of a notice without knowing of it.
const minPoll, maxPoll = 100 * time.Millisecond, 5 * time.Second

// Validate reports what is out of bounds, under the key cloud.
func (s Settings) Validate(report config.Report) {
	known := append([]string{"auto", "none"}, Providers()...)
	if !slices.Contains(known, s.Provider) {
		report("cloud.provider", s.Provider, "must be one of "+strings.Join(known, ", "), "use auto")
	}
	if _, err := parseEndpoint(s.Endpoint); err != nil {
		report("cloud.endpoint", s.Endpoint, "must be a URL", "write it like http://127.0.0.1:1338, or remove it outside of tests")
	}
	config.CheckBetween(report, "cloud.poll", s.Poll, minPoll, maxPoll)
	hook := s.LifecycleHook
	config.CheckBetween(report, "cloud.lifecycle_hook.timeout", hook.Timeout, 0, longestHook)
	if hook.Name == "" && hook != (LifecycleHook{}) {
		report("cloud.lifecycle_hook.name", nil, "must name the hook that is completed", "set it, or remove lifecycle_hook")
	}
}

// Resolve names the provider that auto stands for on this machine: one of Providers, or "none".
func (s Settings) Resolve() string {
	if s.Provider != "auto" {
		return s.Provider
	}
	if found := Detect("/"); found != "" {
		return found
	}
	if s.Endpoint != "" {
		return SourceEC2 // an endpoint is given: something pretends to be EC2, as in tests
	}
	return "none"
}

// LeastLead is the least time that a cloud gives between the announcement of a reclaim and the reclaim; 0: the provider is
// not known.
func LeastLead(provider string) time.Duration {
	return map[string]time.Duration{SourceEC2: actionLead, SourceGCE: preemptLead, SourceAzure: azureKinds["preempt"].least}[provider]
}

// Address is where the metadata service is asked.
func (s Settings) Address() string {
	endpoint := s.Endpoint
	switch s.Resolve() {
	case SourceEC2:
		endpoint = cmp.Or(endpoint, os.Getenv("AWS_EC2_METADATA_SERVICE_ENDPOINT"))
	case SourceGCE:
		if host := os.Getenv("GCE_METADATA_HOST"); endpoint == "" && host != "" {
			endpoint = "http://" + host
		}
	}
	return cmp.Or(endpoint, "http://169.254.169.254")
}

// Open returns the source of the cloud's notices; nil: there is no cloud to listen to. It asks nothing yet.
func (s Settings) Open(log *slog.Logger, dial func(ctx context.Context, network, addr string) (net.Conn, error), polled func(Poll)) (Cloud, error) {
	m := Metadata{Endpoint: s.Endpoint, Poll: s.Poll, Log: log, Dial: dial, Polled: polled}
	switch provider := s.Resolve(); provider {
	case "none":
		return nil, nil
	case SourceEC2:
		return NewEC2(EC2Config{Metadata: m, AllowV1: s.AllowIMDSv1, Lifecycle: s.LifecycleHook})
	case SourceGCE:
		return NewGCE(m)
	case SourceAzure:
		return NewAzure(AzureConfig{Metadata: m, Name: s.MachineName, Acknowledge: s.Acknowledge})
	default:
		return nil, fmt.Errorf("cloud %q is not known: use one of %q", provider, Providers())
	}
}

// Validate reports the kinds and stances of a policy that are not known.
func (p Policy) Validate(report config.Report) {
	for kind, stance := range p {
		if kind.severity() < 0 {
			report(fmt.Sprintf("policy.%s", kind), nil, "must be a kind of notice: "+words(Kinds()), "remove the line")
			continue
		}
		if !slices.Contains(stances(), stance) {
			report(fmt.Sprintf("policy.%s", kind), string(stance), "must be one of "+words(stances()), fmt.Sprintf("use %s, its default", kind.stance()))
		}
	}
}

func words[T ~string](all []T) string {
	texts := make([]string, len(all))
	for i, one := range all {
		texts[i] = string(one)
	}
	return strings.Join(texts, ", ")
}
