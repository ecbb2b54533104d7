package registry

import (
	"slices"
	"time"

	"github.com/lifeboat/lifeboat/api"
	"google.golang.org/protobuf/proto"
)

const (
	// keptManifests and keptBytes bound the manifests of the fleet, in number and on the coordinators' disks; the newest stay. 20,000 moved
	// blocks take 2 MB, and one node cannot drive out those of all others.
	keptManifests = 4096
	keptBytes     = 2 * MaxManifest

	// MaxEntries bounds the entries of one manifest, and of all manifests of one node together.
	MaxEntries = 8 << 20
	// MaxManifest bounds the bytes likewise. MaxEntries entries with names of usual length take less.
	MaxManifest = 4 << 30
)

// ManifestRef is the durable part of a manifest; the entries are in the file that it names.
type ManifestRef struct {
	File        string    `json:"file"`
	Node        string    `json:"node"`
	Incarnation string    `json:"incarnation"`
	Incident    string    `json:"incident"`
	At          time.Time `json:"at"`
	Summary     []byte    `json:"summary"` // api.ManifestSummary
	Moved       int64     `json:"moved"`
	Lost        int64     `json:"lost"`
	Skipped     int64     `json:"skipped"`
	Bytes       int64     `json:"bytes,omitempty"`
	Finished    time.Time `json:"finished,omitzero"` // when the drain ended, by the node's clock
}

// inTime reports whether the manifest is of decommission d, and its drain ended by d's deadline.
func (r *ManifestRef) inTime(d *Decommission) bool {
	own := d.Notice == nil || d.Notice.Incident == r.Incident
	return own && !r.rehearsed() && !r.Finished.IsZero() && !r.Finished.After(d.Deadline())
}

// keep adds a manifest. A repeated goodbye replaces the manifest of the first. So does the account of a machine that came back in between and
// left again: what the earlier one names as lost must not count again once another machine has the name.
func (m *Registry) keep(ref *ManifestRef) {
	kept := make([]*ManifestRef, 0, len(m.Manifests)+1)
	for _, r := range m.Manifests {
		same := r.Node == ref.Node && r.Incarnation == ref.Incarnation
		if !same || r.Incident != ref.Incident && (ref.rehearsed() || m.InForce(r)) {
			kept = append(kept, r)
		}
	}
	kept = append(kept, ref)
	kept = withinMost(kept, ref.Node)
	first, bytes := len(kept)-1, ref.Bytes
	for first > 0 && len(kept)-first < keptManifests && bytes+kept[first-1].Bytes <= keptBytes {
		first--
		bytes += kept[first].Bytes
	}
	m.Manifests = kept[first:]
}

// withinMost drops the oldest manifests of a node as soon as all of its manifests have more bytes, on the coordinators' disks, or more
// entries, in their memory, than one manifest may have.
func withinMost(all []*ManifestRef, node string) []*ManifestRef {
	var bytes, entries int64
	for i, r := range slices.Backward(all) {
		if r.Node != node {
			continue
		}
		bytes += r.Bytes
		entries += min(r.Moved, MaxEntries) + min(r.Lost, MaxEntries) + min(r.Skipped, MaxEntries)
		if i < len(all)-1 && (bytes > MaxManifest || entries > MaxEntries) {
			all = slices.Delete(all, i, i+1)
		}
	}
	return all
}

// InForce reports whether blocks that a manifest names as lost are still lost. A node that came back under its incarnation brought its
// blocks along, also if it was forgotten meanwhile, and a node that rehearsed never went.
func (m *Registry) InForce(ref *ManifestRef) bool {
	n, ok := m.Nodes[ref.Node]
	back := ok && n.Incarnation == ref.Incarnation && (!n.ReturnedAt.Before(ref.At) || n.Began.After(ref.At))
	return !back && !ref.rehearsed()
}

// Account decodes the summary. It is nil if the bytes are none, which only a damaged log can bring about.
func (r *ManifestRef) Account() *api.ManifestSummary {
	s := new(api.ManifestSummary)
	if proto.Unmarshal(r.Summary, s) != nil {
		return nil
	}
	return s
}

func (r *ManifestRef) rehearsed() bool { return r.Account().GetSource() == Pretended }
