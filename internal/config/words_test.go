package config

import (
	"crypto/tls"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/test/kit/certtest"
)

// TestWords: every word that libpq 18 documents is obeyed, has no effect and is noted, or is an error before anything is
// sent. None becomes a setting of the server that it is not. Every word is tried in both forms of a connection string.
func TestWords(t *testing.T) {
	cleanEnviron(t)
	roots := file(t, "ca.pem", certtest.New().PEM())
	services := file(t, "services", []byte("[s]\nhost=db\n"))
	for _, tt := range []struct {
		word, value string
		note, says  string // part of the note, or of the error; both empty: the word is obeyed
	}{
		{word: "host", value: "db"},
		{word: "hostaddr", value: "10.0.0.7"},
		{word: "port", value: "6543"},
		{word: "dbname", value: "app"},
		{word: "user", value: "cdc"},
		{word: "password", value: "pw"},
		{word: "passfile", value: "/etc/pgpass"},
		{word: "require_auth", value: "scram-sha-256"},
		{word: "require_auth", value: "!password"},
		{word: "channel_binding", value: "require"},
		{word: "connect_timeout", value: "3"},
		{word: "client_encoding", value: "LATIN1", note: "client_encoding in source.dsn has no effect: the relay uses UTF8"},
		{word: "client_encoding", value: "UTF8"},
		{word: "client_encoding", value: "auto"},
		{word: "options", value: "-c work_mem=64MB"},
		{word: "application_name", value: "x"},
		{word: "fallback_application_name", value: "x"},
		{word: "keepalives", value: "0"},
		{word: "keepalives", value: "1"},
		{word: "keepalives_idle", value: "30"},
		{word: "keepalives_interval", value: "5"},
		{word: "keepalives_count", value: "3"},
		{word: "tcp_user_timeout", value: "10000"},
		{word: "replication", value: "database", note: "replication in source.dsn has no effect"},
		{word: "gssencmode", value: "disable"},
		{word: "gssencmode", value: "prefer"},
		{word: "sslmode", value: "require"},
		{word: "requiressl", value: "0"},
		{word: "sslnegotiation", value: "direct"},
		{word: "sslcompression", value: "0"},
		{word: "sslcompression", value: "1", note: "TLS has no compression"},
		{word: "sslpassword", value: "x"},
		{word: "sslcertmode", value: "disable"},
		{word: "sslrootcert", value: roots},
		{word: "sslsni", value: "0"},
		{word: "sslkeylogfile", value: "/tmp/keys", note: "sslkeylogfile in source.dsn"},
		{word: "ssl_min_protocol_version", value: "TLSv1.3"},
		{word: "ssl_max_protocol_version", value: "TLSv1.2"},
		{word: "min_protocol_version", value: "3.0"},
		{word: "max_protocol_version", value: "latest"},
		{word: "krbsrvname", value: "postgres", note: "does not log in with GSSAPI"},
		{word: "gsslib", value: "gssapi", note: "does not log in with GSSAPI"},
		{word: "gssdelegation", value: "1", note: "does not log in with GSSAPI"},
		{word: "service", value: "s"},
		{word: "servicefile", value: services},
		{word: "target_session_attrs", value: "read-write"},
		{word: "load_balance_hosts", value: "disable"},
		{word: "load_balance_hosts", value: "random", note: "tries the hosts in order"},
		{word: "requirepeer", value: "postgres"}, // db is no Unix socket

		{word: "hostaddr", value: "db", says: "hostaddr: must be an IP address"},
		{word: "hostaddr", value: "10.0.0.7,10.0.0.8,", says: "hostaddr: must be an IP address"},
		{word: "keepalives", value: "yes", says: "keepalives: must be a number"},
		{word: "keepalives_idle", value: "-1", says: "keepalives_idle: must be a number"},
		{word: "tcp_user_timeout", value: "10s", says: "tcp_user_timeout: must be a number"},
		{word: "gssencmode", value: "require", says: "gssencmode: not supported: the relay cannot encrypt with GSSAPI"},
		{word: "require_auth", value: "gss,sspi", says: "require_auth: the relay logs in with password"},
		{word: "requiressl", value: "1", says: "requiressl: not supported: use sslmode=require"},
		{word: "ssl_min_protocol_version", value: "SSLv3", says: "ssl_min_protocol_version: must be one of TLSv1, TLSv1.1, TLSv1.2, TLSv1.3"},
		{word: "load_balance_hosts", value: "round-robin", says: "load_balance_hosts: must be disable or random"},
		{word: "sslcompression", value: "2", says: "sslcompression: must be 0 or 1"},
		{word: "sslcrl", value: "/etc/crl.pem", says: "sslcrl: not supported: the relay does not read certificate revocation lists"},
		{word: "sslcrldir", value: "/etc/crl", says: "sslcrldir: not supported"},
		{word: "scram_client_key", value: "x", says: "scram_client_key: not supported"},
		{word: "scram_server_key", value: "x", says: "scram_server_key: not supported"},
		{word: "oauth_issuer", value: "https://x", says: "oauth_issuer: not supported: the relay does not log in with OAuth"},
		{word: "oauth_client_id", value: "x", says: "source.password_command"},
		{word: "oauth_client_secret", value: "x", says: "oauth_client_secret"},
		{word: "oauth_scope", value: "x", says: "oauth_scope"},
		{word: "sslcert", value: roots, says: "sslkey"},
		{word: "sslkey", value: roots, says: "sslcert"},

		// Words of others.
		{word: "search_path", value: "app"},
		{word: "timezone", value: "UTC"},
		{word: "role", value: "owner"},
		{word: "app.tenant", value: "1"},
		{word: "statement_timeout", value: "5s", note: "statement_timeout in source.dsn has no effect: every session of the relay sets it"},
		{word: "DateStyle", value: "German", note: "DateStyle in source.dsn has no effect"},
		{word: "transaction_timeout", value: "5s", note: "transaction_timeout in source.dsn has no effect"},
		{word: "pool_max_conns", value: "4", note: "the relay has no pool"},
		{word: "statement_cache_capacity", value: "4"},
		{word: "sslmodee", value: "require", says: "sslmodee is not a parameter of a connection string; did you mean sslmode?"},
		{word: "keepalive_idle", value: "1", says: "keepalive_idle is not a parameter of a connection string; did you mean keepalives_idle?"},
		{word: "Keepalives", value: "1", says: "did you mean keepalives?"},
		{word: "pgbouncer", value: "true", says: "parameter 2 is not one of libpq's"},
		{word: "work_mem", value: "64MB", says: "write a setting of the server into options, as in options='-c work_mem=64MB'"},
	} {
		for _, dsn := range []string{
			"host=db " + tt.word + "='" + tt.value + "'",
			"postgres://db?application_name=a&" + tt.word + "=" + url.QueryEscape(tt.value),
		} {
			if tt.word == "servicefile" {
				dsn = "service=s " + tt.word + "=" + tt.value
			}
			if tt.word == "service" {
				t.Setenv("PGSERVICEFILE", services)
			}
			pg, notes, err := parseConninfo(dsn)
			if tt.says != "" {
				if err == nil || !strings.Contains(err.Error(), tt.says) {
					t.Errorf("%s: error = %v, want %q", dsn, err, tt.says)
				}
				continue
			}
			if err != nil {
				t.Errorf("%s: %v", dsn, err)
				continue
			}
			if noted := strings.Join(notes, "\n"); (tt.note == "") != (noted == "") || !strings.Contains(noted, tt.note) {
				t.Errorf("%s: notes %q, want %q", dsn, noted, tt.note)
			}
			for _, name := range slices.Sorted(maps.Keys(pg.RuntimeParams)) {
				if !slices.Contains([]string{"application_name", "options", "search_path", "timezone", "role", "app.tenant"}, name) {
					t.Errorf("%s: %s is sent to the server", dsn, name)
				}
			}
		}
	}
}

