package ec2fake

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
)

var machine = Instance{ID: "i-0123456789abcdef0", Type: "r5.4xlarge", Zone: "us-east-1a", Region: "us-east-1", LifeCycle: "spot"}

// sdk asks a fake with AWS's own client, strictly version 2 unless fallback says otherwise.
func sdk(t *testing.T, fake *Service, fallback aws.Ternary) (get func(path string) (string, error)) {
	server := httptest.NewServer(fake)
	t.Cleanup(server.Close)
	client := imds.New(imds.Options{Endpoint: server.URL, EnableFallback: fallback, Retryer: aws.NopRetryer{}})
	return func(path string) (string, error) {
		out, err := client.GetMetadata(t.Context(), &imds.GetMetadataInput{Path: path})
		if err != nil {
			return "", err
		}
		defer out.Content.Close()
		body, err := io.ReadAll(out.Content)
		return string(body), err
	}
}

// TestAgainstTheSDK holds the fake to AWS's own client, so that it agrees not only with ourselves.
func TestAgainstTheSDK(t *testing.T) {
	fake := New(machine)
	get := sdk(t, fake, aws.FalseTernary)
	for path, want := range map[string]string{
		"instance-id": machine.ID, "instance-type": machine.Type, "placement/region": machine.Region,
		"placement/availability-zone": machine.Zone, "instance-life-cycle": machine.LifeCycle, scheduled: "[]",
	} {
		if got, err := get(path); err != nil || got != want {
			t.Errorf("%s: got %q, %v, want %q", path, got, err, want)
		}
	}
	absent := func(when string) {
		for _, path := range []string{action, rebalance, target} {
			if got, err := get(path); err == nil || !strings.Contains(err.Error(), "404") {
				t.Errorf("%s %s: got %q, %v, want 404", path, when, got, err)
			}
		}
	}
	absent("without a notice")

	at := time.Date(2019, 1, 1, 11, 0, 43, 0, time.FixedZone("", 7200))
	fake.Interrupt("terminate", at)
	fake.Rebalance()
	fake.Lifecycle("Terminated")
	fake.Schedule(Event{Code: "instance-stop", Description: "d", EventID: "instance-event-1", State: "active", NotBefore: EventTime(at)})
	for path, want := range map[string]string{
		action: `{"action":"terminate","time":"2019-01-01T09:00:43Z"}`,
		target: "Terminated",
		scheduled: `[{"Code":"instance-stop","Description":"d","EventId":"instance-event-1","State":"active",` +
			`"NotBefore":"1 Jan 2019 09:00:43 GMT"}]`,
	} {
		if got, err := get(path); err != nil || got != want {
			t.Errorf("%s: got %s, %v, want %s", path, got, err, want)
		}
	}
	var doc struct{ NoticeTime time.Time }
	if got, err := get(rebalance); err != nil || json.Unmarshal([]byte(got), &doc) != nil || time.Since(doc.NoticeTime) > time.Minute {
		t.Errorf("%s: got %s, %v", rebalance, got, err)
	}

	fake.Withdraw()
	if got, err := get(target); err != nil || got != "InService" {
		t.Errorf("%s after Withdraw: got %q, %v, want InService", target, got, err)
	}
	if got, err := get(scheduled); err != nil || got != "[]" {
		t.Errorf("%s after Withdraw: got %q, %v, want an empty list", scheduled, got, err)
	}
	fake.Lifecycle("")
	absent("after Withdraw")

	for _, code := range []int{http.StatusServiceUnavailable, http.StatusUnauthorized} {
		fake.Fail(code)
		if got, err := get("instance-id"); err == nil {
			t.Errorf("failing with %d: got %q", code, got)
		}
	}
	fake.Fail(0)
	if got, err := get("instance-id"); err != nil || got != machine.ID {
		t.Errorf("after Fail(0): got %q, %v", got, err)
	}
}

// TestTooFarAway is what a container sees: the request for a token hangs, and only version 1 answers.
func TestTooFarAway(t *testing.T) {
	fake := New(machine)
	fake.TooFar(true)
	fallback := sdk(t, fake, aws.TrueTernary)
	if got, err := fallback("instance-id"); err == nil {
		t.Errorf("version 1 answered %q without being allowed to", got)
	}
	fake.AllowV1(true)
	if got, err := fallback("instance-id"); err != nil || got != machine.ID {
		t.Errorf("version 1: got %q, %v, want %q", got, err, machine.ID)
	}
	if got, err := sdk(t, fake, aws.FalseTernary)("instance-id"); err == nil {
		t.Errorf("got %q without a token", got)
	}
	fake.TooFar(false)
	if got, err := sdk(t, fake, aws.FalseTernary)("instance-id"); err != nil || got != machine.ID {
		t.Errorf("within reach: got %q, %v, want %q", got, err, machine.ID)
	}
}

// TestTokenRules holds the fake to what was measured against AWS's own mock and what AWS documents.
func TestTokenRules(t *testing.T) {
	fake := New(machine)
	ask := func(method, path string, headers ...string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(method, path, nil)
		for i := 0; i < len(headers); i += 2 {
			r.Header.Add(headers[i], headers[i+1])
		}
		w := httptest.NewRecorder()
		fake.ServeHTTP(w, r)
		return w
	}
	const put, data = "/latest/api/token", "/latest/meta-data/instance-id"
	granted := ask(http.MethodPut, put, ttlHeader, "60")
	token := granted.Body.String()
	if granted.Code != http.StatusOK || token == "" || granted.Header().Get(ttlHeader) != "60" {
		t.Fatalf("token: %d, %q, TTL %q", granted.Code, token, granted.Header().Get(ttlHeader))
	}
	for name, row := range map[string]struct {
		got  *httptest.ResponseRecorder
		want int
	}{
		"good token":       {ask(http.MethodGet, data, tokenHeader, token), 200},
		"no token":         {ask(http.MethodGet, data), 401},
		"bad token":        {ask(http.MethodGet, data, tokenHeader, "x"), 401},
		"two tokens":       {ask(http.MethodGet, data, tokenHeader, token, tokenHeader, token), 401},
		"no TTL":           {ask(http.MethodPut, put), 400},
		"TTL 0":            {ask(http.MethodPut, put, ttlHeader, "0"), 400},
		"TTL too long":     {ask(http.MethodPut, put, ttlHeader, "21601"), 400},
		"longest TTL":      {ask(http.MethodPut, put, ttlHeader, "21600"), 200},
		"versioned path":   {ask(http.MethodPut, "/2021-01-03/api/token", ttlHeader, "60"), 403},
		"through a proxy":  {ask(http.MethodPut, put, ttlHeader, "60", "X-Forwarded-For", "10.0.0.1"), 403},
		"unknown path":     {ask(http.MethodGet, "/latest/meta-data/x", tokenHeader, token), 404},
		"not meta-data":    {ask(http.MethodGet, "/latest/user-data", tokenHeader, token), 404},
		"method not known": {ask(http.MethodPost, data, tokenHeader, token), 405},
	} {
		if row.got.Code != row.want {
			t.Errorf("%s: got %d, want %d", name, row.got.Code, row.want)
		}
	}
	fake.ForgetTokens()
	if got := ask(http.MethodGet, data, tokenHeader, token); got.Code != http.StatusUnauthorized {
		t.Errorf("forgotten token: got %d, want 401", got.Code)
	}
}
