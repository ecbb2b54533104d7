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
	LifeCycle string
}

// Service answers as the metadata service of one instance. It is safe for concurrent use.
type Service struct {
	mu     sync.Mutex // guards what follows
	texts  map[string]string
	tokens map[string]time.Time // until when each is good
	fail   int
}

// New returns a service that shows no notice.
func New(i Instance) *Service {
	texts := map[string]string{
		"instance-id":                 i.ID,
		"instance-type":               i.Type,
		"placement/availability-zone": i.Zone,
		"instance-life-cycle":         i.LifeCycle,
	}
	maps.DeleteFunc(texts, func(_, text string) bool { return text == "" })
	return &Service{texts: texts, tokens: make(map[string]time.Time)}
}

// Interrupt shows that the instance will be reclaimed: action is terminate, stop or hibernate.
func (s *Service) Interrupt(action string, at time.Time) {
	s.show("spot/instance-action", map[string]string{"action": action, "time": at.UTC().Format(time.RFC3339)})
}

// Rebalance shows a rebalance recommendation given now.
func (s *Service) Rebalance() {
	s.show("events/recommendations/rebalance", map[string]string{"noticeTime": time.Now().UTC().Format(time.RFC3339)})
}

// Withdraw takes back the interruption and the recommendation.
func (s *Service) Withdraw() {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.texts, "spot/instance-action")
	delete(s.texts, "events/recommendations/rebalance")
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

func (s *Service) show(path string, doc map[string]string) {
	text, err := json.Marshal(doc)
	if err != nil {
		panic(err) // strings always marshal
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.texts[path] = string(text)
}

func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
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

// knows tells whether a request came with one token, and a good one. The caller holds mu.
func (s *Service) knows(tokens []string) bool {
	if len(tokens) != 1 {
		return false
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
