package config

import (
	"crypto/sha256"
	"crypto/tls"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgconn"
)

// A Reload is what became of a configuration that was loaded again. It names keys.
type Reload struct {
	Changed []string // what is in force from now on, for connections and logins that are made from now on
	Restart []string // what has changed and is in force after a restart only
}

// A reloading is what a Config has to know to be loaded again. It is not printed with it.
type reloading struct {
	contents map[string][sha256.Size]byte // of the secrets when they were loaded, by path
	place    *pgconn.Config               // where source.dsn led then; nil: nothing names a source
	adopted  atomic.Pointer[Config]       // whose secrets are in force; nil: its own
}

// Adopt takes over from fresh, which was loaded from the same sources, what may change while the
// process runs: user, password and certificates of source.dsn, Kafka's password, client secret,
// token file, authorities and client certificate, headers for the receiver of spans. What [Config.Relay] and its like have
// returned uses them from then on; the fields of c stay as they are. log.level is among the changes too,
// and left to the caller. Adopt belongs to one goroutine; what it changes may be in use meanwhile.
//
// Files named by either configuration are read again for each connection anyway, so that their
// contents are in force without Adopt. It tells which of them differ from those of the last time.
func (c *Config) Adopt(fresh *Config) Reload {
	before := c.now()
	next := &Config{
		Source: before.Source, Sink: before.Sink, Tracing: before.Tracing, Log: fresh.Log,
		settings: fresh.settings, files: maps.Clone(before.files),
		reloading: &reloading{contents: maps.Clone(before.reloading.contents), place: before.reloading.place},
	}
	var out Reload
	for _, path := range differing(c, fresh) {
		if path != "log.level" && !slices.ContainsFunc(replaceable(), func(r replacement) bool { return slices.Contains(r.paths, path) }) {
			out.Restart = append(out.Restart, path)
		}
	}
	for _, r := range replaceable() {
		var changed []string
		for _, path := range r.paths {
			if before.reloading.contents[path] != fresh.reloading.contents[path] ||
				path == "source.dsn" && !sameAuthorities(before.reloading.place, fresh.reloading.place) {
				changed = append(changed, path)
			}
		}
		if r.blocked(before, fresh, out.Restart) {
			out.Restart = append(out.Restart, changed...)
			continue
		}
		r.take(next, fresh)
		for _, path := range r.paths {
			next.reloading.contents[path] = fresh.reloading.contents[path]
			delete(next.files, path)
			if file := fresh.files[path]; file != "" {
				next.files[path] = file
			}
		}
		out.Changed = append(out.Changed, changed...)
	}
	if before.Log.Level != fresh.Log.Level {
		out.Changed = append(out.Changed, "log.level")
	}
	c.reloading.adopted.Store(next)
	return out
}

// now is the configuration of which secrets are taken: c, or what was adopted.
func (c *Config) now() *Config {
	if c.reloading != nil { // it has been loaded to its end
		if adopted := c.reloading.adopted.Load(); adopted != nil {
			return adopted
		}
	}
	return c
}

// A replacement is keys that are replaced together, or not at all.
type replacement struct {
	paths []string
	// blocked reports whether something else has changed, so that they would not fit: restart has
	// the keys that need one.
	blocked func(before, fresh *Config, restart []string) bool
	take    func(next, fresh *Config)
}

