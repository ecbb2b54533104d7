package coordinator

import (
	"context"
	"errors"
	"io"
	"log"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// raftLog passes raft's warnings and errors to slog. Before the first election it passes errors only, because a lone voter warns at
// every start that it heard from no leader. A repeated message passes once a minute: with a failing disk raft says the same several
// times a second. A broken connection to another coordinator, as after each restart of one, is no error here: attendance reports
// coordinators that stay away.
type raftLog struct {
	hclog.Logger // a null logger, for the methods that are not overridden
	*raftSpeech
	name string
	args []any
}

// raftSpeech is shared by a logger and the loggers made from it.
type raftSpeech struct {
	log   *slog.Logger
	began atomic.Bool

	mu   sync.Mutex // guards said
	said map[string]time.Time
}

const repeatPause = time.Minute

func newRaftLog(l *slog.Logger) *raftLog {
	return &raftLog{Logger: hclog.NewNullLogger(), raftSpeech: &raftSpeech{log: l, said: map[string]time.Time{}}, name: "raft"}
}

func (l *raftLog) least() slog.Level {
	if l.began.Load() {
		return slog.LevelWarn
	}
	return slog.LevelError
}

func (l *raftLog) put(level slog.Level, msg string, args []any) {
	if level < l.least() || !l.anew(msg) {
		return
	}
	args = slices.Concat(l.args, args)
	if i := slices.Index(args, any(slog.TimeKey)); i >= 0 {
		args[i] = "silent" // raft's word for how long it has not reached another one: in JSON it would take the place of the line's own time
	}
	l.log.Log(context.Background(), level, l.name+": "+msg, args...)
}

// ousted is raft's error when a leader hears that another leads. Each hand-over of the lead ends with it.
const ousted = "peer has newer term, stopping replication"

// gravity is the level at which an error of raft's is logged: debug for errors of the connection to another coordinator.
func gravity(msg string, args []any) slog.Level {
	if msg == ousted {
		return slog.LevelDebug
	}
	for _, arg := range args {
		err, ok := arg.(error)
		if !ok {
			continue
		}
		if broken, is := errors.AsType[interface {
			error
			Cause() error
		}](err); is { // the decoder's, amid a message
			err = broken.Cause()
		}
		said, ok := errors.AsType[*net.OpError](err)
		if ok && said.Op != "remote error" || errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, errSilent) ||
			errors.Is(err, raft.ErrTransportShutdown) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, raft.ErrLogNotFound) {
			// "remote error" is TLS's, that the other one does not trust this one, and stays an error. ErrLogNotFound is no fault: a coordinator
			// that was away for long is sent a snapshot.
			return slog.LevelDebug
		}
	}
	return slog.LevelError
}

// anew reports whether msg was not logged within repeatPause. Raft's messages are constants, a few dozen of them.
func (l *raftSpeech) anew(msg string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if at, ok := l.said[msg]; ok && now.Sub(at) < repeatPause {
		return false
	}
	l.said[msg] = now
	return true
}

func (l *raftLog) Log(level hclog.Level, msg string, args ...any) {
	switch level {
	case hclog.Warn:
		l.Warn(msg, args...)
	case hclog.Error:
		l.Error(msg, args...)
	}
}

func (l *raftLog) Warn(msg string, args ...any)   { l.put(slog.LevelWarn, msg, args) }
func (l *raftLog) Error(msg string, args ...any)  { l.put(gravity(msg, args), msg, args) }
func (l *raftLog) IsWarn() bool                   { return l.least() <= slog.LevelWarn }
func (l *raftLog) IsError() bool                  { return true }
func (l *raftLog) Named(name string) hclog.Logger { return l.ResetNamed(l.name + "." + name) }

func (l *raftLog) With(args ...any) hclog.Logger {
	c := *l
	c.args = append(l.args[:len(l.args):len(l.args)], args...)
	return &c
}

func (l *raftLog) ResetNamed(name string) hclog.Logger {
	c := *l
	c.name = name
	return &c
}

func (l *raftLog) StandardLogger(*hclog.StandardLoggerOptions) *log.Logger {
	return slog.NewLogLogger(l.log.Handler(), slog.LevelWarn)
}

func (l *raftLog) StandardWriter(o *hclog.StandardLoggerOptions) io.Writer {
	return l.StandardLogger(o).Writer()
}
