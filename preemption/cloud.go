package preemption

import "context"

// Cloud is the source of the notices of the cloud that this machine runs in.
type Cloud interface {
	Source
	Healthy
	// Instance asks what machine this is, for as long as ctx lets it. It may be called beside Next.
	Instance(ctx context.Context) (Instance, error)
	// Document asks for the cloud's signed word on which machine this is. It may be called beside Next.
	Document(ctx context.Context, p Purpose) ([]byte, error)
}

// Instance is what the metadata service says of this machine. A field that it does not tell is empty.
type Instance struct {
	ID        string // i-0123456789abcdef0
	Type      string // r5.4xlarge
	Zone      string // us-east-1a
	LifeCycle string // how it is paid for, in the cloud's word: spot, on-demand, standard
}

// Providers lists the clouds whose notices can be heard.
func Providers() []string { return []string{SourceEC2, SourceGCE, SourceAzure} }
