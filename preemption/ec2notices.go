package preemption

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// The paths that are asked, under /latest/meta-data/. A path that holds one notice or none is that notice's id.
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/rebalance-recommendations.html
// https://docs.aws.amazon.com/autoscaling/ec2/userguide/retrieving-target-lifecycle-state-through-imds.html
const (
	pathAction    = "spot/instance-action"
	pathRebalance = "events/recommendations/rebalance"
	pathTarget    = "autoscaling/target-lifecycle-state"
)

// How often the less urgent paths are asked, unless the configured poll is slower. The interruption is asked at each poll:
// it comes two minutes ahead, and each second of it is a second of sending. A lifecycle hook gives minutes, but a group
// without one gives seconds. Advice comes minutes to hours ahead: AWS's own interval for polling will do.
const (
	targetEvery    = 2 * time.Second
	rebalanceEvery = 5 * time.Second
)

// goneAfter is how many polls in a row must answer "none" before an EC2 notice counts as withdrawn.
const goneAfter = 2

// readAction reads {"action": "terminate", "time": "2017-09-18T08:22:00Z"}.
func readAction(body []byte, now time.Time) ([]Notice, error) {
	var doc struct{ Action, Time string }
	if err := json.Unmarshal(body, &doc); err != nil {
		return nil, fmt.Errorf("read %s: %w", pathAction, err)
	}
	switch kind := Kind(doc.Action); kind {
	case KindTerminate, KindStop, KindHibernate:
		at, err := readTime(doc.Time)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", pathAction, err)
		}
		if kind == KindHibernate && at.After(now) {
			at = now // hibernation begins at once, whatever the time says
		}
		return []Notice{{ID: pathAction, Kind: kind, Deadline: at, Reason: "EC2 spot interruption: " + doc.Action}}, nil
	default:
		return nil, fmt.Errorf("read %s: action %q is not known", pathAction, doc.Action)
	}
}

// actionLead is how far ahead EC2 announces an interruption.
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html
const actionLead = 2 * time.Minute

// readRebalance reads {"noticeTime": "2020-10-27T08:22:00Z"}: when the advice was given. It names no deadline.
func readRebalance(body []byte, _ time.Time) ([]Notice, error) {
	var doc struct{ NoticeTime string }
	if err := json.Unmarshal(body, &doc); err != nil {
		return nil, fmt.Errorf("read %s: %w", pathRebalance, err)
	}
	if _, err := readTime(doc.NoticeTime); err != nil {
		return nil, fmt.Errorf("read %s: %w", pathRebalance, err)
	}
	return []Notice{{ID: pathRebalance, Kind: KindRebalance, Reason: "EC2 rebalance recommendation"}}, nil
}

func readTime(text string) (time.Time, error) {
	at, err := time.Parse(time.RFC3339, text)
	if err == nil && at.IsZero() {
		err = errors.New("the time is empty") // a zero deadline would count as an unknown one
	}
	return at, err
}

// readTarget reads the state that the Auto Scaling group brings the instance to. An instance that stops loses its local
// disks, also on its way back into a warm pool, from which it may return with empty ones. (An instance that is being
// prepared for the pool is under such a notice from its first boot: it has nothing to lose yet, and nothing should be placed
// on it.) In standby, detached, or warm and running, the disks stay.
func (l LifecycleHook) readTarget(body []byte, now time.Time) ([]Notice, error) {
	n := Notice{ID: pathTarget, Kind: KindScaleIn, Stands: true} // a hook may be prolonged
	if l.Timeout > 0 {
		n.Deadline = now.Add(l.Timeout)
	}
	switch state := strings.TrimSpace(string(body)); state {
	case "InService", "Standby", "Detached", "Warmed:Running":
		return nil, nil
	case "Terminated", "Warmed:Terminated":
		n.Reason = "EC2 Auto Scaling terminates the instance"
	case "Warmed:Stopped", "Warmed:Hibernated":
		n.Reason = "EC2 Auto Scaling puts the instance into the warm pool, without its local disks: " + state
	default:
		return nil, fmt.Errorf("read %s: state %.40q is not known", pathTarget, state)
	}
	return []Notice{n}, nil
}
