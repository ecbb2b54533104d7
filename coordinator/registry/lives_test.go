package registry

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// says applies one command about apps.
func (s *story) says(do Verb, c Command, apps ...string) error {
	c.Do, c.Apps = do, apps
	return s.do(c)
}

func (s *story) beats(app, owner string) error {
	return s.says(DoBeatApp, Command{Owner: owner, Lease: time.Minute}, app)
}

func (s *story) over(app, want string) {
	s.t.Helper()
	if got := s.Lives[app].Over; got != want {
		s.t.Errorf("app %s: is over because %q, want %q", app, got, want)
	}
}

func (s *story) gets(err, want error) {
	s.t.Helper()
	if !errors.Is(err, want) {
		s.t.Errorf("got %v, want %v", err, want)
	}
}

func TestLivesOfApps(t *testing.T) {
	stories := map[string]func(*story){
		"one beats, and says that it is over": func(s *story) {
			s.gets(s.beats("p", "app:1"), nil)
			s.gets(s.at(1).beats("p", "app:1"), nil)
			s.gets(s.at(2).says(DoEndApps, Command{Owner: "app:1", Reason: "it said so"}, "p"), nil)
			s.over("p", "it said so")
			s.tells("AppEnded")
			s.gets(s.at(3).says(DoEndApps, Command{Reason: "again"}, "p"), nil)
			s.over("p", "it said so") // once
			s.tells("")
			s.gets(s.beats("p", "app:1"), ErrAppOver)
		},
		"nobody speaks for another's": func(s *story) {
			s.gets(s.beats("p", "app:1"), nil)
			s.gets(s.beats("p", "app:2"), ErrAppOthers)
			s.gets(s.says(DoEndApps, Command{Owner: "app:2", Reason: "x"}, "p"), ErrAppOthers)
			s.gets(s.says(DoEndApps, Command{Owner: "app:2", Reason: "x"}, "q"), ErrAppNobody)
			s.over("p", "")
			s.tells("")
		},
		"one refusal refuses all": func(s *story) {
			s.gets(s.beats("p", "app:1"), nil)
			s.gets(s.says(DoEndApps, Command{Owner: "app:1", Reason: "x"}, "p", "q"), ErrAppNobody)
			s.over("p", "")
		},
		"silence ends who beats, and nobody else": func(s *story) {
			s.gets(s.beats("p", "app:1"), nil)
			s.gets(s.says(DoEndApps, Command{Reason: "an operator"}, "q"), nil)
			s.gets(s.says(DoResume, Command{}, "q"), nil)
			s.gets(s.at(70).says(DoLapseApps, Command{Reason: "silent"}, "p", "q", "r"), nil)
			s.over("p", "silent")
			s.over("q", "")
			s.tells("AppEnded AppResumed AppEnded")
			if _, known := s.Lives["r"]; known {
				s.t.Error("an app is known of which nobody spoke")
			}
		},
		"an operator takes it back": func(s *story) {
			s.gets(s.beats("p", "app:1"), nil)
			s.gets(s.says(DoEndApps, Command{Reason: "a slip"}, "p"), nil)
			s.gets(s.at(5).says(DoResume, Command{}, "p"), nil)
			s.over("p", "")
			s.gets(s.at(600).says(DoLapseApps, Command{Reason: "silent"}, "p"), nil)
			s.over("p", "") // its silence was no wonder
			s.gets(s.beats("p", "app:2"), ErrAppOthers)
			s.gets(s.beats("p", "app:1"), nil)
			s.gets(s.says(DoResume, Command{}, "p", "never-over"), nil)
			s.tells("AppEnded AppResumed")
		},
		"what was over long ago is forgotten": func(s *story) {
			s.gets(s.says(DoEndApps, Command{Reason: "x"}, "p"), nil)
			s.gets(s.at(8*24*3600).beats("q", "app:1"), nil)
			if _, known := s.Lives["p"]; known {
				s.t.Error("it is known after eight days")
			}
		},
	}
	for name, tell := range stories {
		t.Run(name, func(t *testing.T) { tell(newStory(t)) })
	}
}

// Apps that are over make room for others, the oldest first; apps that run do not.
func TestLivesAreBounded(t *testing.T) {
	s := newStory(t)
	all := make([]string, keptLives)
	for i := range all {
		all[i] = fmt.Sprintf("app-%05d", i)
	}
	s.gets(s.says(DoBeatApp, Command{Owner: "app:1", Lease: time.Minute}, all[2:]...), nil)
	s.gets(s.at(1).says(DoEndApps, Command{Reason: "x"}, "old"), nil)
	s.gets(s.at(2).says(DoEndApps, Command{Reason: "x"}, "new"), nil)
	s.gets(s.at(3).beats(all[0], "app:1"), nil)
	s.over("old", "")
	s.over("new", "x")
	s.gets(s.at(4).beats(all[1], "app:1"), nil)
	s.gets(s.at(5).beats("one-more", "app:1"), ErrManyApps)
	if len(s.Lives) != keptLives {
		t.Errorf("%d are kept, want %d", len(s.Lives), keptLives)
	}
}
