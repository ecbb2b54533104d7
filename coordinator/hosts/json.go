package hosts

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// parseJSON reads HDFS's form (CombinedHostsFileReader), an array of objects, or the older one without the brackets:
//
//	[{"hostName": "a"}, {"hostName": "b", "port": 0, "upgradeDomain": "ud0", "adminState": "DECOMMISSIONED"},
//	 {"hostName": "c", "adminState": "IN_MAINTENANCE", "maintenanceExpireTimeInMS": 1800000000000}]
//
// A host is one machine here: ports and upgrade domains are checked, and have no effect. HDFS tries one form, then the other, and
// overlooks faults on the way, so that half a file may count as a whole one. This parser takes one form, to its end.
func (f *hostFile) parseJSON(data []byte) {
	if f.blank {
		return
	}
	p := jsonHosts{hostFile: f, dec: json.NewDecoder(bytes.NewReader(data)), data: data, line: 1}
	p.dec.UseNumber()
	err := p.whole()
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		p.forward(syntax.Offset)
	} else {
		p.forward(p.dec.InputOffset())
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		p.forward(int64(len(data)))
		err = errors.New("ends in the middle")
	}
	if err != nil {
		f.fault(p.line, "JSON: %v", err)
	}
}

// jsonHosts is a parser and its position in the document.
type jsonHosts struct {
	*hostFile
	dec  *json.Decoder
	data []byte
	read int64 // bytes whose newlines are in line
	line int
}

// forward moves line on to an offset.
func (p *jsonHosts) forward(offset int64) {
	if offset = min(offset, int64(len(p.data))); offset > p.read {
		p.line += bytes.Count(p.data[p.read:offset], []byte("\n"))
		p.read = offset
	}
}

func (p *jsonHosts) next() (json.Token, error) {
	token, err := p.dec.Token()
	if err == nil {
		p.forward(p.dec.InputOffset())
	}
	return token, err
}

// whole reads the document. Its error is a wrong structure, which ends the parsing; a wrong value is a fault of its line.
func (p *jsonHosts) whole() error {
	token, err := p.next()
	if err != nil {
		return err
	}
	array := token == json.Delim('[')
	if array {
		if token, err = p.next(); err != nil {
			return err
		}
	}
	for token != json.Delim(']') {
		if token != json.Delim('{') {
			return fmt.Errorf("%s where an object with a hostName was wanted", jsonWord(token))
		}
		if err := p.object(); err != nil {
			return err
		}
		token, err = p.next()
		if !array && errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	if _, err := p.next(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the array")
	}
	return nil
}

// object reads one host, whose { has been read.
func (p *jsonHosts) object() error {
	e := hostEntry{line: p.line, admin: adminNormal}
	host, seen, sound := "", map[string]bool{}, true
	expires := latest
	for p.dec.More() {
		key, err := p.next()
		if err != nil {
			return err
		}
		name := key.(string) // Token gives nothing else for a key
		line := p.line
		value, err := p.next()
		if err != nil {
			return err
		}
		if _, nested := value.(json.Delim); nested {
			return fmt.Errorf("%q is %s: want one value", cutWord(name), jsonWord(value))
		}
		if seen[name] {
			err = errors.New("stands here twice")
		} else {
			err = nil
			seen[name] = true
			switch name {
			case "hostName":
				host, err = jsonString(value)
			case "adminState":
				e.admin, err = jsonState(value)
			case "maintenanceExpireTimeInMS":
				expires, err = jsonInstant(value)
			case "port":
				_, err = jsonNumber(value, 65535)
			case "upgradeDomain":
				_, err = jsonString(value)
			default:
				err = errors.New("is not known: want hostName, port, upgradeDomain, adminState, maintenanceExpireTimeInMS")
			}
		}
		if err != nil {
			p.fault(line, "%q %v", cutWord(name), err)
			sound = false
		}
	}
	if _, err := p.next(); err != nil { // the }
		return err
	}
	if e.admin == adminMaintenance {
		e.until = expires
	}
	switch {
	case !sound:
	case host == "":
		p.fault(e.line, "an object without a hostName")
	default:
		p.add(host, e)
	}
	return nil
}

// latest is the last year that time.Time can write as JSON. HDFS writes the largest int64 for "without end", which is beyond it.
var latest = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)

func jsonWord(token json.Token) string {
	switch t := token.(type) {
	case json.Delim:
		return map[json.Delim]string{'{': "an object", '[': "an array", '}': "a }", ']': "a ]"}[t]
	case string:
		return strconv.Quote(cutWord(t))
	case nil:
		return "null"
	}
	return cutWord(fmt.Sprint(token))
}

// In the three functions below null is the zero value: HDFS's own writer puts null for what it does not know.

func jsonString(v json.Token) (string, error) {
	if s, ok := v.(string); ok || v == nil {
		return s, nil
	}
	return "", fmt.Errorf("is %s: want a string", jsonWord(v))
}

func jsonState(v json.Token) (adminState, error) {
	switch s, err := jsonString(v); {
	case err != nil:
		return "", err
	case v == nil:
		return adminNormal, nil
	case adminState(s) == adminNormal, adminState(s) == adminDecommissioned, adminState(s) == adminMaintenance:
		return adminState(s), nil
	}
	return "", fmt.Errorf("is %s: want %s, %s or %s", jsonWord(v), adminNormal, adminDecommissioned, adminMaintenance)
}

// jsonNumber reads a whole number from 0 to most. It may be in quotes: Jackson accepts that, and HDFS's own example has one.
func jsonNumber(v json.Token, most int64) (int64, error) {
	if v == nil {
		return 0, nil
	}
	text, ok := v.(string)
	if n, is := v.(json.Number); is {
		text, ok = n.String(), true
	}
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if !ok || err != nil || n < 0 || n > most {
		return 0, fmt.Errorf("is %s: want a whole number from 0 to %d", jsonWord(v), most)
	}
	return n, nil
}

func jsonInstant(v json.Token) (time.Time, error) {
	ms, err := jsonNumber(v, 1<<63-1)
	if err != nil || v == nil || ms > latest.UnixMilli() {
		return latest, err
	}
	return time.UnixMilli(ms).UTC(), nil
}
