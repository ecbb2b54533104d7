package api

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// ScheduleJSON is a maintenance schedule as Mesos's master takes and gives it (mesos/maintenance/maintenance.proto).
type ScheduleJSON struct {
	All []WindowJSON `json:"windows"`
}

// WindowJSON is one of its windows.
type WindowJSON struct {
	MachineIDs     []MachineJSON       `json:"machine_ids"`
	Unavailability *UnavailabilityJSON `json:"unavailability"` // nil: it was left out
}

// MachineJSON is a machine.
type MachineJSON struct {
	Hostname string `json:"hostname,omitempty"`
	IP       string `json:"ip,omitempty"`
}

// UnavailabilityJSON is a span of time. No duration means that nobody says how long it lasts.
type UnavailabilityJSON struct {
	Start    *NanosJSON `json:"start"` // nil: it was left out
	Duration *NanosJSON `json:"duration,omitempty"`
}

// NanosJSON is an instant, since 1970, or a span.
type NanosJSON struct {
	Nanoseconds *nanos `json:"nanoseconds"` // nil: it was left out
}

// nanos is a number of 64 bits. It is read from a JSON number, which may be written as floats are, or from a string: protobuf's JSON
// writes 64-bit integers as strings.
type nanos int64

func (n *nanos) UnmarshalJSON(b []byte) error {
	text := string(b)
	if len(b) > 0 && b[0] == '"' {
		if err := json.Unmarshal(b, &text); err != nil {
			return err
		}
	}
	v, err := strconv.ParseInt(text, 10, 64)
	if f, is := strconv.ParseFloat(text, 64); err != nil && is == nil && f == math.Trunc(f) && math.Abs(f) < 1<<63 { // 1.4438304e+18
		v, err = int64(f), nil
	}
	if err != nil {
		return fmt.Errorf("nanoseconds: %s is no whole number of 64 bits", b)
	}
	*n = nanos(v)
	return nil
}

// FromJSON reads JSON that was written for this fleet: unknown keys are errors, and so is anything after the value. An error
// says at which line and column, and names none of Go's types.
func FromJSON(body []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(body))
	err := d.Decode(into)
	if _, more := d.Token(); err == nil && !errors.Is(more, io.EOF) {
		return fmt.Errorf("something follows the JSON%s", placeIn(body, d.InputOffset()))
	}
	if errors.Is(err, io.EOF) {
		return errors.New("there is no JSON in it")
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("the JSON breaks off%s", placeIn(body, int64(len(body))))
	}
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("%w%s", err, placeIn(body, e.Offset))
	}
	want := map[reflect.Kind]string{reflect.Slice: "an array", reflect.Struct: "an object"}
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("%s: want %s, got %s%s", cmp.Or(e.Field, "the whole"), cmp.Or(want[e.Type.Kind()], e.Type.Kind().String()), e.Value, placeIn(body, e.Offset))
	}
	is := reflect.TypeOf(into).Elem()
	if err == nil && bytes.Equal(bytes.TrimSpace(body), []byte("null")) { // what jq makes of a misspelt key; a schedule without windows cancels the one before
		return fmt.Errorf("the whole: want %s, got null", want[is.Kind()])
	}
	d = json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	return cmp.Or(misfit(body, d, is), err)
}

// misfit looks in JSON for a key that a type has no field for, and for a value that its type does not take. json's own errors for these
// say no place.
func misfit(body []byte, d *json.Decoder, of reflect.Type) error {
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	begin, _ := d.Token()
	switch bracket, _ := begin.(json.Delim); {
	case bracket == '[' && of.Kind() == reflect.Slice:
		for d.More() {
			if err := misfit(body, d, of.Elem()); err != nil {
				return err
			}
		}
	case bracket == '{' && of.Kind() == reflect.Struct:
		for d.More() {
			key, _ := d.Token()
			fields := reflect.VisibleFields(of)
			i := slices.IndexFunc(fields, func(f reflect.StructField) bool {
				name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
				return strings.EqualFold(name, key.(string))
			})
			if i < 0 {
				return fmt.Errorf("unknown field %q%s", key, placeIn(body, d.InputOffset()))
			}
			if err := misfit(body, d, fields[i].Type); err != nil {
				return err
			}
		}
	case bracket != 0:
		return fmt.Errorf("%s stands where a value of another kind belongs%s", bracket, placeIn(body, d.InputOffset()))
	default:
		text, _ := json.Marshal(begin)
		if err := json.Unmarshal(text, reflect.New(of).Interface()); err != nil {
			return fmt.Errorf("%w%s", err, placeIn(body, d.InputOffset()))
		}
		return nil
	}
	_, err := d.Token() // its end
	return err
}

