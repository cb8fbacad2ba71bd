package config

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/replication"
)

// A word is a parameter of a connection string. The words are those of libpq 18, of the driver, and a few settings of the
// server that the driver's users write there:
// https://www.postgresql.org/docs/18/libpq-connect.html#LIBPQ-PARAMKEYWORDS
type word struct {
	name  string
	env   string // the environment variable, if the driver does not read it
	value valueKind
	// obey makes the connection obey a value that is not empty. The error says what is wrong with the value, and never
	// contains it. Nil: the driver or the server obeys it.
	obey func(s *conninfoSettings, value string) error
}

// A valueKind says whether the value of a word may be shown.
type valueKind uint8

const (
	harmless valueKind = iota
	secretly           // it may be a secret
	aPath              // it is the path of a file, if it looks like one
)

var words = []word{
	{name: "host"},
	{name: "port"},
	{name: "dbname"},
	{name: "database"},
	{name: "user"},
	{name: "password", value: secretly},
	{name: "hostaddr", env: "PGHOSTADDR"}, // see parseConninfo
	{name: "passfile", value: aPath},
	{name: "service"},
	{name: "servicefile", value: aPath},
	{name: "connect_timeout"},
	{name: "target_session_attrs"},
	{name: "application_name"},
	{name: "options", value: secretly},
	{name: "fallback_application_name", obey: (*conninfoSettings).fallbackName},
	{name: "load_balance_hosts", env: "PGLOADBALANCEHOSTS", obey: eitherOf("disable", "random", "the relay tries the hosts in order")},
	{name: "replication", obey: without("the relay chooses the kind of each connection")},
	{name: "client_encoding", env: "PGCLIENTENCODING", obey: (*conninfoSettings).clientEncoding},
	{name: "min_protocol_version"},
	{name: "max_protocol_version"},

	{name: "keepalives", obey: (*conninfoSettings).keepalives},
	{name: "keepalives_idle", obey: keepalive(func(k *net.KeepAliveConfig, n int) { k.Idle = seconds(n) })},
	{name: "keepalives_interval", obey: keepalive(func(k *net.KeepAliveConfig, n int) { k.Interval = seconds(n) })},
	{name: "keepalives_count", obey: keepalive(func(k *net.KeepAliveConfig, n int) { k.Count = cmp.Or(n, -1) })},
	{name: "tcp_user_timeout", obey: (*conninfoSettings).userTimeout},

	{name: "sslmode"},
	{name: "sslnegotiation"},
	{name: "sslsni"},
	{name: "sslcertmode"},
	{name: "sslcert", value: aPath},
	{name: "sslkey", value: aPath},
	{name: "sslpassword", value: secretly},
	{name: "sslrootcert", value: aPath},
	{name: "ssl_min_protocol_version", env: "PGSSLMINPROTOCOLVERSION", obey: tlsVersion(func(s *conninfoSettings, v uint16) { s.minTLS = v })},
	{name: "ssl_max_protocol_version", env: "PGSSLMAXPROTOCOLVERSION", obey: tlsVersion(func(s *conninfoSettings, v uint16) { s.maxTLS = v })},
	{name: "sslcompression", env: "PGSSLCOMPRESSION", obey: eitherOf("0", "1", "TLS has no compression")},
	{name: "sslkeylogfile", value: aPath, obey: without("the relay does not write the keys of its connections")},
	{name: "sslcrl", env: "PGSSLCRL", value: aPath, obey: refused("the relay does not read certificate revocation lists")},
	{name: "sslcrldir", env: "PGSSLCRLDIR", value: aPath, obey: refused("the relay does not read certificate revocation lists")},
	{name: "requiressl", env: "PGREQUIRESSL", obey: refusedUnless("use sslmode=require or verify-full", "0")},
	{name: "ssl", obey: refused("use sslmode")},

	{name: "channel_binding"},
	{name: "require_auth"}, // see checkAuthentication
	{name: "requirepeer", env: "PGREQUIREPEER", obey: (*conninfoSettings).requirePeer},
	{name: "scram_client_key", value: secretly, obey: refused("the relay logs in with the password")},
	{name: "scram_server_key", value: secretly, obey: refused("the relay logs in with the password")},
	{name: "oauth_issuer", obey: refused(noOAuth)},
	{name: "oauth_client_id", obey: refused(noOAuth)},
	{name: "oauth_client_secret", value: secretly, obey: refused(noOAuth)},
	{name: "oauth_scope", obey: refused(noOAuth)},
	{name: "gssencmode", env: "PGGSSENCMODE", obey: refusedUnless("the relay cannot encrypt with GSSAPI; use TLS (sslmode)", "disable", "prefer")},
	{name: "krbsrvname"},
	{name: "krbspn"}, // see checkAuthentication
	{name: "gsslib", env: "PGGSSLIB", obey: without(noGSSAPI)},
	{name: "gssdelegation", env: "PGGSSDELEGATION", obey: without(noGSSAPI)},

	{name: "default_query_exec_mode"},
	{name: "statement_cache_capacity"},
	{name: "description_cache_capacity"},
	{name: "search_path"},
	{name: "timezone"},
	{name: "role"},
}

