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

// A Reload is the result of a reload: paths of keys.
type Reload struct {
	Changed []string // changed, and effective for new connections and logins
	Restart []string // changed, but effective only after a restart
}

// A reloading is the state that a Config needs for reloads. It is not printed.
type reloading struct {
	contents map[string][sha256.Size]byte // hashes of the secrets when they were loaded, by path
	place    *pgconn.Config               // of source.dsn at that time; nil: there was none
	applied  atomic.Pointer[Config]       // the Config whose secrets are effective; nil: this one
}

// Apply applies the keys of fresh that may change while the process runs: user, password and certificates of source.dsn;
// secrets, token file, CA and client certificate of the broker; and the headers for tracing. fresh must come
// from the same sources. Settings that [Config.Relay] and similar methods have returned use the new values; the fields
// of c do not change. Changed contains log.level if it has changed, and the caller sets the level. Apply may be called
// by one goroutine at a time, while other goroutines use the settings.
//
// The contents of files are read again for each connection, with or without Apply. Apply reports which have changed.
func (c *Config) Apply(fresh *Config) Reload {
	before := c.now()
	next := &Config{
		Source: before.Source, Sink: before.Sink, Tracing: before.Tracing, Log: fresh.Log,
		settings: fresh.settings, sections: fresh.sections, files: maps.Clone(before.files),
		reloading: &reloading{contents: maps.Clone(before.reloading.contents), place: before.reloading.place},
	}
	next.findFields()
	var out Reload
	for _, k := range keys {
		if !reflect.DeepEqual(c.settings[k.path].value, fresh.settings[k.path].value) && k.path != "log.level" && !isReplaceable(k.path) {
			out.Restart = append(out.Restart, k.path)
		}
	}
	for _, r := range replaceable() {
		var changed []string
		restart := false
		for _, path := range r.paths {
			_, was := before.reloading.contents[path]
			_, is := fresh.reloading.contents[path]
			restart = restart || r.fixed && was != is
			if before.reloading.contents[path] != fresh.reloading.contents[path] ||
				path == "source.dsn" && !sameAuthorities(before.reloading.place, fresh.reloading.place) {
				changed = append(changed, path)
			}
		}
		if restart || slices.ContainsFunc(out.Restart, func(path string) bool { return strings.HasPrefix(path, r.section) }) ||
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

// now returns the configuration whose secrets are effective: c, or the last one applied.
func (c *Config) now() *Config {
	if c.reloading != nil { // Load is complete
		if applied := c.reloading.applied.Load(); applied != nil {
			return applied
		}
	}
	return c
}

// A replaced has keys that may change while the process runs. They change together, and only if no other key of the
// section needs a restart.
type replaced struct {
	section string // prefix of paths
	paths   []string
	fixed   bool // they also need a restart if one is set that was not, or the reverse
}

// replacedTLS is the entry of a section of TLS settings.
func replacedTLS(at string) replaced {
	return replaced{section: at, paths: []string{at + "ca_file", at + "cert_file", at + "key_file"}}
}

// replacedLogin is the entry of the secrets that log in, of which some are for a user. The user and the kind of the login
// need a restart.
func replacedLogin(at string, names ...string) replaced {
	r := replaced{section: at + "user", fixed: true}
	for _, name := range names {
		r.paths = append(r.paths, at+name, at+name+"_file")
	}
	return r
}

// replaceable returns all keys that may change while the process runs.
func replaceable() []replaced {
	all := []replaced{{section: "source.dsn", paths: []string{"source.dsn", "source.dsn_file"}}}
	for _, b := range brokers() {
		all = append(all, b.reloads...)
	}
	return append(all, replaced{section: atTracing, paths: []string{atTracing + "headers", atTracing + "headers_file"}})
}

func isSecret(path string) bool {
	k, ok := keyAt(path)
	return ok && k.kind == secret
}

func isReplaceable(path string) bool {
	for _, r := range replaceable() {
		if slices.Contains(r.paths, path) {
			return true
		}
	}
	return false
}

// remember stores hashes of the secrets, so that a reload can tell which have changed.
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
	for _, b := range brokers() {
		for _, entry := range b.reloads {
			for _, path := range entry.paths {
				if name, isFile := strings.CutSuffix(path, "_file"); !isFile || isSecret(name) {
					continue
				}
				content, _ := os.ReadFile(c.field(path).String()) // check has read it; without a file there is no content
				note(path, content)
			}
		}
	}
	if !c.namesSource() {
		return r
	}
	if pg, _, err := parseConninfo(string(c.Source.DSN)); err == nil {
		r.place = &pg.Config
		note("source.dsn", loginOf(&pg.Config))
	}
	return r
}

// loginOf returns the replaceable part of pg: user, password and certificates.
func loginOf(pg *pgconn.Config) []byte {
	login := []byte(pg.User + "\x00" + pg.Password)
	for _, a := range attempts(pg) {
		login = append(login, certificatesOf(a.TLSConfig)...)
	}
	return login
}

// samePlaceOrNone is samePlace if there are a and b; otherwise it reports whether both are nil.
func samePlaceOrNone(a, b *pgconn.Config) bool {
	if a == nil || b == nil {
		return a == b
	}
	return samePlace(a, b)
}

// sameAuthorities reports whether a and b have the same CA certificates. It is true if they lead to different places, or
// one is nil, which other checks report.
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