// TestWordsOfTheEnvironment: libpq's variables that the driver does not read are obeyed too. Those without effect are not
// noted, because they may be meant for other programs.
func TestWordsOfTheEnvironment(t *testing.T) {
	cleanEnviron(t)
	for name, tt := range map[string]struct{ value, says string }{
		"PGGSSENCMODE":            {"require", "PGGSSENCMODE: not supported"},
		"PGSSLCRL":                {"/etc/crl.pem", "PGSSLCRL: not supported"},
		"PGSSLMINPROTOCOLVERSION": {"TLSv9", "PGSSLMINPROTOCOLVERSION: must be one of"},
		"PGHOSTADDR":              {"nowhere", "hostaddr: must be an IP address"},
		"PGCLIENTENCODING":        {"LATIN1", ""},
		"PGLOADBALANCEHOSTS":      {"random", ""},
	} {
		t.Setenv(name, tt.value)
		_, notes, err := parseConninfo("host=db")
		if tt.says == "" && err != nil || tt.says != "" && (err == nil || !strings.Contains(err.Error(), tt.says)) || len(notes) > 0 {
			t.Errorf("%s: %v, notes %q", name, err, notes)
		}
		if err := os.Unsetenv(name); err != nil {
			t.Fatal(err)
		}
	}
}

