// Package ec2fake is a small pretend EC2 instance metadata service, for `lifeboat dev` and for tests.
//
// It speaks version 2 as the real service does (tokens by PUT, 401 without one, 404 for "no notice") and is checked
// against the AWS SDK's own client. It shows only what Lifeboat asks for, and listens nowhere: it is a handler.
package ec2fake

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The lifetime of a token, in seconds, that the real service accepts.
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/configuring-instance-metadata-service.html
const (
	minTTLSeconds = 1
	maxTTLSeconds = 21600
)

const (
	ttlHeader   = "X-Aws-Ec2-Metadata-Token-Ttl-Seconds"
	tokenHeader = "X-Aws-Ec2-Metadata-Token"
)

// Instance is the machine that the service pretends to describe. What is empty is answered with 404.
type Instance struct {
	ID        string
	Type      string
	Zone      string
	Region    string
	LifeCycle string
}

// Event is a scheduled event as the service writes it. Times look like 21 Jan 2019 09:00:43 GMT.
type Event struct {
	Code        string
	Description string
	EventID     string `json:"EventId"`
	State       string
	NotBefore   string
	NotAfter    string `json:",omitempty"`
}

// EventTime is an instant as an event holds it.
func EventTime(at time.Time) string { return at.UTC().Format("2 Jan 2006 15:04:05 GMT") }

// Service answers as the metadata service of one instance. It is safe for concurrent use.
type Service struct {
	mu     sync.Mutex // guards what follows
	texts  map[string]string
	tokens map[string]time.Time // until when each is good
	fail   int
	tooFar bool // away to hear of a token
	v1     bool // is answered
	attest func() string
}

// New returns a service that shows no notice.
func New(i Instance) *Service {
	texts := map[string]string{
		"instance-id":                 i.ID,
		"instance-type":               i.Type,
		"placement/availability-zone": i.Zone,
		"placement/region":            i.Region,
		"instance-life-cycle":         i.LifeCycle,
		scheduled:                     "[]",
	}
	maps.DeleteFunc(texts, func(_, text string) bool { return text == "" })
	return &Service{texts: texts, tokens: make(map[string]time.Time)}
}

// Paths that hold notices.
const (
	action    = "spot/instance-action"
	rebalance = "events/recommendations/rebalance"
	scheduled = "events/maintenance/scheduled"
	target    = "autoscaling/target-lifecycle-state"
)

// Interrupt shows that the instance will be reclaimed: what is terminate, stop or hibernate.
func (s *Service) Interrupt(what string, at time.Time) {
	s.show(action, map[string]string{"action": what, "time": at.UTC().Format(time.RFC3339)})
}

// Rebalance shows a rebalance recommendation given now.
func (s *Service) Rebalance() {
	s.show(rebalance, map[string]string{"noticeTime": time.Now().UTC().Format(time.RFC3339)})
}

// Schedule shows these events, and none besides.
func (s *Service) Schedule(events ...Event) { s.show(scheduled, append([]Event{}, events...)) }

// Lifecycle shows the state that an Auto Scaling group brings the instance to: InService, Terminated, Warmed:Stopped.
// Empty: it is in no group.
func (s *Service) Lifecycle(state string) { s.Show(target, state) }

// Withdraw takes back all notices. An instance that was to go is in service again.
func (s *Service) Withdraw() {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.texts, action)
	delete(s.texts, rebalance)
	s.texts[scheduled] = "[]"
	if s.texts[target] != "" {
		s.texts[target] = "InService"
	}
}

// Show answers at a path with a text. Empty: with 404.
func (s *Service) Show(path, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.texts[path] = text
}

func (s *Service) show(path string, doc any) {
	text, err := json.Marshal(doc)
	if err != nil {
		panic(err) // strings always marshal
	}
	s.Show(path, string(text))
}

// Attest answers with what document returns where the instance identity document's RSA-2048 signature stands. It is called
// for each question.
func (s *Service) Attest(document func() string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attest = document
}

// Fail makes every answer the given status, until Fail(0). 401 is the storm of a service that keeps no token: it goes
// on handing out new ones and refuses them all.
func (s *Service) Fail(status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = status
}

// ForgetTokens makes every token handed out so far a bad one.
func (s *Service) ForgetTokens() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.tokens)
}

// TooFar pretends that a container's bridge lies between: with a hop limit of 1 the answer to the request for a token
// never comes.
func (s *Service) TooFar(far bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tooFar = far
}

func (s *Service) isTooFar() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tooFar
}

// AllowV1 makes the service answer also without a token.
func (s *Service) AllowV1(allowed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.v1 = allowed
}

func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPut && s.isTooFar() {
		<-r.Context().Done()
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	path, isData := strings.CutPrefix(r.URL.Path, "/latest/meta-data/")
	switch isToken := r.Method == http.MethodPut; {
	case s.fail != 0 && !(s.fail == http.StatusUnauthorized && isToken):
		refuse(w, s.fail)
	case isToken && (r.URL.Path != "/latest/api/token" || r.Header.Get("X-Forwarded-For") != ""):
		refuse(w, http.StatusForbidden)
	case isToken:
		s.issue(w, r)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		refuse(w, http.StatusMethodNotAllowed)
	case !s.knows(r.Header.Values(tokenHeader)):
		refuse(w, http.StatusUnauthorized)
	case r.URL.Path == "/latest/dynamic/instance-identity/rsa2048" && s.attest != nil:
		w.Header().Set("Content-Type", "text/plain")
		fmt.Fprint(w, s.attest())
	case !isData || s.texts[path] == "":
		refuse(w, http.StatusNotFound)
	default:
		w.Header().Set("Content-Type", "text/plain")
		fmt.Fprint(w, s.texts[path])
	}
}

// issue answers a request for a token. The caller holds mu.
func (s *Service) issue(w http.ResponseWriter, r *http.Request) {
	seconds, err := strconv.Atoi(r.Header.Get(ttlHeader))
	if err != nil || seconds < minTTLSeconds || seconds > maxTTLSeconds {
		refuse(w, http.StatusBadRequest)
		return
	}
	now := time.Now()
	maps.DeleteFunc(s.tokens, func(_ string, until time.Time) bool { return now.After(until) })
	token := rand.Text()
	s.tokens[token] = now.Add(time.Duration(seconds) * time.Second)
	w.Header().Set(ttlHeader, strconv.Itoa(seconds))
	w.Header().Set("Content-Type", "text/plain")
	fmt.Fprint(w, token)
}

// knows tells whether a request came with one token, and a good one, or needs none. The caller holds mu.
func (s *Service) knows(tokens []string) bool {
	if len(tokens) != 1 {
		return len(tokens) == 0 && s.v1
	}
	until, known := s.tokens[tokens[0]]
	return known && !time.Now().After(until)
}

// refuse answers with a page, not with JSON, as the real service does.
func refuse(w http.ResponseWriter, status int) {
	w.Header().Set("Content-Type", "text/html")
	w.WriteHeader(status)
	fmt.Fprintf(w, "<?xml version=\"1.0\" encoding=\"iso-8859-1\"?>\n<html><head><title>%d - %s</title></head></html>\n",
		status, http.StatusText(status))
}
