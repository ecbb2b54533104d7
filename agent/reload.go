package agent

import (
	"reflect"
	"slices"
)

// limits are the settings that may change while the agent runs: how it drains and what it takes.
type limits struct {
	Drain   Drain
	Receive Receive
}

// Reload takes over those settings of a new configuration that may change while the agent runs, also in the middle of a
// drain. It returns the sections that differ and were left alone: they need a restart.
func (a *Agent) Reload(cfg Config) (left []string) {
	now := &limits{cfg.Drain, cfg.Receive}
	if now.Receive.MaxStreams != a.file.Receive.MaxStreams {
		left = append(left, "receive.max_streams")
	}
	a.limits.Store(now)
	a.news.limitRate(int64(now.Drain.MaxBytesPerSecond))

	old, wanted := reflect.ValueOf(a.file), reflect.ValueOf(cfg)
	for i := range old.NumField() {
		key := old.Type().Field(i).Tag.Get("yaml")
		if key == "drain" || key == "receive" {
			continue
		}
		if !reflect.DeepEqual(old.Field(i).Interface(), wanted.Field(i).Interface()) {
			left = append(left, key)
		}
	}
	slices.Sort(left)
	return left
}