const (
	noGSSAPI = "the relay does not log in with GSSAPI"
	noOAuth  = "the relay does not log in with OAuth; for a token in place of a password, see source.password_command"
)

// wordNamed returns the word with a name.
func wordNamed(name string) (word, bool) {
	i := slices.IndexFunc(words, func(w word) bool { return w.name == name })
	if i < 0 {
		return word{}, false
	}
	return words[i], true
}

// conninfoSettings is what the words of a connection string add to pg, the settings that the driver has read.
type conninfoSettings struct {
	pg             *pgx.ConnConfig
	dialer         *net.Dialer // nil: the driver's
	minTLS, maxTLS uint16      // 0: the default
	notes          []string    // words without effect, one sentence each
}

// noEffectError is the error of a word that has no effect. The text says why.
type noEffectError string

func (e noEffectError) Error() string { return string(e) }

// obeyWords makes pg obey the words that the driver passes to the server as settings, and removes them. It returns a note
// for each word of the connection string that has no effect. An error contains no value.
func obeyWords(pg *pgx.ConnConfig, dsn string) (notes []string, err error) {
	s := &conninfoSettings{pg: pg}
	for _, w := range words {
		value, written := pg.RuntimeParams[w.name]
		if w.obey == nil {
			continue
		}
		delete(pg.RuntimeParams, w.name)
		name := w.name
		if !written && w.env != "" {
			value, name = os.Getenv(w.env), w.env
		}
		if value == "" {
			continue
		}
		err := w.obey(s, value)
		if ignored, ok := errors.AsType[noEffectError](err); ok {
			if written {
				s.notes = append(s.notes, fmt.Sprintf("%s in source.dsn has no effect: %s", name, ignored))
			}
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(pg.RuntimeParams)) {
		if err := s.setting(name, dsn); err != nil {
			return nil, err
		}
	}
	if err := cmp.Or(s.checkAuthentication(), s.finish()); err != nil {
		return nil, err
	}
	return s.notes, nil
}

// setting handles a parameter that no word of the table has changed: a setting of the server, or a misspelled word.
func (s *conninfoSettings) setting(name, dsn string) error {
	if w, known := wordNamed(name); known && w.obey == nil || strings.Contains(name, ".") { // a name with a dot is never rejected
		return nil
	}
	if replication.Sets(name) {
		s.notes = append(s.notes, name+" in source.dsn has no effect: every session of the relay sets it")
		delete(s.pg.RuntimeParams, name)
		return nil
	}
	distance := func(w word) int { return editDistance(strings.ToLower(name), w.name) }
	near := slices.MinFunc(words, func(a, b word) int { return cmp.Compare(distance(a), distance(b)) })
	switch {
	case distance(near) <= min(2, len(name)/3): // the name is then not a password
		return fmt.Errorf("%s is not a parameter of a connection string%s", name, hint(near.name))
	case strings.HasPrefix(name, "pool_"):
		s.notes = append(s.notes, "pool_… in source.dsn has no effect: the relay has no pool")
		s.notes = slices.Compact(s.notes)
		delete(s.pg.RuntimeParams, name)
		return nil
	}
	which := "a parameter of the service file"
	if i := slices.Index(paramNames(dsn), name); i >= 0 {
		which = fmt.Sprintf("parameter %d", i+1)
	}
	return fmt.Errorf("%s is not one of libpq's (its name is not shown, because it may be part of a password);"+
		" quote a password with spaces, and write a setting of the server into options, as in options='-c work_mem=64MB'", which)
}

// checkAuthentication checks the words about the login, which the driver has read.
func (s *conninfoSettings) checkAuthentication() error {
	if s.pg.KerberosSrvName != "" || s.pg.KerberosSpn != "" {
		s.notes = append(s.notes, "krbsrvname in source.dsn has no effect: "+noGSSAPI)
	}
	methods := strings.Split(s.pg.RequireAuth, ",")
	possible := slices.ContainsFunc(methods, func(m string) bool {
		m = strings.TrimSpace(m)
		return m == "" || strings.HasPrefix(m, "!") || slices.Contains([]string{"password", "md5", "scram-sha-256", "none"}, m)
	})
	if !possible {
		return errors.New("require_auth: the relay logs in with password, md5 or scram-sha-256, or without a password (none)")
	}
	encrypted := slices.ContainsFunc(attempts(&s.pg.Config), func(a *pgconn.FallbackConfig) bool { return a.TLSConfig != nil })
	if s.pg.ChannelBinding == "require" && !encrypted {
		return errors.New("channel_binding: require needs TLS, which a Unix socket and sslmode=disable do not have")
	}
	return nil
}

// finish changes how connections are opened.
func (s *conninfoSettings) finish() error {
	if s.minTLS != 0 && s.maxTLS != 0 && s.minTLS > s.maxTLS {
		return errors.New("ssl_min_protocol_version: must not be higher than ssl_max_protocol_version")
	}
	for _, a := range attempts(&s.pg.Config) {
		if a.TLSConfig != nil {
			a.TLSConfig.MinVersion, a.TLSConfig.MaxVersion = s.minTLS, s.maxTLS
		}
	}
	if s.dialer != nil {
		s.pg.DialFunc = s.dialer.DialContext
	}
	return nil
}

// without returns the obey of a word that has no effect.
func without(why string) func(*conninfoSettings, string) error {
	return func(*conninfoSettings, string) error { return noEffectError(why) }
}

// eitherOf returns the obey of a word with two values, of which the second has no effect.
func eitherOf(ours, ignored, why string) func(*conninfoSettings, string) error {
	return func(_ *conninfoSettings, value string) error {
		switch value {
		case ours:
			return nil
		case ignored:
			return noEffectError(why)
		}
		return fmt.Errorf("must be %s or %s", ours, ignored)
	}
}

// refused returns the obey of a word that demands what the relay cannot do.
func refused(why string) func(*conninfoSettings, string) error { return refusedUnless(why) }

// refusedUnless returns the obey of a word whose other values demand what the relay cannot do.
func refusedUnless(why string, allowed ...string) func(*conninfoSettings, string) error {
	return func(_ *conninfoSettings, value string) error {
		if slices.Contains(allowed, value) {
			return nil
		}
		return errors.New("not supported: " + why)
	}
}

func (s *conninfoSettings) clientEncoding(value string) error {
	if slices.Contains([]string{"utf8", "utf-8", "unicode", "auto"}, strings.ToLower(value)) {
		return nil
	}
	return noEffectError("the relay uses UTF8")
}

func (s *conninfoSettings) fallbackName(name string) error {
	s.pg.RuntimeParams["application_name"] = cmp.Or(s.pg.RuntimeParams["application_name"], name)
	return nil
}

// requirePeer refuses requirepeer for a Unix socket. libpq ignores it for other connections.
func (s *conninfoSettings) requirePeer(string) error {
	if slices.ContainsFunc(attempts(&s.pg.Config), func(a *pgconn.FallbackConfig) bool { return filepath.IsAbs(a.Host) }) {
		return errors.New("not supported: the relay does not check who runs the server at a Unix socket")
	}
	return nil
}

func (s *conninfoSettings) dial() *net.Dialer {
	if s.dialer == nil {
		s.dialer = &net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true}}
	}
	return s.dialer
}

