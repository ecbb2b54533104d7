package agent

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/lifeboat/lifeboat/durable"
)

// ofOneMachine are the files of a data directory that are about the machine, and not about the blocks that it holds for
// others.
var ofOneMachine = []string{"incident.json", "incidents", "evacuations", "workloads.json", valuesFile}

// ofAnother is where a clone puts the identity of the machine that its disk was copied from.
const ofAnother = "of-another-machine"

// machine holds the marks that tell a machine from its clones, as far as they are known, the best first. Key is the checksum
// of the public key of its newest certificate (keySum).
type machine struct {
	Instance string `json:"instance,omitempty"` // as its cloud calls it
	Product  string `json:"product,omitempty"`  // UUID, of the firmware
	ID       string `json:"machine_id,omitempty"`
	Key      string `json:"key,omitempty"`
}

// isAnother compares the best mark that both have. If they have none in common they count as one machine.
func (m machine) isAnother(here machine) bool {
	for _, pair := range [][2]string{{m.Instance, here.Instance}, {m.Product, here.Product}, {m.ID, here.ID}} {
		if pair[0] != "" && pair[1] != "" {
			return pair[0] != pair[1]
		}
	}
	return false
}

// with returns the marks of m, and those of was for what m lacks.
func (m machine) with(was machine) machine {
	return machine{cmp.Or(m.Instance, was.Instance), cmp.Or(m.Product, was.Product), cmp.Or(m.ID, was.ID), cmp.Or(m.Key, was.Key)}
}

func machineFile(dir string) string { return filepath.Join(dir, "machine") }

