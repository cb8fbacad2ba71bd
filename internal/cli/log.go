package cli

import (
	"io"
	"log/slog"
	"time"

	"golang.org/x/term"

	"github.com/outbox-cdc/outbox-cdc/internal/config"
)

// newLogger returns a logger that writes to w as cfg says.
func newLogger(cfg config.Log, w io.Writer) *slog.Logger {
	return newLoggerAt(levelOf(cfg), cfg, w)
}

// newLoggerAt is newLogger with a level that may change.
func newLoggerAt(level slog.Leveler, cfg config.Log, w io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: durationsAsText}
	if cfg.Format == "text" || cfg.Format == "auto" && isTerminal(w) {
		return slog.New(slog.NewTextHandler(w, options))
	}
	return slog.New(slog.NewJSONHandler(w, options))
}

func levelOf(cfg config.Log) slog.Level {
	var level slog.Level
	_ = level.UnmarshalText([]byte(cfg.Level)) // config has checked it; slog knows all four
	return level
}

// durationsAsText writes 1.5s where slog's JSON would have 1500000000.
func durationsAsText(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().Round(time.Millisecond).String())
	}
	return a
}

func isTerminal(w any) bool {
	f, ok := w.(interface{ Fd() uintptr })
	return ok && term.IsTerminal(int(f.Fd()))
}