var errNumber = errors.New("must be a number that is not negative")

func (s *conninfoSettings) keepalives(value string) error {
	n, err := strconv.ParseUint(value, 10, 31)
	if err != nil {
		return errNumber
	}
	if n == 0 {
		s.dial().KeepAlive, s.dial().KeepAliveConfig.Enable = -1, false
	}
	return nil
}

// keepalive returns the obey of a number of keepalives. 0 means the default of the system.
func keepalive(set func(*net.KeepAliveConfig, int)) func(*conninfoSettings, string) error {
	return func(s *conninfoSettings, value string) error {
		n, err := strconv.ParseUint(value, 10, 31)
		if err != nil {
			return errNumber
		}
		set(&s.dial().KeepAliveConfig, int(n))
		return nil
	}
}

// seconds returns a time of net.KeepAliveConfig, where a negative one means the default of the system.
func seconds(n int) time.Duration { return cmp.Or(time.Duration(n)*time.Second, -1) }

func (s *conninfoSettings) userTimeout(value string) error {
	n, err := strconv.ParseUint(value, 10, 31)
	if err != nil {
		return errNumber
	}
	if n > 0 {
		s.dial().Control = limitUnacknowledged(int(n))
	}
	return nil
}

// tlsVersions are the versions of TLS in libpq's words, from 0x0301 on.
var tlsVersions = []string{"TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3"}

