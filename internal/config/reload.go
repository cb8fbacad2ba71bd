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
	applied  atomic.Pointer[Config]       // whose secrets are in force; nil: its own
}

// Apply takes over from fresh, which was loaded from the same sources, what may change while the
// process runs: user, password and certificates of source.dsn, Kafka's password, client secret,
// token file, authorities and client certificate, headers for the receiver of spans. What [Config.Relay] and its like have
// returned uses them from then on; the fields of c stay as they are. log.level is among the changes too,
// and left to the caller. Apply belongs to one goroutine; what it changes may be in use meanwhile.
//
// Files named by either configuration are read again for each connection anyway, so that their
// contents are in force without Apply. It tells which of them differ from those of the last time.
func (c *Config) Apply(fresh *Config) Reload {
	before := c.now()
	next := &Config{
		Source: before.Source, Sink: before.Sink, Tracing: before.Tracing, Log: fresh.Log,
		settings: fresh.settings, files: maps.Clone(before.files),
		reloading: &reloading{contents: maps.Clone(before.reloading.contents), place: before.reloading.place},
	}
	var out Reload
	for _, k := range keys {
		if !reflect.DeepEqual(c.settings[k.path].value, fresh.settings[k.path].value) && k.path != "log.level" && !isReplaceable(k.path) {
			out.Restart = append(out.Restart, k.path)
		}
	}
	for _, r := range replaceable {
		var changed []string
		for _, path := range r.paths {
			if before.reloading.contents[path] != fresh.reloading.contents[path] ||
				path == "source.dsn" && !sameAuthorities(before.reloading.place, fresh.reloading.place) {
				changed = append(changed, path)
			}
		}
		if slices.ContainsFunc(out.Restart, func(path string) bool { return strings.HasPrefix(path, r.section) }) ||
			r.section == "source.dsn" && !samePlaceOrNone(before.reloading.place, fresh.reloading.place) {
			out.Restart = append(out.Restart, changed...)
			continue
		}
		for _, path := range r.paths {
			next.field(path).Set(fresh.field(path))
			next.reloading.contents[path] = fresh.reloading.contents[path]
			next.files[path] = fresh.files[path]
		}
		if r.section == "source.dsn" {
			next.reloading.place = fresh.reloading.place
		}
		out.Changed = append(out.Changed, changed...)
	}
	if before.Log.Level != fresh.Log.Level {
		out.Changed = append(out.Changed, "log.level")
	}
	c.reloading.applied.Store(next)
	return out
}

// now is the configuration whose secrets are in force: c, or the last one applied.
func (c *Config) now() *Config {
	if c.reloading != nil { // it has been loaded to its end
		if applied := c.reloading.applied.Load(); applied != nil {
			return applied
		}
	}
	return c
}

// replaceable are the keys that may change while the process runs: those of an entry together, and
// only if nothing else in its section needs a restart.
var replaceable = []struct {
	section string
	paths   []string
}{
	{"source.dsn", []string{"source.dsn", "source.dsn_file"}},
	{atSASL, []string{atSASL + "password", atSASL + "password_file", atSASL + "client_secret", atSASL + "client_secret_file", atSASL + "token_file"}},
	{atTLS, []string{atTLS + "ca_file", atTLS + "cert_file", atTLS + "key_file"}},
	{atTracing, []string{atTracing + "headers", atTracing + "headers_file"}},
}

func isReplaceable(path string) bool {
	for _, r := range replaceable {
		if slices.Contains(r.paths, path) {
			return true
		}
	}
	return false
}

// remember notes what the secrets are, so that it can be told later which have changed.
func (c *Config) remember() *reloading {
	r := &reloading{contents: make(map[string][sha256.Size]byte)}
	note := func(path string, content []byte) {
		if len(content) > 0 {
			r.contents[path] = sha256.Sum256(content)
		}
	}
	for _, k := range keys {
		if k.kind == secret {
			note(k.path, []byte(c.field(k.path).String()))
		}
	}
	for _, path := range []string{atSASL + "token_file", atTLS + "ca_file", atTLS + "cert_file", atTLS + "key_file"} {
		content, _ := os.ReadFile(c.field(path).String()) // it has been read and checked by now; no name has no content
		note(path, content)
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

// samePlaceOrNone reports whether a and b lead to the same place, or neither leads anywhere.
func samePlaceOrNone(a, b *pgconn.Config) bool {
	if a == nil || b == nil {
		return a == b
	}
	return samePlace(a, b)
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
