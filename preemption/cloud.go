package preemption

import (
	"context"
	"fmt"
)

// Cloud is the source of the notices of the cloud that this machine runs in.
type Cloud interface {
	Source
	Healthy
	// Believe tells what was known before a restart. It is called before the first Next.
	Believe(notices ...Notice)
	// Instance asks what machine this is, for as long as ctx lets it. It may be called beside Next.
	Instance(ctx context.Context) (Instance, error)
	// Document asks for the cloud's signed word on which machine this is. It may be called beside Next.
	Document(ctx context.Context, p Purpose) ([]byte, error)
}

// Instance is what the metadata service says of this machine. What it does not say is empty.
type Instance struct {
	ID        string // i-0123456789abcdef0
	Type      string // r5.4xlarge
	Zone      string // us-east-1a
	LifeCycle string // how it is paid for, in the cloud's word: spot, on-demand, standard
}

// CloudConfig says how a cloud's metadata service is asked.
type CloudConfig struct {
	Metadata
	AllowV1     bool      // ask without a token where the service gives none (EC2)
	Lifecycle   Lifecycle // the Auto Scaling hook to complete when the node is empty (EC2)
	Name        string    // of this machine, where the cloud's notices name machines (Azure); empty: the cloud is asked
	Acknowledge bool      // let an event begin before its time when the node is empty (Azure)
}

// Providers lists the clouds whose notices can be heard.
func Providers() []string { return []string{SourceEC2, SourceGCE, SourceAzure} }

// OpenCloud returns the source for a provider, one of Providers. It asks nothing until it is used.
func OpenCloud(provider string, cfg CloudConfig) (Cloud, error) {
	switch provider {
	case SourceEC2:
		return NewEC2(EC2Config{Metadata: cfg.Metadata, AllowV1: cfg.AllowV1, Lifecycle: cfg.Lifecycle})
	case SourceGCE:
		return NewGCE(GCEConfig{Metadata: cfg.Metadata})
	case SourceAzure:
		return NewAzure(AzureConfig{Metadata: cfg.Metadata, Name: cfg.Name, Acknowledge: cfg.Acknowledge})
	default:
		return nil, fmt.Errorf("cloud %q is not known: use one of %q", provider, Providers())
	}
}
