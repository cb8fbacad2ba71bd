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

	"github.com/outbox-cdc/outbox-cdc/internal/command"
	"github.com/outbox-cdc/outbox-cdc/internal/config"
)

// A reloader loads the configuration again at each SIGHUP.
type reloader struct {
	load  func() (*config.Config, error)
	level slog.LevelVar // of the log
	hup   chan os.Signal
}

// newReloader returns a reloader that notes signals from now on: a process that is asked to reload
// while it starts must not end of it.
func newReloader(load func() (*config.Config, error)) *reloader {
	r := &reloader{load: load, hup: make(chan os.Signal, 1)}
	signal.Notify(r.hup, syscall.SIGHUP)
	return r
}

// logger is newLogger for a process whose configuration is loaded again.
func (r *reloader) logger(cfg config.Log, w io.Writer) *slog.Logger {
	r.level.Set(command.LevelOf(cfg))
	return command.NewLoggerAt(&r.level, cfg, w)
}

// during takes over into cfg what may change, at each signal until its result is called or ctx ends.
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
	level := command.LevelOf(fresh.Log)
	r.level.Set(min(level, r.level.Level())) // a line about more lines is one of them
	defer r.level.Set(level)
	changed := slog.String("changed", strings.Join(reload.Changed, ", "))
	if len(reload.Restart) > 0 {
		log.WarnContext(ctx, "configuration reloaded: some of it only counts after a restart", changed,
			slog.String("needs_restart", strings.Join(reload.Restart, ", ")))
	} else {
		log.InfoContext(ctx, "configuration reloaded", changed)
	}
}

// close ends the noting of signals: the next one ends the process.
func (r *reloader) close() { signal.Stop(r.hup) }