func placeIn(body []byte, offset int64) string {
	before := body[:min(offset, int64(len(body)))]
	return fmt.Sprintf(", at line %d, column %d", bytes.Count(before, []byte("\n"))+1, len(before)-bytes.LastIndexByte(before, '\n'))
}

// MaintenanceJSON says how far the machines of the schedule are: Mesos's ClusterStatus. Where Mesos has the answers of frameworks,
// this has what the nodes of a machine did.
type MaintenanceJSON struct {
	Draining []DrainingMachineJSON `json:"draining_machines"`
	Down     []MachineJSON         `json:"down_machines"`
}

// DrainingMachineJSON is a machine with an appointment: the schedule has a window for it.
type DrainingMachineJSON struct {
	ID       MachineJSON         `json:"id"`
	Statuses []MachineStatusJSON `json:"statuses"`
}

// MachineStatusJSON is a node's answer to the appointment. ACCEPT: it has left and lost nothing; DECLINE: it has left and lost
// something, or its account is missing; UNKNOWN: it has not left.
type MachineStatusJSON struct {
	Status    string      `json:"status"`
	Framework FrameworkID `json:"framework_id"`
	Timestamp NanosJSON   `json:"timestamp"`
}

// FrameworkID names the node.
type FrameworkID struct {
	Value string `json:"value"`
}

// Windows converts the windows of the schedule. A window without a start is an error, as it is in Mesos.
func (s ScheduleJSON) Windows() (all []*MaintenanceWindow, err error) {
	for i, w := range s.All {
		u := w.Unavailability
		if u == nil || u.Start == nil || u.Start.Nanoseconds == nil {
			return nil, fmt.Errorf("windows[%d].unavailability.start.nanoseconds: is missing: nanoseconds since 1970", i)
		}
		to := &MaintenanceWindow{Machines: MachinesFromJSON(w.MachineIDs), StartNanoseconds: int64(*u.Start.Nanoseconds)}
		if d := u.Duration; d != nil {
			if d.Nanoseconds == nil {
				return nil, fmt.Errorf("windows[%d].unavailability.duration.nanoseconds: is missing: leave the duration out where nobody knows", i)
			}
			to.DurationNanoseconds = new(int64(*d.Nanoseconds))
		}
		all = append(all, to)
	}
	return all, nil
}

func nanosOf(n int64) *NanosJSON { return &NanosJSON{new(nanos(n))} }

// MachinesFromJSON converts machines.
func MachinesFromJSON(said []MachineJSON) (all []*Machine) {
	for _, m := range said {
		all = append(all, &Machine{Hostname: m.Hostname, Ip: m.IP})
	}
	return all
}

func machineToJSON(m *Machine) MachineJSON { return MachineJSON{m.GetHostname(), m.GetIp()} }

// ScheduleToJSON converts the schedule to JSON that could be posted again.
func ScheduleToJSON(m *Maintenance) ScheduleJSON {
	all := ScheduleJSON{All: []WindowJSON{}}
	for _, w := range m.GetWindows() {
		to := WindowJSON{Unavailability: &UnavailabilityJSON{Start: nanosOf(w.GetStartNanoseconds())}}
		for _, id := range w.GetMachines() {
			to.MachineIDs = append(to.MachineIDs, machineToJSON(id))
		}
		if w.DurationNanoseconds != nil {
			to.Unavailability.Duration = nanosOf(*w.DurationNanoseconds)
		}
		all.All = append(all.All, to)
	}
	return all
}

// MaintenanceToJSON converts what GET /maintenance/status answers.
func MaintenanceToJSON(m *Maintenance) MaintenanceJSON {
	all := MaintenanceJSON{Draining: []DrainingMachineJSON{}, Down: []MachineJSON{}}
	for _, s := range m.GetMachines() {
		id := machineToJSON(s.GetMachine())
		if s.GetMode() == "DOWN" {
			all.Down = append(all.Down, id)
			continue
		}
		to := DrainingMachineJSON{ID: id, Statuses: []MachineStatusJSON{}}
		for _, n := range s.GetNodes() {
			to.Statuses = append(to.Statuses, MachineStatusJSON{n.GetAnswer(), FrameworkID{n.GetNode()}, *nanosOf(n.GetSince().AsTime().UnixNano())})
		}
		all.Draining = append(all.Draining, to)
	}
	return all
}
