package agent

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"time"

	"github.com/lifeboat/lifeboat/await"
	"github.com/lifeboat/lifeboat/durable"
	"github.com/lifeboat/lifeboat/preemption"
	"github.com/lifeboat/lifeboat/systemd"
)

// WatchStart logs, until over is called, that the agent cannot start because the disk of data_dir hangs: each access to it
// waits, and cannot be ended. Nothing can be carried meanwhile, since the records of the blocks lie there; but the cloud's
// notices for this machine are logged, where people look. Call it before Enter, and over once New has returned.
func (c Config) WatchStart(ctx context.Context, dial Dialer, log *slog.Logger) (over func()) {
	return watchStart(ctx, log, func() error { return errors.Join(os.MkdirAll(c.DataDir, 0o750), touch(c.DataDir)) }, func(ctx context.Context) {
		log.Error("the agent does not start: the disk of data_dir does not answer, and nothing leaves this machine until it does", "dir", c.DataDir)
		if cloud, err := c.Cloud.Open(log, dial, nil); err == nil && cloud != nil {
			go c.cryOut(ctx, preemption.NewWatcher(log, cloud), log)
		}
		for ctx.Err() == nil {
			_ = systemd.Status("does not start: the disk of data_dir, %s, does not answer, and nothing leaves this machine until it does", c.DataDir)
			_ = systemd.Starting(startMore) // a kill ends no process that waits for the disk, and the next start would hang too
			await.Sleep(ctx, startMore/2)
		}
	})
}

// watchStart touches data_dir, and calls hangs if that does not return within durable.Patience. The context of hangs ends
// when the disk answers, or with over.
func watchStart(ctx context.Context, log *slog.Logger, touch func() error, hangs func(context.Context)) (over func()) {
	ctx, over = context.WithCancel(ctx)
	began := time.Now()
	touched := await.Beside(func() { _ = touch() }) // Enter and New report what is wrong with it
	go func() {
		select {
		case <-touched:
			return
		case <-ctx.Done():
			return
		case <-time.After(durable.Patience):
		}
		hanging, answers := context.WithCancel(ctx)
		go func() {
			select {
			case <-touched:
				log.Info("the disk of data_dir answers: the agent starts", "took", time.Since(began))
				_ = systemd.Status("starts")
			case <-ctx.Done():
			}
			answers()
		}()
		hangs(hanging)
	}()
	return over
}

// cryOut logs the notices for a machine whose agent cannot start, so that nothing empties it.
func (c Config) cryOut(ctx context.Context, heard *preemption.Watcher, log *slog.Logger) {
	go func() { _ = heard.Run(ctx) }() // it ends with ctx
	for {
		n, err := heard.Next(ctx)
		if err != nil {
			return
		}
		if c.Policy.Stance(n.Kind) != preemption.StanceIgnore {
			log.Error("a notice came before the agent has started: nothing is carried", "kind", n.Kind, "source", n.Source, "withdrawn", n.Withdrawn, preemption.Left(n.Deadline), "reason", n.Reason)
		}
	}
}
