package agent

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/lifeboat/lifeboat/durable"
)

// ofOneMachine are the files of a data directory that are about the machine, and not about what it holds for others.
var ofOneMachine = []string{"incarnation", "incident.json", "incidents", "evacuations", "workloads.json"}

// moveIn sees to it that what the data directory says of a machine was said of this one. Images are made of disks that an
// agent has run on: a clone must be a node of its own, and not go on with another's end. The blocks stay, for the bytes are
// here. here is empty where a machine cannot be told from others.
func moveIn(dir, here string, log *slog.Logger) error {
	file := filepath.Join(dir, "machine")
	b, err := os.ReadFile(file)
	was := strings.TrimSpace(string(b))
	switch {
	case here == "" || was == here:
		return nil
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return fmt.Errorf("read which machine data_dir is of: %w", err)
	case kindOf(was) != kindOf(here): // not comparable: this one was not readable then, or is not now
		return nil
	default:
		log.Warn("data_dir comes from another machine: this one is a node of its own, and keeps but the blocks", "data_dir", dir)
		for _, name := range ofOneMachine {
			if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
				return fmt.Errorf("forget another machine: %w", err)
			}
		}
	}
	if err := durable.WriteFile(file, []byte(here+"\n")); err != nil {
		log.Warn("a clone of this disk would be taken for this machine", "err", err) // a full disk keeps no agent from its work
	}
	return nil
}

func kindOf(machine string) string {
	kind, _, _ := strings.Cut(machine, " ")
	return kind
}

// thisMachine tells this machine from its clones. Clouds give each machine a product UUID of its own; where there is none,
// and in a container, which sees that of its host, systemd's machine-id must do: images that are to be cloned have an empty
// one (machine-id(5), which also asks for the hash: the id itself is nobody else's to know).
func thisMachine() string {
	_, err := os.Stat("/run/systemd/container")
	if id := readID("/sys/class/dmi/id/product_uuid"); id != "" && errors.Is(err, fs.ErrNotExist) {
		return "product " + id
	}
	if id := readID("/etc/machine-id"); id != "" {
		return "machine-id " + id
	}
	return ""
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

// incarnation is made once for a data directory: a machine that comes back without it is another machine.
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
