package agent

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"

	"github.com/lifeboat/lifeboat/migration/receiver"
)

// OfThisMachine lists the files that must not be in an image: this machine's identity, its journal, and what it holds for
// other nodes. The CA and the settings may be, since all machines share them. It is an error while the agent runs.
func (c Config) OfThisMachine() (paths []string, err error) {
	if conn, err := net.Dial("unix", c.Listen.Socket); err == nil {
		conn.Close()
		return nil, errors.New("the agent runs: stop it first: systemctl stop lifeboat-agent")
	}
	for _, name := range slices.Concat([]string{"machine", "incarnation", "peers.json", "tls", ofAnother}, ofOneMachine) {
		paths = append(paths, filepath.Join(c.DataDir, name))
	}
	for _, file := range []string{c.TLS.Cert, c.TLS.Key, c.Join.TokenFile} {
		if file != "" && filepath.Dir(file) != filepath.Join(c.DataDir, "tls") {
			paths = append(paths, file)
		}
	}
	paths = append(paths, receiver.VaultDir(c.DataDir))
	for _, dir := range c.Receive.Paths {
		paths = append(paths, filepath.Join(dir, "segments"))
	}
	return slices.DeleteFunc(paths, func(path string) bool {
		_, err := os.Lstat(path)
		return errors.Is(err, fs.ErrNotExist)
	}), nil
}