func replaceable() []replacement {
	beside := func(section string) func(_, _ *Config, restart []string) bool {
		return func(_, _ *Config, restart []string) bool {
			return slices.ContainsFunc(restart, func(path string) bool { return strings.HasPrefix(path, section) })
		}
	}
	return []replacement{
		{
			[]string{"source.dsn", "source.dsn_file"},
			func(before, fresh *Config, _ []string) bool {
				was, is := before.reloading.place, fresh.reloading.place
				return (was == nil) != (is == nil) || was != nil && !samePlace(was, is)
			},
			func(next, fresh *Config) {
				next.Source.DSN, next.Source.DSNFile, next.reloading.place = fresh.Source.DSN, fresh.Source.DSNFile, fresh.reloading.place
			},
		},
		{
			[]string{atSASL + "password", atSASL + "password_file", atSASL + "client_secret", atSASL + "client_secret_file", atSASL + "token_file"},
			beside(atSASL),
			func(next, fresh *Config) {
				from, to := &fresh.Sink.Kafka.SASL, &next.Sink.Kafka.SASL
				to.Password, to.ClientSecret, to.TokenFile = from.Password, from.ClientSecret, from.TokenFile
			},
		},
		{
			[]string{atTLS + "ca_file", atTLS + "cert_file", atTLS + "key_file"},
			beside(atTLS),
			func(next, fresh *Config) {
				from, to := &fresh.Sink.Kafka.TLS, &next.Sink.Kafka.TLS
				to.CAFile, to.CertFile, to.KeyFile = from.CAFile, from.CertFile, from.KeyFile
			},
		},
		{
			[]string{atTracing + "headers", atTracing + "headers_file"},
			beside(atTracing),
			func(next, fresh *Config) { next.Tracing.Headers = fresh.Tracing.Headers },
		},
	}
}

// differing returns the keys whose values are not the same in both, in the order of keys.
func differing(a, b *Config) []string {
	var paths []string
	for _, k := range keys {
		if !reflect.DeepEqual(a.settings[k.path].value, b.settings[k.path].value) {
			paths = append(paths, k.path)
		}
	}
	return paths
}

// remember notes what the secrets are, so that it can be told later which have changed.
func (c *Config) remember() *reloading {
	r := &reloading{contents: make(map[string][sha256.Size]byte)}
	note := func(path string, content []byte) {
		if len(content) > 0 {
			r.contents[path] = sha256.Sum256(content)
		}
	}
	k := c.Sink.Kafka
	note(atSASL+"password", []byte(k.SASL.Password))
	note(atSASL+"client_secret", []byte(k.SASL.ClientSecret))
	note(atTracing+"headers", []byte(c.Tracing.Headers))
	for path, file := range map[string]string{
		atSASL + "token_file": k.SASL.TokenFile, atTLS + "ca_file": k.TLS.CAFile, atTLS + "cert_file": k.TLS.CertFile, atTLS + "key_file": k.TLS.KeyFile,
	} {
		if file != "" {
			content, _ := os.ReadFile(file) //nolint:gosec // it has been read and checked by now; which file is the operator's choice
			note(path, content)
		}
	}
	if !c.namesSource() {
		return r
	}
	if pg, err := parseConninfo(string(c.Source.DSN)); err == nil {
		r.place = &pg.Config
		note("source.dsn", loginOf(&pg.Config))
	}
	return r
}

// loginOf is what may be replaced of how a server is reached, in one piece.
func loginOf(pg *pgconn.Config) []byte {
	login := []byte(pg.User + "\x00" + pg.Password)
	for _, a := range attempts(pg) {
		login = append(login, certificatesOf(a.TLSConfig)...)
	}
	return login
}

// sameAuthorities reports whether the same ones are trusted on the way to a and b, which lead to
// the same place; where they do not, or there is none, that is another matter.
func sameAuthorities(a, b *pgconn.Config) bool {
	if a == nil || b == nil || !samePlace(a, b) {
		return true
	}
	bs := attempts(b)
	for i, x := range attempts(a) {
		if x.TLSConfig == nil {
			continue
		}
		was, is := x.TLSConfig.RootCAs, bs[i].TLSConfig.RootCAs
		if (was == nil) != (is == nil) || was != nil && !was.Equal(is) {
			return false
		}
	}
	return true
}

func certificatesOf(cfg *tls.Config) []byte {
	var all []byte
	if cfg == nil {
		return nil
	}
	for _, c := range cfg.Certificates {
		for _, der := range c.Certificate {
			all = append(all, der...)
		}
	}
	return all
}
