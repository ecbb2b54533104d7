package preemption

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/credentials/ec2rolecreds"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/smithy-go"
)

// LifecycleHook is how an EC2 Auto Scaling group waits for its instances before it terminates them. The instance's role must
// allow autoscaling:CompleteLifecycleAction.
// https://docs.aws.amazon.com/autoscaling/ec2/userguide/lifecycle-hooks.html
type LifecycleHook struct {
	Name    string        `yaml:"name"`    // empty: nobody is told that the node is empty
	Group   string        `yaml:"group"`   // empty: read from the instance's tag, if its metadata show tags
	Region  string        `yaml:"region"`  // empty: the instance's
	Timeout time.Duration `yaml:"timeout"` // how long the group waits, as set in the hook; 0: not known, a notice has no deadline then
}

// groupTag is the metadata path of the tag with which Auto Scaling marks its instances.
const groupTag = "tags/instance/aws:autoscaling:groupName"

// completeLimit bounds one try, including the SDK's own three attempts. A try also asks the metadata service, which may be
// slow, five things.
const completeLimit = 30 * time.Second

// waitsWithin is how soon after the metadata name the instance's target state the group waits for the instance. They name it
// when the instance is about to move to that state; an empty node may be done before the group waits, and is told that there
// is nothing to complete. AWS gives no figure.
// https://docs.aws.amazon.com/autoscaling/ec2/userguide/retrieving-target-lifecycle-state-through-imds.html
const waitsWithin = 30 * time.Second

// lifecycle tells Auto Scaling that the instance may go.
type lifecycle struct {
	LifecycleHook
	endpoint string
	metadata *metadata
	dial     func(ctx context.Context, network, addr string) (net.Conn, error)
}

// Release completes the lifecycle hook of a scale-in notice, if one is configured. It tries until ctx ends, or until an
// error that another try will not change.
func (e *EC2) Release(ctx context.Context, n Notice) error {
	l := e.lifecycle
	if n.Source != SourceEC2 || n.ID != pathTarget || l.Name == "" {
		return nil
	}
	for {
		err := l.complete(ctx)
		if err == nil || isFinal(err) && !(time.Since(n.SeenAt) < waitsWithin && isNotWaiting(err)) || sleepUntil(ctx, time.Now().Add(retryAfter)) != nil {
			return err
		}
	}
}

// complete makes one try. It keeps nothing for a second call: one success is all that a machine needs in its life.
func (l lifecycle) complete(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, completeLimit)
	defer cancel()
	instance, err := l.metadata.word(ctx, "instance-id")
	if err != nil {
		return fmt.Errorf("complete lifecycle hook %s: %w", l.Name, err)
	}
	if l.Group == "" {
		if l.Group, err = l.metadata.text(ctx, groupTag); err != nil {
			return fmt.Errorf("complete lifecycle hook %s: its group has to be named, or shown to the instance as a tag: %w", l.Name, err)
		}
	}
	if l.Region == "" {
		if l.Region, err = l.metadata.word(ctx, "placement/region"); err != nil {
			return fmt.Errorf("complete lifecycle hook %s: %w", l.Name, err)
		}
	}
	_, err = l.client().CompleteLifecycleAction(ctx, &autoscaling.CompleteLifecycleActionInput{
		AutoScalingGroupName:  &l.Group,
		LifecycleHookName:     &l.Name,
		InstanceId:            &instance,
		LifecycleActionResult: aws.String("CONTINUE"), // other hooks still have their turn before the instance goes
	})
	if err != nil {
		return fmt.Errorf("complete lifecycle hook %s of group %s for %s: %w", l.Name, l.Group, instance, err)
	}
	return nil
}

// client makes a client with the credentials of the instance's role. Unlike the metadata service, Auto Scaling is out in the
// network, so a proxy may be the way to it.
func (l lifecycle) client() *autoscaling.Client {
	options := autoscaling.Options{
		Region:      l.Region,
		Credentials: ec2rolecreds.New(func(o *ec2rolecreds.Options) { o.Client = l.metadata.client }),
		HTTPClient: awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
			if l.dial != nil {
				t.DialContext = l.dial
			}
			t.DisableKeepAlives = true // one question, and then the machine goes
		}),
	}
	if l.endpoint != "" {
		options.BaseEndpoint = &l.endpoint
	}
	return autoscaling.New(options)
}

// isFinal reports whether another try would end the same: Auto Scaling itself refused, the instance has no role, or its
// metadata lack something that the call needs.
func isFinal(err error) bool {
	if errors.Is(err, errNotSaid) || status(err) == http.StatusNotFound {
		return true
	}
	_, said := errors.AsType[smithy.APIError](err)
	return said && retry.IsErrorRetryables(retry.DefaultRetryables).IsErrorRetryable(err) != aws.TrueTernary
}

// isNotWaiting reports whether Auto Scaling said that it does not wait for the instance, or not yet.
func isNotWaiting(err error) bool {
	said, is := errors.AsType[smithy.APIError](err)
	return is && strings.HasPrefix(said.ErrorMessage(), "No active Lifecycle Action found")
}