func tlsVersion(set func(*conninfoSettings, uint16)) func(*conninfoSettings, string) error {
	return func(s *conninfoSettings, value string) error {
		i := slices.IndexFunc(tlsVersions, func(v string) bool { return strings.EqualFold(v, value) })
		if i < 0 {
			return errors.New("must be one of " + strings.Join(tlsVersions, ", "))
		}
		set(s, 0x0301+uint16(i))
		return nil
	}
}

// useAddresses makes pg connect to the addresses of hostaddr. A host is then only a name for the certificate. If a host
// is this machine, or absent, the address takes its place, so that the rules for TLS apply to it.
func useAddresses(pg *pgx.ConnConfig, dsn string) (*pgx.ConnConfig, error) {
	w, _ := wordNamed("hostaddr")
	value := cmp.Or(pg.RuntimeParams[w.name], os.Getenv(w.env))
	delete(pg.RuntimeParams, w.name)
	if value == "" {
		return pg, nil
	}
	addresses := strings.Split(value, ",")
	for _, address := range addresses {
		if net.ParseIP(address) == nil {
			return nil, errors.New("hostaddr: must be an IP address, or several with commas")
		}
	}
	var hosts []string
	for _, a := range attempts(&pg.Config) {
		if isThisMachine(a.Host) {
			again, err := pgx.ParseConfig(withHost(dsn, value))
			if err == nil {
				delete(again.RuntimeParams, w.name)
			}
			return again, err
		}
		if len(hosts) == 0 || hosts[len(hosts)-1] != a.Host {
			hosts = append(hosts, a.Host)
		}
	}
	if len(hosts) == 1 { // one host with several addresses
		hosts = slices.Repeat(hosts, len(addresses))
	}
	if len(hosts) != len(addresses) {
		return nil, fmt.Errorf("hostaddr: there are %d addresses for %d hosts", len(addresses), len(hosts))
	}
	pg.LookupFunc = func(_ context.Context, host string) ([]string, error) {
		var found []string
		for i := range hosts {
			if hosts[i] == host {
				found = append(found, addresses[i])
			}
		}
		return found, nil
	}
	return pg, nil
}
