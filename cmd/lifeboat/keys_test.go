package main

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lifeboat/lifeboat/api"
)

// shapes are the headings of docs/scripting.md under which the keys of a shape are.
var shapes = map[reflect.Type]string{
	reflect.TypeFor[api.NodeJSON]():       "`nodes`, `node NAME`",
	reflect.TypeFor[agentJSON]():          "`status` on a machine: of the agent or the sidecar",
	reflect.TypeFor[coordinatorJSON]():    "`status --coordinator`: of a coordinator",
	reflect.TypeFor[simulationJSON]():     "`simulate KIND`",
	reflect.TypeFor[*api.NoticeJSON]():    "A notice",
	reflect.TypeFor[*api.DrainJSON]():     "A drain",
	reflect.TypeFor[*api.ManifestJSON]():  "A manifest",
	reflect.TypeFor[api.CountsJSON]():     "Counts",
	reflect.TypeFor[[]api.DiskJSON]():     "A disk",
	reflect.TypeFor[[]api.WorkloadJSON](): "A workload",
	reflect.TypeFor[[]api.StoreJSON]():    "A store",
	reflect.TypeFor[*hostsJSON]():         "The host files",
	reflect.TypeFor[api.EntryJSON]():      "`manifest`: one of its `entries`",
	reflect.TypeFor[api.LocationJSON]():   "`locate ID`",
	reflect.TypeFor[api.BlockJSON]():      "`blocks`",
	reflect.TypeFor[api.EventJSON]():      "`events`",
	reflect.TypeFor[api.AuditJSON]():      "`audit`",
	reflect.TypeFor[api.AppJSON]():        "`apps`",
	reflect.TypeFor[shuffleJSON]():        "`shuffles`",
	reflect.TypeFor[together]():           "`nodes --room`",
	reflect.TypeFor[incidentJSON]():       "`decommission --self`",
	reflect.TypeFor[cancelledJSON]():      "`cancel`",
	reflect.TypeFor[refreshJSON]():        "`refresh-nodes`",
	reflect.TypeFor[forgottenJSON]():      "`forget`",
	reflect.TypeFor[releasedJSON]():       "`brake release`",
	reflect.TypeFor[createdJSON]():        "`token create`, `token list`",
	reflect.TypeFor[revokedJSON]():        "`revoke`",
	reflect.TypeFor[checked]():            "`config check`",
	reflect.TypeFor[finding]():            "`doctor`",
	reflect.TypeFor[devResult]():          "`dev`",
	reflect.TypeFor[build]():              "`version`",
}

// keysOf are the keys of a shape, those of what it consists of behind a dot, except what has a heading of its own.
func keysOf(shape reflect.Type, prefix string) (keys []string) {
	for shape.Kind() == reflect.Pointer || shape.Kind() == reflect.Slice {
		shape = shape.Elem()
	}
	for f := range shape.Fields() {
		if f.Anonymous {
			keys = append(keys, keysOf(f.Type, prefix)...)
			continue
		}
		if f.Tag.Get("json") == "" {
			continue // it is not printed
		}
		key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		is := f.Type
		if is.Kind() == reflect.Pointer {
			is = is.Elem()
		}
		list := ""
		if is.Kind() == reflect.Slice {
			is, list = is.Elem(), "[]"
		}
		if _, apart := shapes[f.Type]; apart || is.Kind() != reflect.Struct || is == reflect.TypeFor[time.Time]() {
			keys = append(keys, prefix+key)
			continue
		}
		keys = append(keys, keysOf(is, prefix+key+list+".")...)
	}
	return keys
}

// docs/scripting.md has each key of what these verbs print as JSON, and no other.
func TestKeysAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/scripting.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]string{}
	for s := range strings.SplitSeq(string(text), "\n### ") {
		heading, body, _ := strings.Cut(s, "\n")
		sections[heading] = body
	}
	row, name := regexp.MustCompile("(?m)^\\| (`[^|]*) \\|"), regexp.MustCompile("`([^`]*)`")
	for shape, heading := range shapes {
		var told []string
		for _, r := range row.FindAllStringSubmatch(sections[heading], -1) {
			for _, n := range name.FindAllStringSubmatch(r[1], -1) {
				told = append(told, n[1])
			}
		}
		has := keysOf(shape, "")
		for _, key := range has {
			if !slices.Contains(told, key) {
				t.Errorf("docs/scripting.md, %s: has no %s", heading, key)
			}
		}
		for _, key := range told {
			if !slices.Contains(has, key) {
				t.Errorf("docs/scripting.md, %s: has %s, which is no key", heading, key)
			}
		}
	}
}