// TestNotes: a word without effect is one warning, and an error names the key.
func TestNotes(t *testing.T) {
	cleanEnviron(t)
	cfg, err := Load(Sources{Flags: settings("source.dsn", "host=localhost load_balance_hosts=random pool_max_conns=3 pool_min_conns=1")})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"load_balance_hosts in source.dsn has no effect", "pool_… in source.dsn has no effect"} {
		n := 0
		for _, warning := range cfg.Warnings() {
			if strings.Contains(warning, want) {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%d warnings of %q:\n%s", n, want, strings.Join(cfg.Warnings(), "\n"))
		}
	}
	_, err = Load(Sources{Flags: settings("source.dsn", "host=localhost gssencmode=require")})
	if err == nil || !isMistake(err) || !strings.Contains(err.Error(), "source.dsn: gssencmode") {
		t.Errorf("error = %v", err)
	}
}

// TestTLSVersions: the versions of TLS that the words allow are those that a server can use.
func TestTLSVersions(t *testing.T) {
	cleanEnviron(t)
	authority := certtest.New()
	trusted := file(t, "ca.pem", authority.PEM())
	for _, tt := range []struct {
		dsn      string
		min, max uint16
		ok       bool
	}{
		{"", tls.VersionTLS10, tls.VersionTLS11, false},
		{"ssl_min_protocol_version=TLSv1", tls.VersionTLS10, tls.VersionTLS11, true},
		{"ssl_min_protocol_version=tlsv1.3", tls.VersionTLS12, tls.VersionTLS12, false},
		{"ssl_min_protocol_version=TLSv1.3", tls.VersionTLS12, tls.VersionTLS13, true},
		{"ssl_max_protocol_version=TLSv1.2", tls.VersionTLS13, tls.VersionTLS13, false},
		{"ssl_min_protocol_version=TLSv1.2 ssl_max_protocol_version=TLSv1.2", tls.VersionTLS12, tls.VersionTLS13, true},
	} {
		db := authority.Issue(time.Now().Add(time.Hour), "db").TLS
		s := startServer(t, "", &tls.Config{Certificates: []tls.Certificate{db}, MinVersion: tt.min, MaxVersion: tt.max})
		if err := dial(t, s.source(t, "source.dsn", "host=db user=cdc sslrootcert="+trusted+" "+tt.dsn)); (err == nil) != tt.ok {
			t.Errorf("%q with a server of %x to %x: %v", tt.dsn, tt.min, tt.max, err)
		}
	}
	_, _, err := parseConninfo("host=db ssl_min_protocol_version=TLSv1.3 ssl_max_protocol_version=TLSv1.2")
	if err == nil || !strings.Contains(err.Error(), "must not be higher") {
		t.Errorf("the least above the most: %v", err)
	}
}

