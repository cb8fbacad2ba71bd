package command

import (
	"io"
	"log/slog"
	"time"

	"golang.org/x/term"

	"github.com/outbox-cdc/outbox-cdc/internal/config"
)

// NewLogger returns a logger that writes to w with the level and format of cfg.
func NewLogger(cfg config.Log, w io.Writer) *slog.Logger {
	return NewLoggerAt(LevelOf(cfg), cfg, w)
}

// NewLoggerAt is NewLogger with a level that can change.
func NewLoggerAt(level slog.Leveler, cfg config.Log, w io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: durationsAsText}
	if cfg.Format == "text" || cfg.Format == "auto" && IsTerminal(w) {
		return slog.New(slog.NewTextHandler(w, options))
	}
	return slog.New(slog.NewJSONHandler(w, options))
}

// LevelOf returns the level of cfg.
func LevelOf(cfg config.Log) slog.Level {
	var level slog.Level
	_ = level.UnmarshalText([]byte(cfg.Level)) // config allows only the four that slog knows
	return level
}

// durationsAsText writes durations as 1.5s. slog's JSON handler would write 1500000000.
func durationsAsText(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().Round(time.Millisecond).String())
	}
	return a
}

// IsTerminal reports whether w, a file, is a terminal.
func IsTerminal(w any) bool {
	f, ok := w.(interface{ Fd() uintptr })
	return ok && term.IsTerminal(int(f.Fd()))
}
