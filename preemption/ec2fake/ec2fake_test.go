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

var machine = Instance{ID: "i-0123456789abcdef0", Type: "r5.4xlarge", Zone: "us-east-1a", LifeCycle: "spot"}

// TestAgainstTheSDK asks the fake with AWS's own client, strictly version 2, so that it agrees not only with ourselves.
func TestAgainstTheSDK(t *testing.T) {
	fake := New(machine)
	server := httptest.NewServer(fake)
	defer server.Close()
	client := imds.New(imds.Options{Endpoint: server.URL, EnableFallback: aws.FalseTernary, Retryer: aws.NopRetryer{}})
	get := func(path string) (string, error) {
		out, err := client.GetMetadata(t.Context(), &imds.GetMetadataInput{Path: path})
		if err != nil {
			return "", err
		}
		defer out.Content.Close()
		body, err := io.ReadAll(out.Content)
		return string(body), err
	}
	for path, want := range map[string]string{
		"instance-id": machine.ID, "instance-type": machine.Type,
		"placement/availability-zone": machine.Zone, "instance-life-cycle": machine.LifeCycle,
	} {
		if got, err := get(path); err != nil || got != want {
			t.Errorf("%s: got %q, %v, want %q", path, got, err, want)
		}
	}
	action, advice := "spot/instance-action", "events/recommendations/rebalance"
	for _, path := range []string{action, advice} {
		if got, err := get(path); err == nil || !strings.Contains(err.Error(), "404") {
			t.Errorf("%s without a notice: got %q, %v, want 404", path, got, err)
		}
	}
	at := time.Date(2017, 9, 18, 8, 22, 0, 0, time.FixedZone("", 7200))
	fake.Interrupt("terminate", at)
	fake.Rebalance()
	if got, err := get(action); err != nil || got != `{"action":"terminate","time":"2017-09-18T06:22:00Z"}` {
		t.Errorf("%s: got %s, %v", action, got, err)
	}
	var doc struct{ NoticeTime time.Time }
	if got, err := get(advice); err != nil || json.Unmarshal([]byte(got), &doc) != nil || time.Since(doc.NoticeTime) > time.Minute {
		t.Errorf("%s: got %s, %v", advice, got, err)
	}
	fake.Withdraw()
	for _, path := range []string{action, advice} {
		if got, err := get(path); err == nil {
			t.Errorf("%s after Withdraw: got %q", path, got)
		}
	}
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
