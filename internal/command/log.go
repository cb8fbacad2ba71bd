package command

import (
	"io"
	"log/slog"
	"time"

	"golang.org/x/term"

	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/config"
)

// NewLogger returns a logger that writes to w with the level and format of cfg. Instructions in its messages have the terms of cfg.
func NewLogger(cfg *config.Config, w io.Writer) *slog.Logger {
	return NewLoggerAt(LevelOf(cfg.Log), cfg, w)
}

// NewLoggerAt is NewLogger with a level that can change.
func NewLoggerAt(level slog.Leveler, cfg *config.Config, w io.Writer) *slog.Logger {
	terms := catalog.Terms{Slot: cfg.Source.Slot, Publication: cfg.Source.Publication, Arguments: cfg.Arguments()}
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr { return readable(a, terms) }}
	if cfg.Log.Format == "text" || cfg.Log.Format == "auto" && IsTerminal(w) {
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

// readable returns a with a duration as 1.5s, for which slog's JSON handler would write 1500000000, and with terms in a text or an error.
func readable(a slog.Attr, terms catalog.Terms) slog.Attr {
	switch v := a.Value.Any().(type) {
	case time.Duration:
		a.Value = slog.StringValue(v.Round(time.Millisecond).String())
	case string:
		a.Value = slog.StringValue(terms.Fill(v))
	case error:
		a.Value = slog.StringValue(terms.Fill(v.Error()))
	}
	return a
}

// IsTerminal reports whether w, a file, is a terminal.
func IsTerminal(w any) bool {
	f, ok := w.(interface{ Fd() uintptr })
	return ok && term.IsTerminal(int(f.Fd()))
}