// readMachine reads which machine a data directory belongs to.
func readMachine(dir string) (was machine, err error) {
	b, err := os.ReadFile(machineFile(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return machine{}, nil
	}
	if err != nil {
		return machine{}, fmt.Errorf("read which machine data_dir is of: %w", err)
	}
	if err := json.Unmarshal(b, &was); err != nil {
		return machine{}, fmt.Errorf("read which machine data_dir is of: %s: %w: remove it", machineFile(dir), err)
	}
	return was, nil
}

// write records that the data directory is this machine's. A failure, as on a full disk, is only logged.
func (m machine) write(dir string, log *slog.Logger) {
	data, err := json.Marshal(m)
	if err == nil {
		err = durable.WriteFile(machineFile(dir), append(data, '\n'))
	}
	if err != nil {
		log.Warn("cannot write whose data_dir this is: a clone of this disk would be taken for this machine", "err", err)
	}
}

// moveIn claims the data directory for this machine. Images are made of disks that an agent has run on, so the directory may
// be another machine's. A clone must be a node of its own: it must not resume the other's incident, or join under its name.
// The blocks stay, for their bytes are here.
func (c Config) moveIn(here machine, log *slog.Logger) (machine, error) {
	was, err := readMachine(c.DataDir)
	if err != nil {
		return machine{}, err
	}
	if !was.isAnother(here) {
		now := here.with(was)
		if now != was {
			now.write(c.DataDir, log)
		}
		return now, nil
	}
	if err := c.mayBeClone(was); err != nil {
		return machine{}, err
	}
	return here, c.forgetOther(here, log)
}

// StartAnew forgets the other machine if data_dir comes from one, and reports whether it did. An agent that may join does
// this by itself; StartAnew is for people who run lifeboat join on a copy by hand.
func (c Config) StartAnew(ctx context.Context, log *slog.Logger) (bool, error) {
	was, err := readMachine(c.DataDir)
	if err != nil || was == (machine{}) {
		return false, err
	}
	here := c.thisMachine(ctx, nil, slog.New(slog.DiscardHandler))
	if !was.isAnother(here) {
		return false, nil
	}
	return true, c.forgetOther(here, log)
}

// forgetOther makes the data directory this machine's, and puts the other machine's certificate aside.
func (c Config) forgetOther(here machine, log *slog.Logger) error {
	log.Warn("data_dir comes from another machine: this one becomes a node of its own, and keeps only the blocks", "data_dir", c.DataDir)
	aside := filepath.Join(c.DataDir, ofAnother)
	err := errors.Join(os.RemoveAll(aside), os.Mkdir(aside, 0o700))
	for _, name := range []string{"incarnation", "tls"} {
		if gone := os.Rename(filepath.Join(c.DataDir, name), filepath.Join(aside, name)); !errors.Is(gone, fs.ErrNotExist) {
			err = errors.Join(err, gone)
		}
	}
	for _, name := range ofOneMachine {
		err = errors.Join(err, os.RemoveAll(filepath.Join(c.DataDir, name)))
	}
	if err != nil {
		return fmt.Errorf("forget another machine: %w", err)
	}
	here.write(c.DataDir, log) // before it joins, so that the certificate it gets is its own
	return nil
}

// ErrAnothers says that this machine is a copy of another one, and must not start with its certificate.
var ErrAnothers = errors.New("this machine's disk was copied from another machine, whose certificate it has")

// mayBeClone says why this copy of another machine cannot become a node of its own: it has no way to a certificate.
func (c Config) mayBeClone(was machine) error {
	if c.Join.set() || c.TLS.DevInsecure {
		return nil
	}
	remedy := "give it one of its own, set join, or run lifeboat join: lifeboat generalize, before the copy is made, does away with this. If it is that machine still, remove " + machineFile(c.DataDir)
	if c.TLS == ownTLS(c.DataDir) {
		return fmt.Errorf("%w (%s): %s", ErrAnothers, c.TLS.Cert, remedy)
	}
	if id, err := c.Identity(); err == nil && keySum(id) == was.Key {
		return fmt.Errorf("%w (%s): %s", ErrAnothers, c.TLS.Cert, remedy)
	}
	return nil
}

// thisMachine finds the marks that tell this machine from its clones. The cloud's instance id is the best, and the product
// UUID that clouds give each machine is next. In a container that is the host's, so there, and where neither exists,
// systemd's machine-id must do: images that are to be cloned have an empty one (machine-id(5), which also asks for the hash:
// the id itself is to stay confidential).
func (c Config) thisMachine(ctx context.Context, dial Dialer, log *slog.Logger) (m machine) {
	ctx, cancel := context.WithTimeout(ctx, cloudTimeout)
	defer cancel()
	// An error here is ignored: the agent meets it again, and logs it, when it opens its sources.
	if cloud, err := c.Cloud.Open(log, dial, nil); err == nil && cloud != nil {
		if i, err := cloud.Instance(ctx); err == nil && i.ID != "" {
			m.Instance = c.Cloud.Resolve() + ":" + i.ID
		}
	}
	if _, err := os.Stat("/run/systemd/container"); errors.Is(err, fs.ErrNotExist) {
		m.Product = readID("/sys/class/dmi/id/product_uuid")
	}
	m.ID = readID("/etc/machine-id")
	return m
}

func readID(file string) string {
	b, err := os.ReadFile(file)
	id := strings.TrimSpace(string(b))
	if err != nil || id == "" || id == "uninitialized" {
		return ""
	}
	h := hmac.New(sha256.New, []byte(id))
	h.Write([]byte("lifeboat"))
	return hex.EncodeToString(h.Sum(nil))
}

// incarnation is a random id, made once for a data directory: a machine that comes back without it counts as another
// machine.
func incarnation(dataDir string) (string, error) {
	p := filepath.Join(dataDir, "incarnation")
	b, err := os.ReadFile(p)
	if err == nil {
		return strings.TrimSpace(string(b)), nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read incarnation: %w", err)
	}
	var id [16]byte
	rand.Read(id[:])
	s := hex.EncodeToString(id[:])
	if err := durable.WriteFile(p, []byte(s+"\n")); err != nil {
		return "", fmt.Errorf("write incarnation: %w", err)
	}
	return s, nil
}
