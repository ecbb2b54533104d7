// Package units holds what the service manager is told about the daemons, as the packages ship it and as `lifeboat
// service install` writes it: the units, the user, the directories, and how long logind lets a shutdown wait. It is text,
// it knows nothing of the daemons, and it starts nothing.
package units

import (
	"embed"
	"fmt"
)

//go:embed *.service *.conf
var files embed.FS

// Binary is where the units expect the program.
const Binary = "/usr/bin/lifeboat"

// Daemons are those that have a unit, each as its verb is called.
func Daemons() []string { return []string{"agent", "coordinator", "sidecar"} }

// Name is the name of a daemon's unit without its suffix.
func Name(daemon string) string { return "lifeboat-" + daemon }

// Service is the text of a daemon's unit.
func Service(daemon string) (string, error) {
	text, err := files.ReadFile(Name(daemon) + ".service")
	if err != nil {
		return "", fmt.Errorf("there is no unit for %q", daemon)
	}
	return string(text), nil
}

// Surrounding is what the units rely on: the text of each file, and the path below /etc under which systemd finds it.
// A package has them below /usr/lib.
func Surrounding() (map[string]string, error) {
	found := map[string]string{}
	for path, name := range map[string]string{
		"sysusers.d/lifeboat.conf":               "sysusers.conf",
		"tmpfiles.d/lifeboat.conf":               "tmpfiles.conf",
		"systemd/logind.conf.d/50-lifeboat.conf": "logind.conf",
	} {
		text, err := files.ReadFile(name)
		if err != nil {
			return nil, err
		}
		found[path] = string(text)
	}
	return found, nil
}
