package cli

import (
	"context"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/command"
	"github.com/outbox-cdc/outbox-cdc/internal/config"
)

// A reloader reloads the configuration at each SIGHUP.
type reloader struct {
	load  func() (*config.Config, error)
	level slog.LevelVar // of the log
	hup   chan os.Signal
}

// newReloader returns a reloader that receives SIGHUP from now on, because a SIGHUP must not end a process that
// is still starting.
func newReloader(load func() (*config.Config, error)) *reloader {
	r := &reloader{load: load, hup: make(chan os.Signal, 1)}
	signal.Notify(r.hup, syscall.SIGHUP)
	return r
}

// logger returns a logger whose level a reload can change.
func (r *reloader) logger(cfg *config.Config, w io.Writer) *slog.Logger {
	r.level.Set(command.LevelOf(cfg.Log))
	return command.NewLoggerAt(&r.level, cfg, w)
}

// during applies changed keys to cfg at each signal, until stop is called or ctx ends.
func (r *reloader) during(ctx context.Context, cfg *config.Config, log *slog.Logger) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var loading sync.WaitGroup
	loading.Go(func() {
		for {
			select {
			case <-r.hup:
				r.reload(ctx, cfg, log)
			case <-ctx.Done():
				return
			}
		}
	})
	return func() {
		cancel()
		loading.Wait()
	}
}

func (r *reloader) reload(ctx context.Context, cfg *config.Config, log *slog.Logger) {
	fresh, err := r.load()
	if err != nil {
		log.ErrorContext(ctx, "configuration not reloaded: what was in force stays", slog.Any("err", err))
		return
	}
	reload := cfg.Apply(fresh)
	r.level.Set(command.LevelOf(fresh.Log))
	line := slog.NewRecord(time.Now(), slog.LevelInfo, "configuration reloaded", 0)
	line.AddAttrs(slog.String("changed", strings.Join(reload.Changed, ", ")))
	if len(reload.Restart) > 0 {
		line.Level, line.Message = slog.LevelWarn, "configuration reloaded: some of it only counts after a restart"
		line.AddAttrs(slog.String("needs_restart", strings.Join(reload.Restart, ", ")))
	}
	_ = log.Handler().Handle(ctx, line) // not filtered by the level
}

// close stops receiving SIGHUP: the next one ends the process.
func (r *reloader) close() { signal.Stop(r.hup) }
