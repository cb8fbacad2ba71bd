package config

import (
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/test/kit/certtest"
)

// cleanEnviron clears every PG* variable, and hides the files of the home directory.
func cleanEnviron(t *testing.T) {
	t.Helper()
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "PG") {
			t.Setenv(name, "")
		}
	}
	t.Setenv("HOME", t.TempDir())
}

// TestTLSRule lists every connection attempt for a connection string.
func TestTLSRule(t *testing.T) {
	cleanEnviron(t)
	services := filepath.Join(t.TempDir(), "services")
	if err := os.WriteFile(services, []byte("[plain]\nhost=db\nsslmode=disable\n[silent]\nhost=db\n[prefer]\nhost=db\nsslmode=prefer\n[require]\nhost=db\nsslmode=require\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const verified, unverified, plain = "verified TLS", "unverified TLS", "plain text"
	for _, tt := range []struct {
		dsn  string
		env  map[string]string
		want []string
	}{
		{dsn: "postgres://db/app", want: []string{"db " + verified}},
		{dsn: "host=db", want: []string{"db " + verified}},
		{dsn: "host=db password='x sslmode=disable'", want: []string{"db " + verified}},
		{dsn: "host=10.0.0.7", want: []string{"10.0.0.7 " + verified}},
		{dsn: "host=db,db2", want: []string{"db " + verified, "db2 " + verified}},
		{dsn: "host=db,localhost", want: []string{"db " + verified, "localhost " + unverified, "localhost " + plain}},
		{dsn: "host=localhost,db", want: []string{"localhost " + unverified, "localhost " + plain, "db " + verified}},
		{dsn: "host=db sslnegotiation=direct", want: []string{"db " + verified}},
		{dsn: "host=127.0.0.1", want: []string{"127.0.0.1 " + unverified, "127.0.0.1 " + plain}},
		{dsn: "postgres://[::1]/app", want: []string{"::1 " + unverified, "::1 " + plain}},
		{dsn: "host=/run/pg", want: []string{"/run/pg " + plain}},

		{dsn: "host=db sslmode=''", env: map[string]string{"PGSSLMODE": "disable"}, want: []string{"db " + verified}},
		{dsn: "postgres://db/app?sslmode=", want: []string{"db " + verified}},

		{dsn: "postgres://db/app?sslmode=disable", want: []string{"db " + plain}},
		{dsn: "host=/run/pg,127.0.0.1 sslmode=prefer", want: []string{"/run/pg " + plain, "127.0.0.1 " + unverified, "127.0.0.1 " + plain}},
		{dsn: "postgres://db/app?ssl=true", want: []string{"db " + unverified}},
		{dsn: "host=db sslmode = require", want: []string{"db " + unverified}},
		{dsn: "host=localhost sslmode=verify-full", want: []string{"localhost " + verified}},
		{dsn: "host=db", env: map[string]string{"PGSSLMODE": "disable"}, want: []string{"db " + plain}},
		{dsn: "service=plain", env: map[string]string{"PGSERVICEFILE": services}, want: []string{"db " + plain}},
		{dsn: "service=silent", env: map[string]string{"PGSERVICEFILE": services}, want: []string{"db " + verified}},
		{dsn: "service=prefer", env: map[string]string{"PGSERVICEFILE": services}, want: []string{"db " + verified}},
		{dsn: "service=require", env: map[string]string{"PGSERVICEFILE": services}, want: []string{"db " + unverified}},
		{dsn: "host=db sslmode=require sslnegotiation=direct", want: []string{"db " + unverified}},
		{dsn: "service=plain servicefile=" + services, want: []string{"db " + plain}},
		{dsn: "", env: map[string]string{"PGHOST": "db"}, want: []string{"db " + verified}},
		{dsn: "", env: map[string]string{"PGSERVICE": "plain", "PGSERVICEFILE": services}, want: []string{"db " + plain}},
	} {
		t.Run(tt.dsn, func(t *testing.T) {
			for name, value := range tt.env {
				t.Setenv(name, value)
			}
			cfg, err := Load(Sources{Flags: []Setting{{Key: "source.dsn", Value: tt.dsn}}})
			if err != nil {
				t.Fatal(err)
			}
			pg, err := cfg.Postgres()
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, a := range append([]*pgconn.FallbackConfig{{Host: pg.Host, TLSConfig: pg.TLSConfig}}, pg.Fallbacks...) {
				how := plain
				switch {
				case a.TLSConfig == nil:
				case a.TLSConfig.InsecureSkipVerify:
					how = unverified
				case a.TLSConfig.ServerName == a.Host:
					how = verified
				default:
					how = "TLS for " + a.TLSConfig.ServerName
				}
				got = append(got, a.Host+" "+how)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("attempts (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLibpqSources(t *testing.T) {
	cleanEnviron(t)
	passfile := filepath.Join(t.TempDir(), "pass")
	if err := os.WriteFile(passfile, []byte("db:5432:app:cdc:secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PGPASSFILE", passfile)
	t.Setenv("PGUSER", "cdc")
	for _, dsn := range []string{"postgres://db/app", "host=db dbname=app"} {
		cfg, err := Load(Sources{Flags: []Setting{{Key: "source.dsn", Value: dsn}}})
		if err != nil {
			t.Fatal(err)
		}
		pg, err := cfg.Postgres()
		if err != nil {
			t.Fatal(err)
		}
		got := fmt.Sprint(pg.User, " ", pg.Password, " ", pg.Host, " ", pg.Database)
		if want := "cdc secret db app"; got != want {
			t.Errorf("%s: got %s, want %s", dsn, got, want)
		}
	}
}

// Other users of the host can read a command line, so it contains no secret. The relay's TLS rule adds environment
// variables, and the connection string takes precedence over them.
func TestLibpq(t *testing.T) {
	cleanEnviron(t)
	roots := file(t, "ca.pem", certtest.New().PEM())
	verifyFull := []string{"PGSSLMODE=verify-full", "PGSSLROOTCERT=system"}
	for _, tt := range []struct {
		dsn, conninfo string
		environ       []string
	}{
		{
			"postgres://cdc:c4n4ry@localhost:6543/app?sslmode=require&sslpassword=c4n4ry&options=-c%20work_mem%3D1MB",
			"postgres://cdc@localhost:6543/app?sslmode=require",
			[]string{"PGPASSWORD=c4n4ry", "PGOPTIONS=-c work_mem=1MB"},
		},
		{"postgres://cdc@localhost/app?password=c4n4ry", "postgres://cdc@localhost/app", []string{"PGPASSWORD=c4n4ry"}},
		{
			`host=127.0.0.1 user=cdc password='c4n4ry \' x' dbname=o\'app connect_timeout=3`,
			`host=127.0.0.1 user=cdc  dbname=o\'app connect_timeout=3`,
			[]string{"PGPASSWORD=c4n4ry ' x"},
		},
		{"postgres://cdc@a,b:5433/app", "postgres://cdc@a,b:5433/app", verifyFull},
		{"host=db sslmode=verify-full", "host=db sslmode=verify-full", verifyFull},
		{"host=db sslmode=require", "host=db sslmode=require", nil},
		{"host=db sslmode=disable", "host=db sslmode=disable", nil},
		{"host=db sslrootcert=" + roots, "host=db sslrootcert=" + roots, verifyFull[:1]},
	} {
		cfg, err := Load(Sources{Flags: settings("source.dsn", tt.dsn)})
		if err != nil {
			t.Fatal(err)
		}
		conninfo, environ, err := cfg.Libpq(t.Context())
		if err != nil || conninfo != tt.conninfo {
			t.Errorf("%s becomes %s, %v", tt.dsn, conninfo, err)
		}
		if diff := cmp.Diff(tt.environ, environ); diff != "" {
			t.Errorf("%s: environment (-want +got):\n%s", tt.dsn, diff)
		}
	}
	t.Setenv("PGSSLMODE", "verify-ca")
	cfg, err := Load(Sources{Flags: settings("source.dsn", "host=db")})
	if err != nil {
		t.Fatal(err)
	}
	if _, environ, err := cfg.Libpq(t.Context()); err != nil || len(environ) > 0 {
		t.Errorf("%v, %v goes before PGSSLMODE", environ, err)
	}
}

func TestSourceIsNeeded(t *testing.T) {
	cleanEnviron(t)
	cfg, err := Load(Sources{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = cfg.Relay()
	want := `2 problems with the configuration
  source.dsn: required; set it in the file, as OUTBOX_CDC_SOURCE_DSN or with --dsn
  sink.kafka.brokers: required; set it in the file, as OUTBOX_CDC_SINK_KAFKA_BROKERS or with --brokers; or configure another broker (docs/sinks.md)`
	if diff := cmp.Diff(want, fmt.Sprint(err)); diff != "" {
		t.Errorf("error (-want +got):\n%s", diff)
	}
	if cfg.Source.Publication != "outbox_cdc" || cfg.Source.Slot != "outbox_cdc" {
		t.Errorf("publication %q, slot %q", cfg.Source.Publication, cfg.Source.Slot)
	}
}

// libpq reads everything after the first @ as the host. If a password contains an @, libpq shows the end of the
// password in errors, so Load rejects such a URL.
func TestAmbiguousURL(t *testing.T) {
	_, err := Load(Sources{Flags: []Setting{
		{Key: "source.dsn", Value: "postgres://app:secret-word@app@127.0.0.1/app?sslmode=disable"},
		{Key: "source.publication", Value: "p"},
		{Key: "source.slot", Value: "s"},
		{Key: "sink.kafka.brokers", Value: "k:9092"},
	}})
	if err == nil || !strings.Contains(err.Error(), "%40") || strings.Contains(err.Error(), "secret-word") {
		t.Errorf("error is %v", err)
	}
}

// A root certificate in DER, as some providers have it, is no PEM.
func TestRootWithoutPEM(t *testing.T) {
	_, _, err := parseConninfo("host=db sslrootcert=" + file(t, "root.crt", []byte{0x30, 0x82}))
	if err == nil || !strings.HasPrefix(err.Error(), "the file of sslrootcert contains no certificate in PEM form") {
		t.Errorf("error = %v", err)
	}
}

// TestVerifiedKeepsTheRest: the TLS rule keeps the other TLS settings.
func TestVerifiedKeepsTheRest(t *testing.T) {
	pg, _, err := parseConninfo("host=db sslrootcert=system")
	if err != nil {
		t.Fatal(err)
	}
	if pg.TLSConfig.RootCAs == nil || pg.TLSConfig.InsecureSkipVerify {
		t.Errorf("TLS = %+v", &tls.Config{ServerName: pg.TLSConfig.ServerName})
	}
}
