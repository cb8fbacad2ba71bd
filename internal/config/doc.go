// Package config merges a YAML file, the environment and the command line into a [Config], and converts a Config to
// the settings of other packages.
//
// The sources are defaults, the file, environment variables and flags. A later source overrides an earlier one, key by
// key. The variable of a key is OUTBOX_CDC_ and its path in capitals, with _ for dots. [Config.declare] has every
// key with its type, default and description. The JSON Schema, the table in docs/configuration.md and the errors about
// wrong values are generated from it.
//
// [Load] reports every problem at once, each with its place (file and line, variable or flag) and the allowed values.
// An unknown key is an error that names the nearest known one: a misspelt key must not leave a default in force
// unnoticed.
//
// Errors, the printed configuration and a formatted Config contain no secrets, not even those of a connection string.
//
// The settings contain functions that read secrets and certificates from files again for each connection or login. So
// the files may be replaced while the process runs.
//
// No other package reads the process environment. Connection strings follow libpq, with its PG* variables, service
// files and password files: https://www.postgresql.org/docs/current/libpq-connect.html. Unlike libpq, a connection to
// another machine uses verified TLS unless an sslmode is set; see [Config.Postgres].
package config