// TestHostaddr: hostaddr is where the relay connects to, and host is the name that the certificate must have. Without a
// host, the certificate must have the address. An address of another machine needs TLS, whatever the host is called.
func TestHostaddr(t *testing.T) {
	cleanEnviron(t)
	authority := certtest.New()
	trusted := file(t, "ca.pem", authority.PEM())
	s := startServer(t, "", &tls.Config{Certificates: []tls.Certificate{authority.Issue(time.Now().Add(time.Hour), "db").TLS}})
	_, port, _ := strings.Cut(s.addr, ":")
	for dsn, ok := range map[string]bool{
		"host=db hostaddr=127.0.0.1 sslrootcert=" + trusted:                       true,
		"host=other hostaddr=127.0.0.1 sslrootcert=" + trusted:                    false,
		"hostaddr=127.0.0.1 sslmode=require":                                      true,
		"hostaddr=127.0.0.1 sslmode=verify-full sslrootcert=" + trusted:           false,
		"host=db,db hostaddr=127.0.0.2,127.0.0.1 sslmode=require":                 true,
		"host=db sslmode=require hostaddr=127.0.0.1 target_session_attrs=primary": false, // the server of this test ends the session
	} {
		cfg, err := Load(Sources{Flags: settings("source.dsn", "user=cdc port="+port+" "+dsn)})
		if err != nil {
			t.Errorf("%s: %v", dsn, err)
			continue
		}
		pg, err := cfg.Postgres()
		if err != nil {
			t.Fatal(err)
		}
		if err := dial(t, pg); (err == nil) != ok {
			t.Errorf("%s: %v", dsn, err)
		}
	}
	for _, dsn := range []string{
		"hostaddr=10.0.0.7", "host=localhost hostaddr=10.0.0.7", "host=/run/pg hostaddr=10.0.0.7",
		"postgres:///app?hostaddr=10.0.0.7", "postgres://localhost/app?hostaddr=10.0.0.7",
	} {
		pg, _, err := parseConninfo(dsn)
		if err != nil {
			t.Errorf("%s: %v", dsn, err)
		} else if pg.Host != "10.0.0.7" || pg.TLSConfig == nil || pg.TLSConfig.InsecureSkipVerify || len(pg.Fallbacks) > 0 {
			t.Errorf("%s: connects to %s, TLS %v", dsn, pg.Host, pg.TLSConfig)
		}
	}
	if _, _, err := parseConninfo("host=a,b hostaddr=10.0.0.7"); err == nil || !strings.Contains(err.Error(), "1 addresses for 2 hosts") {
		t.Errorf("error = %v", err)
	}
}

// TestApplicationName: fallback_application_name applies if there is no application_name.
func TestApplicationName(t *testing.T) {
	cleanEnviron(t)
	for dsn, want := range map[string]string{
		"host=db":                             "outbox-cdc",
		"host=db fallback_application_name=f": "f",
		"host=db application_name=a fallback_application_name=f": "a",
	} {
		pg, _, err := parseConninfo(dsn)
		if err != nil {
			t.Fatal(err)
		}
		if got := replication.Ordinary(&pg.Config).RuntimeParams["application_name"]; got != want {
			t.Errorf("%s: application_name is %q, want %q", dsn, got, want)
		}
	}
}

// TestUnixSocketWords: some words cannot be obeyed at a Unix socket.
func TestUnixSocketWords(t *testing.T) {
	cleanEnviron(t)
	dir := filepath.Join(t.TempDir(), "pg")
	for word, says := range map[string]string{
		"sslmode=disable channel_binding=require": "channel_binding: require needs TLS",
		"requirepeer=postgres":                    "requirepeer: not supported",
		"channel_binding=require":                 "channel_binding: require needs TLS",
		"tcp_user_timeout=1000":                   "",
		"keepalives_idle=10":                      "",
	} {
		_, _, err := parseConninfo("host=" + dir + " " + word)
		if says == "" && err != nil || says != "" && (err == nil || !strings.Contains(err.Error(), says)) {
			t.Errorf("%s: %v", word, err)
		}
	}
}
