package replication

import (
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// HideSettings returns err without the values of settings that the server rejected while connecting. Such a value may be a
// secret, for example in options or under a misspelt parameter name. Names stay; they are all that SQLSTATE 42704 repeats.
// HideSettings returns an error that is no [pgconn.ConnectError] unchanged.
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

const settingRefused = "the server rejects a setting of the connection string (in options, or a parameter that libpq does not know); its log has the value"

// refusedSettings returns the errors in the tree of err that contain the value of a setting.
func refusedSettings(err error) []*pgconn.PgError {
	switch e := err.(type) { //nolint:errorlint // visits each error of the tree
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

// A hidden is an error with another text.
type hidden struct {
	err  error
	text string
}

func (h *hidden) Error() string { return h.text }

func (h *hidden) Unwrap() error { return h.err }
