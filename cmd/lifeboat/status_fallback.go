package main

import (
	"github.com/lifeboat/lifeboat/api"
	"github.com/lifeboat/lifeboat/cmd/lifeboat/show"
)

// fallbackWords says how the fallback was when it was last tried.
func fallbackWords(f *api.Fallback) string {
	switch {
	case f.GetTried() == nil:
		return f.GetName() + ", not tried yet"
	case f.GetTrouble() != "":
		return f.GetName() + ", TAKES NOTHING for " + show.Age(f.GetSince()) + ": " + f.GetTrouble()
	case f.GetDoubt() != "":
		return f.GetName() + ", would take blocks, and MAY NOT OUTLIVE THIS MACHINE: " + f.GetDoubt()
	case f.RoomBytes != nil:
		return f.GetName() + ", would take blocks, with room for " + show.Size(f.GetRoomBytes()) + ", tried " + show.Age(f.GetTried()) + " ago"
	}
	return f.GetName() + ", would take blocks, tried " + show.Age(f.GetTried()) + " ago"
}

// fallbackJSON is the fallback, where blocks go that no peer takes, as of its last trial.
type fallbackJSON struct {
	Name    string   `json:"name"`
	Tried   *float64 `json:"tried_seconds"` // since the last trial; null: there was none yet
	Trouble string   `json:"trouble"`
	Since   *float64 `json:"since_seconds"` // how long it has worked, or has not
	Doubt   string   `json:"doubt"`         // why what it takes may not outlive this machine
	Room    *int64   `json:"room_bytes"`    // at the last trial; null: it does not tell, as a bucket
}

func fallbackToJSON(f *api.Fallback) *fallbackJSON {
	if f == nil {
		return nil
	}
	return &fallbackJSON{f.GetName(), api.Seconds(f.GetTried()), f.GetTrouble(), api.Seconds(f.GetSince()), f.GetDoubt(), f.RoomBytes}
}
