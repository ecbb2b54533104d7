package e2e_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"
)

// browser is a page in a real browser, driven over the browser's debugging pipe: messages of JSON, each ended by a NUL, in both
// directions (https://chromedevtools.github.io/devtools-protocol/). The tests ask it in JavaScript; they need no more, and a
// library would bring more.
type browser struct {
	t       *testing.T
	in      *os.File
	out     *bufio.Reader
	session string
	last    int
	trouble []string // exceptions and log entries of the page
}

// newBrowser opens an address, or skips the test where there is no browser.
func newBrowser(t *testing.T, url string) *browser {
	t.Helper()
	program, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("no chromium here: apt-get install chromium")
	}
	theirIn, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, theirOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--user-data-dir="+t.TempDir(), "about:blank")
	cmd.ExtraFiles = []*os.File{theirIn, theirOut} // descriptors 3 and 4, where chromium expects the pipe
	launch(t, cmd)
	theirIn.Close()
	theirOut.Close()
	t.Cleanup(func() { in.Close(); out.Close() })
	b := &browser{t: t, in: in, out: bufio.NewReader(out)}
	b.open(url)
	return b
}

// open opens an address in a page of its own, which is asked from then on; earlier ones are out of sight.
func (b *browser) open(url string) {
	b.t.Helper()
	b.session = ""
	var target struct{ TargetID string }
	b.call("Target.createTarget", map[string]any{"url": url}, &target)
	var attached struct{ SessionID string }
	b.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	b.session = attached.SessionID
	b.call("Runtime.enable", nil, nil)
	b.call("Log.enable", nil, nil)
}

// call calls a method and waits for its answer. It keeps the page's complaints that come meanwhile.
func (b *browser) call(method string, params, into any) {
	b.t.Helper()
	b.last++
	ask, err := json.Marshal(map[string]any{"id": b.last, "method": method, "params": params, "sessionId": b.session})
	if b.session == "" {
		ask, err = json.Marshal(map[string]any{"id": b.last, "method": method, "params": params})
	}
	if err != nil {
		b.t.Fatal(err)
	}
	if _, err := b.in.Write(append(ask, 0)); err != nil {
		b.t.Fatalf("%s: %v", method, err)
	}
	for {
		text, err := b.out.ReadBytes(0)
		if err != nil {
			b.t.Fatalf("%s: %v", method, err)
		}
		var m struct {
			ID     int
			Method string
			Params json.RawMessage
			Result json.RawMessage
			Error  *struct{ Message string }
		}
		if err := json.Unmarshal(bytes.TrimSuffix(text, []byte{0}), &m); err != nil {
			b.t.Fatalf("%s: %s: %v", method, text, err)
		}
		switch {
		case m.Method == "Runtime.exceptionThrown", m.Method == "Log.entryAdded":
			b.trouble = append(b.trouble, string(m.Params))
		case m.ID != b.last:
		case m.Error != nil:
			b.t.Fatalf("%s: %s", method, m.Error.Message)
		default:
			if into != nil {
				if err := json.Unmarshal(m.Result, into); err != nil {
					b.t.Fatalf("%s: %s: %v", method, m.Result, err)
				}
			}
			return
		}
	}
}

// says evaluates an expression that is a string.
func (b *browser) says(js string) string {
	b.t.Helper()
	var r struct {
		Result           struct{ Value any }
		ExceptionDetails any
	}
	b.call("Runtime.evaluate", map[string]any{"expression": js, "returnByValue": true}, &r)
	if r.ExceptionDetails != nil {
		return fmt.Sprint("exception: ", r.ExceptionDetails)
	}
	return fmt.Sprint(r.Result.Value)
}

// until waits for an expression to be true.
func (b *browser) until(js string) {
	b.t.Helper()
	for limit := time.Now().Add(time.Minute); b.says(js) != "true"; {
		if time.Now().After(limit) {
			b.t.Fatalf("the page never came to %s:\n%s\n%v", js, b.says("document.body.innerText"), b.trouble)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
