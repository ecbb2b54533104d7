// Package config reads a daemon's settings: one strict YAML file, and two directories of further files beside it.
//
// It refuses what it does not understand, and reports all faults at once, each with its file, its line, the
// value, the bound and the remedy. It knows no daemon's keys: a Config struct with yaml tags brings those, with its
// defaults filled in before Load and its bounds in Validate. It reads no environment, watches no file and writes none.
//
// The YAML is plain: maps, lists and scalars. Anchors, aliases, tags and several documents in one file are
// refused, so that a line means what it says and no short file can unfold into a huge one.
package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
)

// Validator is a struct of settings. Validate reports every value out of its bounds under its key, such as
// "stores[1].paths". A nil value leaves the value out of the message.
type Validator interface {
	Validate(report func(key string, value any, bound, remedy string))
}

// Load reads the file at path, NAME.yaml, and merges further files into it: first conf.d/*.yaml beside it, which are for all daemons with
// settings in that directory, then NAME.d/*.yaml, which are for this daemon alone, each in lexical order. Maps merge; lists and scalars
// replace. It decodes the result into into, a pointer to a struct that has the defaults. The error is a *Faults unless a file
// could not be read. After an error, into must not be used.
func Load(path string, into Validator) error {
	r, err := read(path)
	if err != nil {
		return err
	}
	d := decoder{faults: &r.faults, root: reflect.TypeOf(into).Elem()}
	d.decode("", r.merged, reflect.ValueOf(into).Elem())
	if r.whole { // else keys of the files that could not be parsed would be reported as missing
		validate(into.Validate, r.merged, &r.faults)
	}
	return r.faults.sorted(r.files)
}

// Further runs another check on settings that Load has accepted, and returns its faults like Load, with their files and lines.
func Further(path string, check func(report Report)) error {
	r, err := read(path)
	if err != nil {
		return err
	}
	validate(check, r.merged, &r.faults)
	return r.faults.sorted(r.files)
}

// Strange counts the keys and sections of the settings at path that the struct behind into has no place for. It is for telling one daemon's
// file from another's. A file that cannot be read has none. Afterwards into must not be used.
func Strange(path string, into any) int {
	r, err := read(path)
	if err != nil {
		return 0
	}
	d := decoder{faults: &r.faults, root: reflect.TypeOf(into).Elem()}
	d.decode("", r.merged, reflect.ValueOf(into).Elem())
	return d.strange
}

// reading is what was found in the files of one daemon's settings.
type reading struct {
	files  []string
	merged *node
	faults Faults
	whole  bool // every file is YAML

	replaced []string // remarks on lists that a list of a later file replaces
}

func read(path string) (*reading, error) {
	files, err := sources(path)
	if err != nil {
		return nil, err
	}
	r := &reading{files: files, merged: &node{kind: mapping, file: path}, whole: true}
	for _, file := range files {
		data, err := readFile(file)
		if err != nil {
			return nil, fmt.Errorf("read config: %w", err)
		}
		tree, bad := parse(file, bytes.TrimPrefix(data, []byte("\ufeff"))) // what some editors begin a text with, and YAML 1.2 allows (5.2)
		r.faults = append(r.faults, bad...)
		if tree == nil {
			r.whole = false
			continue
		}
		r.replaced = append(r.replaced, replaced("", r.merged, tree)...)
		r.merged = merge(r.merged, tree)
	}
	return r, nil
}

// validate collects what check reports, with the line of the key or of the nearest section around it. It drops reports on keys that could
// not be decoded: they have a fault already, and the value that check sees is the default and not the user's.
func validate(check func(Report), tree *node, faults *Faults) {
	undecoded := slices.Clone(*faults)
	check(func(key string, value any, bound, remedy string) {
		for _, f := range undecoded {
			if within(key, f.Key) || within(f.Key, key) {
				return
			}
		}
		file, line := tree.place(key)
		*faults = append(*faults, Fault{File: file, Line: line, Key: key, Value: Show(value), Bound: bound, Remedy: remedy})
	})
}

// besides are the two directories whose files are merged into a settings file.
func besides(path string) []string {
	own := strings.TrimSuffix(filepath.Base(path), filepath.Ext(path)) + ".d"
	dirs := []string{filepath.Join(filepath.Dir(path), "conf.d"), filepath.Join(filepath.Dir(path), own)}
	return slices.Compact(dirs) // for conf.yaml both are conf.d
}

// Overlooked are files that were probably meant to be merged into the one at path and are not, because they end in .yml or .YAML.
func Overlooked(path string) (files []string) {
	for _, dir := range besides(path) {
		entries, _ := os.ReadDir(dir) // Load says why it cannot be read
		for _, e := range entries {
			if ext := filepath.Ext(e.Name()); e.Name()[0] != '.' && (strings.EqualFold(ext, ".yml") || strings.EqualFold(ext, ".yaml") && ext != ".yaml") {
				files = append(files, filepath.Join(dir, e.Name()))
			}
		}
	}
	return files
}

// Replaced says which lists of the settings at path do not count because a file that is merged later has another list there. Somebody who adds
// a store in a file of its own may expect to have one more, and not only that one.
func Replaced(path string) []string {
	r, err := read(path)
	if err != nil {
		return nil // Load says why
	}
	return r.replaced
}

func sources(path string) ([]string, error) {
	files := []string{path}
	for _, dir := range besides(path) {
		entries, err := os.ReadDir(dir) // in lexical order
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("read config: %w", err)
		}
		for _, e := range entries {
			// Like a shell's *.yaml it leaves out names with a leading dot, which are editors' files.
			if filepath.Ext(e.Name()) == ".yaml" && e.Name()[0] != '.' {
				files = append(files, filepath.Join(dir, e.Name()))
			}
		}
	}
	return files, nil
}

// maxFile bounds a settings file. The largest sane one has a few kilobytes, and the parser's time grows with the square of the
// nesting: 16 KB of "[" take it half a second.
const maxFile = 64 << 10

func readFile(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("%s: more than %s: not a file of settings", file, Bytes(maxFile))
	}
	return data, nil
}
