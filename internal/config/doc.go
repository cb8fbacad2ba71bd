// Package config turns a YAML file, the environment and the command line into one Config,
// and a Config into the settings of the packages that do the work.
//
// Sources, later ones win key by key: defaults, the file, variables named OUTBOX_CDC_ and
// the key's path in capitals with _ for the dots, flags. Every key, its type, its default
// and its description stand in one table, keys.go; the JSON Schema, the table in
// docs/configuration.md and the messages about wrong values are made from it.
//
// [Load] reports every problem it finds at once, each with the place it comes from (file and
// line, variable or flag) and what is allowed there. An unknown key is an error that names
// the nearest known one: a misspelt key must not silently leave a default in force.
//
// No error, no printed configuration and no formatted Config shows a password, also not one
// inside a connection string.
//
// A secret or certificate that comes from a file is read again for each connection or login, by
// functions that the settings carry: it may be replaced while the process runs.
//
// This package is the only reader of the process environment. Connection strings are
// libpq's, with its PG* variables, service and password files:
// https://www.postgresql.org/docs/current/libpq-connect.html. Unlike libpq, a connection to
// another machine is encrypted and verified unless an sslmode was chosen; see [Config.Postgres].
package config
