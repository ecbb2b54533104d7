package config

import (
	"maps"
	"path/filepath"
	"slices"
)

// TLS is the section, of both daemons, with the files of the daemon's certificate.
type TLS struct {
	CA          string `yaml:"ca"`
	Cert        string `yaml:"cert"`
	Key         string `yaml:"key"`
	DevInsecure bool   `yaml:"dev_insecure"`
}

// Validate reports missing files, and with dev_insecure those of addresses, by their keys, that are not loopback: there a caller can have
// any identity.
func (t TLS) Validate(report Report, addresses map[string]string) {
	if t.DevInsecure {
		for _, key := range slices.Sorted(maps.Keys(addresses)) {
			addr := addresses[key]
			if _, _, is := split(addr, 0); is && !Loopback(addr) { // what is no address has been said
				report(key, addr, "must be a loopback address while tls.dev_insecure is true", "use 127.0.0.1, or certificates: lifeboat tls init")
			}
		}
		if t.CA+t.Cert+t.Key != "" {
			report("tls.dev_insecure", true, "cannot stand beside certificates", "remove it, or ca, cert and key")
		}
		return
	}
	for _, f := range []struct{ key, value string }{{"tls.ca", t.CA}, {"tls.cert", t.Cert}, {"tls.key", t.Key}} {
		if f.value == "" {
			report(f.key, nil, "must name a file", "make one with lifeboat tls init and lifeboat tls issue")
		}
	}
}

// In returns t with file names that are relative to dir.
func (t TLS) In(dir string) TLS {
	t.CA, t.Cert, t.Key = In(dir, t.CA), In(dir, t.Cert), In(dir, t.Key)
	return t
}

// In returns file relative to dir. An absolute or an empty name stays as it is.
func In(dir, file string) string {
	if file == "" || filepath.IsAbs(file) {
		return file
	}
	return filepath.Join(dir, file)
}
