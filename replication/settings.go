package replication

import (
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// HideSettings returns err without what a server repeats of the settings that it refused while connecting: one may be a
// secret that somebody has put into options, or under a misspelt name. Names, which are all that code 42704 repeats, stay.
// Errors that are no [pgconn.ConnectError] are returned as they are.
func HideSettings(err error) error {
	failed, ok := errors.AsType[*pgconn.ConnectError](err)
	if !ok {
		return err
	}
	text := err.Error()
	refusals := refusedSettings(failed)
	for _, refusal := range refusals {
		text = strings.ReplaceAll(text, refusal.Message, settingRefused)
		refusal.Message = settingRefused
	}
	if len(refusals) == 0 {
		return err
	}
	return &hidden{err, text}
}

const settingRefused = "a setting in the connection string (options, or a name that is not libpq's) is not accepted; the server's log has its value"

// refusedSettings returns the errors under err that repeat the value of a setting.
func refusedSettings(err error) []*pgconn.PgError {
	switch e := err.(type) { //nolint:errorlint // each error of the tree is looked at by itself
	case *pgconn.PgError:
		if strings.HasPrefix(e.Code, "22") || e.Code == syntaxError {
			return []*pgconn.PgError{e}
		}
	case interface{ Unwrap() error }:
		return refusedSettings(e.Unwrap())
	case interface{ Unwrap() []error }:
		var all []*pgconn.PgError
		for _, one := range e.Unwrap() {
			all = append(all, refusedSettings(one)...)
		}
		return all
	}
	return nil
}

// A hidden is an error whose text has been changed.
type hidden struct {
	err  error
	text string
}

func (h *hidden) Error() string { return h.text }

func (h *hidden) Unwrap() error { return h.err }
