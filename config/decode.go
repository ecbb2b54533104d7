package config

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
)

var (
	durationType = reflect.TypeFor[time.Duration]()
	bytesType    = reflect.TypeFor[Bytes]()
)

// decoder puts a tree into a struct, and goes on after a fault, so that it finds all faults.
type decoder struct {
	faults  *Faults
	root    reflect.Type
	strange int // keys that the struct does not have, maps where it has a text, and other values where it has a section
}

func (d *decoder) fault(n *node, key, bound, remedy string) {
	value := any(nil)
	if n.kind == text || n.kind == number || n.kind == boolean {
		value = n.scalar
	}
	*d.faults = append(*d.faults, Fault{File: n.file, Line: n.line, Key: key, Value: Show(value), Bound: bound, Remedy: remedy})
}

func (d *decoder) decode(key string, n *node, into reflect.Value) {
	if n.kind == broken {
		return
	}
	switch t := into.Type(); {
	case t == durationType:
		d.duration(key, n, into)
	case t == bytesType:
		d.bytes(key, n, into)
	case t.Kind() == reflect.Struct:
		if d.want(key, n, mapping, "a map of keys") {
			d.fields(key, n, into)
		} else if n.kind != empty {
			d.strange++
		}
	case t.Kind() == reflect.Map && t.Key().Kind() == reflect.String:
		if d.want(key, n, mapping, "a map of keys") {
			d.words(key, n, into)
		}
	case t.Kind() == reflect.Slice:
		if n.kind == text && t.Elem().Kind() == reflect.String {
			d.fault(n, key, "must be a list, is text", "write ["+Show(n.scalar)+"]")
			return
		}
		if !d.want(key, n, list, "a list") {
			return
		}
		into.SetZero() // an empty list becomes nil, not an empty slice
		into.Grow(len(n.items))
		into.SetLen(len(n.items))
		before := d.strange
		for i, v := range n.items {
			d.decode(item(key, i), v, into.Index(i))
		}
		d.strange = min(d.strange, before+1) // the same mistake in each item counts once
	case t.Kind() == reflect.String:
		switch n.kind {
		case number, boolean:
			d.fault(n, key, "must be text", "put it into quotes")
		default:
			if d.want(key, n, text, "text") {
				into.SetString(n.scalar)
			} else if n.kind == mapping {
				d.strange++
			}
		}
	case t.Kind() == reflect.Bool:
		if d.want(key, n, boolean, "true or false") {
			b, _ := strconv.ParseBool(n.scalar)
			into.SetBool(b)
		}
	case into.CanInt():
		d.integer(key, n, into)
	default:
		panic(fmt.Sprintf("config: %s: settings of type %s are not for files", key, t))
	}
}

// want checks the kind of a node and reports what it should be. A map or a list whose lines are all commented out is
// as good as absent.
func (d *decoder) want(key string, n *node, k kind, words string) bool {
	switch {
	case n.kind == k:
		return true
	case n.kind != empty:
		d.fault(n, key, "must be "+words+", is "+article(n.kind), "")
	case k != mapping && k != list:
		d.fault(n, key, "has no value, must be "+words, "give one or remove the key")
	}
	return false
}

func (d *decoder) fields(parent string, n *node, into reflect.Value) {
	for _, e := range n.entries {
		field, ok := fieldFor(into, e.key)
		if !ok {
			d.strange++
			at := &node{file: e.file, line: e.line}
			d.fault(at, child(parent, e.key), "unknown key", d.suggest(parent, e.key, into.Type()))
			continue
		}
		at := *e.value
		at.file, at.line = e.file, e.line // report faults at the key's line, also if the value is on the next one
		d.decode(child(parent, e.key), &at, field)
	}
}

// words decodes a map whose keys the user chooses. Validate says which keys are allowed.
func (d *decoder) words(parent string, n *node, into reflect.Value) {
	t := into.Type()
	into.Set(reflect.MakeMapWithSize(t, len(n.entries)))
	for _, e := range n.entries {
		at := *e.value
		at.file, at.line = e.file, e.line
		value := reflect.New(t.Elem()).Elem()
		d.decode(child(parent, e.key), &at, value)
		into.SetMapIndex(reflect.ValueOf(e.key).Convert(t.Key()), value)
	}
}

func fieldFor(v reflect.Value, key string) (reflect.Value, bool) {
	for f, fv := range v.Fields() {
		if key != "" && name(f) == key {
			return fv, true
		}
	}
	return reflect.Value{}, false
}

// name is the key of a field; "": files cannot set it.
func name(f reflect.StructField) string {
	key, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
	if key == "-" || !f.IsExported() {
		return ""
	}
	return key
}

func (d *decoder) integer(key string, n *node, into reflect.Value) {
	if n.kind != text && n.kind != number {
		d.want(key, n, number, "a whole number")
		return
	}
	v, err := strconv.ParseInt(n.scalar, 10, into.Type().Bits())
	switch {
	case errors.Is(err, strconv.ErrRange): // which YAML reads as text
		d.fault(n, key, "must be a whole number that fits", "write a smaller one")
	case err != nil:
		d.fault(n, key, "must be a whole number", "write it in decimal digits")
	case n.kind == text:
		d.fault(n, key, "must be a whole number, is text", "write it without quotes")
	default:
		into.SetInt(v)
	}
}

func (d *decoder) duration(key string, n *node, into reflect.Value) {
	if n.kind == text || n.kind == number && n.scalar == "0" {
		if v, err := time.ParseDuration(n.scalar); err == nil {
			into.SetInt(int64(v))
			return
		}
	}
	if n.kind == mapping || n.kind == list || n.kind == empty {
		d.want(key, n, text, "a duration such as 90s")
		return
	}
	d.fault(n, key, "must be a duration", "write it with its unit: 90s, 5m, 1h30m")
}

func (d *decoder) bytes(key string, n *node, into reflect.Value) {
	if n.kind != text && n.kind != number {
		d.want(key, n, text, "a size such as 64MiB")
		return
	}
	v, err := ParseBytes(n.scalar)
	if err != nil {
		d.fault(n, key, "must be a size: "+err.Error(), "write bytes, or a whole number with its unit: 64MiB, 10GB")
		return
	}
	into.SetInt(int64(v))
}
