package hosts

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// parseXML reads YARN's form:
//
//	<hosts>
//	  <host><name>a</name></host>
//	  <host><name>b, c</name><timeout>1800</timeout></host>
//	</hosts>
//
// A <name> may have several names, with commas between; a timeout is in seconds, -1 for none. YARN ignores elements that it does not
// know, and takes the first of two <name>s; here both are faults, and so is a document type.
func (f *hostFile) parseXML(data []byte) {
	p := xmlHosts{hostFile: f, Decoder: xml.NewDecoder(bytes.NewReader(data))}
	for {
		token, err := p.RawToken() // RawToken does not match tags: take does, and says what belongs where
		line, _ := p.InputPos()
		if text, ok := token.(xml.CharData); ok {
			line -= bytes.Count(bytes.TrimLeft(text, " \t\r\n"), []byte("\n")) // where it begins
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = p.take(token, line)
		}
		if syntax, ok := errors.AsType[*xml.SyntaxError](err); ok {
			line, err = syntax.Line, errors.New(syntax.Msg)
		}
		if err != nil {
			f.fault(line, "XML: %v", err)
			return
		}
	}
	if line, _ := p.InputPos(); len(p.path) > 0 || !p.begun {
		f.fault(line, "XML: ends before </hosts>")
	}
}

// xmlHosts is a parser and its position in the document.
type xmlHosts struct {
	*hostFile
	*xml.Decoder
	begun bool
	path  []string // open elements

	host map[string]xmlText // of the open <host>
	text strings.Builder
	line int // where text begins
}

type xmlText struct {
	line int
	text string
}

// take handles one token. Its error ends the parsing: nothing behind a wrong structure can be read.
func (p *xmlHosts) take(token xml.Token, line int) error {
	switch t := token.(type) {
	case xml.StartElement:
		return p.open(t, line)
	case xml.EndElement:
		return p.close(t, line)
	case xml.CharData:
		if len(p.path) == 3 {
			p.text.Write(t)
		} else if strings.TrimSpace(string(t)) != "" {
			return fmt.Errorf("text %q outside of <name> and <timeout>", cutWord(strings.TrimSpace(string(t))))
		}
	case xml.Directive:
		return errors.New("a document type or another directive: leave it out")
	case xml.ProcInst:
		if t.Target != "xml" || p.begun {
			return fmt.Errorf("a processing instruction <?%s?>: leave it out", cutWord(t.Target))
		}
	}
	return nil
}

// xmlParents maps each element to the one that it must be in.
var xmlParents = map[string]string{"hosts": "", "host": "hosts", "name": "host", "timeout": "host"}

func (p *xmlHosts) open(t xml.StartElement, line int) error {
	in := ""
	if len(p.path) > 0 {
		in = p.path[len(p.path)-1]
	}
	name := t.Name.Local
	switch parent, known := xmlParents[name]; {
	case !known || t.Name.Space != "" || parent != in || in == "" && p.begun:
		return fmt.Errorf("<%s> does not belong here: want <hosts> of <host> of one <name> and perhaps a <timeout>", cutWord(name))
	case len(t.Attr) > 0:
		return fmt.Errorf("<%s> has attributes: leave them out", name)
	}
	switch name {
	case "host":
		p.host = map[string]xmlText{}
	case "name", "timeout":
		if _, twice := p.host[name]; twice {
			return fmt.Errorf("a second <%s> in one <host>: write another <host>", name)
		}
		p.text.Reset()
		p.line = line
	}
	p.begun = true
	p.path = append(p.path, name)
	return nil
}

func (p *xmlHosts) close(t xml.EndElement, line int) error {
	if len(p.path) == 0 || p.path[len(p.path)-1] != t.Name.Local || t.Name.Space != "" {
		return fmt.Errorf("</%s> closes nothing", cutWord(t.Name.Local))
	}
	p.path = p.path[:len(p.path)-1]
	switch t.Name.Local {
	case "name", "timeout":
		p.host[t.Name.Local] = xmlText{p.line, p.text.String()}
	case "host":
		p.done(line)
	}
	return nil
}

// done adds the hosts of a <host> that has been read to its end.
func (p *xmlHosts) done(line int) {
	e := hostEntry{}
	if t, given := p.host["timeout"]; given {
		var err error
		if e.timeout, err = parseTimeout(t.text); err == nil && p.including {
			err = errors.New("belongs into the exclude file")
		}
		if err != nil {
			p.fault(t.line, "<timeout>%s</timeout>: %v", cutWord(t.text), err)
			return
		}
	}
	names := p.host["name"]
	e.line = names.line
	some := false
	for host := range strings.FieldsFuncSeq(names.text, func(r rune) bool { return r == ',' || r == '\n' }) {
		if host = strings.TrimSpace(host); host != "" {
			p.add(host, e)
			some = true
		}
	}
	if !some {
		p.fault(line, "a <host> without a <name>")
	}
}

// parseTimeout reads whole seconds. 0 means at once; any negative number means no limit, as YARN reads it.
func parseTimeout(text string) (*time.Duration, error) {
	seconds, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	most := int64(MaxTimeout / time.Second)
	switch {
	case err != nil || seconds > most:
		return nil, fmt.Errorf("must be whole seconds from 0 to %d, or -1 for no limit", most)
	case seconds < 0:
		return new(Forever), nil
	}
	return new(time.Duration(seconds) * time.Second), nil
}
