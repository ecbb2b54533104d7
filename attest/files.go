package attest

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/lifeboat/lifeboat/certs"
)

// maxFile is far more than Google's keys take.
const maxFile = 1 << 20

func readFile(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("%s: more than %d bytes", file, maxFile)
	}
	return data, err
}

// certificates reads the certificates of PEM files, and of the *.pem, *.crt and *.cer files in directories.
func certificates(paths []string) (all []*x509.Certificate, err error) {
	for _, path := range paths {
		files := []string{path}
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			if files, err = below(path); err != nil {
				return nil, err
			}
		}
		for _, file := range files {
			some, err := certs.ReadCertificates(file)
			if err != nil {
				return nil, err
			}
			all = append(all, some...)
		}
	}
	if len(all) == 0 {
		return nil, errors.New("there is no certificate at all")
	}
	return all, nil
}

func below(dir string) (files []string, err error) {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if slices.Contains([]string{".pem", ".crt", ".cer"}, strings.ToLower(filepath.Ext(e.Name()))) {
			files = append(files, filepath.Join(dir, e.Name()))
		}
	}
	return files, err
}

// Check reads the files that the settings name, so that a fault in them shows before the first machine comes.
func (s Settings) Check() error {
	var errs []error
	if s.EC2.set() {
		_, err := s.EC2.signers()
		errs = append(errs, err)
	}
	if s.GCE.set() {
		_, err := s.GCE.keys()
		errs = append(errs, err)
	}
	if s.Azure.set() {
		_, err := s.Azure.chain()
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
