package api

// AppJSON is an application that blocks belong to.
type AppJSON struct {
	App        string   `json:"app"`
	State      string   `json:"state"`
	Since      *float64 `json:"since_seconds"`
	Why        string   `json:"why"`
	Owner      string   `json:"owner"`
	Lease      *float64 `json:"lease_seconds"`
	LastBeat   *float64 `json:"last_beat_seconds"`
	Nodes      []string `json:"nodes"`
	NodesCount int64    `json:"nodes_count"`
	HeldBlocks int64    `json:"held_blocks"`
	HeldBytes  int64    `json:"held_bytes"`
	Holders    int64    `json:"holders"`
}

// AppToJSON is a as programs read it.
func AppToJSON(a *App) AppJSON {
	return AppJSON{
		App: a.GetApp(), State: a.GetState(), Since: Seconds(a.GetSince()), Why: a.GetWhy(), Owner: a.GetOwner(), Lease: Seconds(a.GetLease()),
		LastBeat: Seconds(a.GetLastBeat()), Nodes: append([]string{}, a.GetNodes()...), NodesCount: a.GetNodesCount(),
		HeldBlocks: a.GetHeldBlocks(), HeldBytes: a.GetHeldBytes(), Holders: a.GetHolders(),
	}
}
