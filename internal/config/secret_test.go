package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/outbox-cdc/outbox-cdc/test/kit/certtest"
)

const canary = "c4n4ry"

// TestSecretIsNeverShown searches for the canary in every output of a Config that contains it everywhere.
func TestSecretIsNeverShown(t *testing.T) {
	for _, dsn := range []string{
		"postgres://u:c4n4ry@localhost/db",
		"postgres://u:c4n4ry@localhost/db?sslpassword=c4n4ry&application_name=x",
		"postgres://u@localhost/db?pass%77ord=c4n4ry",
		"host=localhost password=c4n4ry dbname=db",
		"host=localhost password = 'x c4n4ry \\' c4n4ry' dbname=db",
		"host=localhost password=x\\ c4n4ry",
		"sslpassword=c4n4ry host=localhost",
		"host=localhost options='-c app.token=c4n4ry'",
		"postgres://u@localhost/db?options=-c%20app.token%3Dc4n4ry",
		"host=localhost passfile=c4n4ry",
	} {
		cfg, err := Load(Sources{Flags: []Setting{
			{Key: "source.dsn", Value: dsn},
			{Key: "sink.kafka.sasl.mechanism", Value: "PLAIN"},
			{Key: "sink.kafka.sasl.user", Value: "u"},
			{Key: "sink.kafka.sasl.password", Value: canary},
		}})
		if err != nil {
			t.Errorf("%s: %v", dsn, err)
			continue
		}
		var out bytes.Buffer
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
			fmt.Fprintf(&out, verb, cfg.Source)
			fmt.Fprintf(&out, verb, cfg.Sink)
			fmt.Fprintf(&out, verb, &cfg.Source.DSN)
		}
		for _, h := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
			slog.New(h).Info("x", slog.Any("dsn", cfg.Source.DSN), slog.Any("source", cfg.Source))
		}
		for _, marshal := range []func(any) ([]byte, error){json.Marshal, yaml.Marshal} {
			data, err := marshal(cfg.Source)
			if err != nil {
				t.Fatal(err)
			}
			out.Write(data)
		}
		if err := cfg.WriteYAML(&out); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(out.String(), canary) || strings.Contains(out.String(), fmt.Sprintf("%x", canary)) {
			t.Errorf("%s: the secret is shown:\n%s", dsn, out.String())
		}
		if !strings.Contains(out.String(), "mechanism: PLAIN") {
			t.Errorf("%s: other keys are not shown:\n%s", dsn, out.String())
		}
	}
}

// TestSecretIsNotInErrors loads connection strings that cannot be parsed.
func TestSecretIsNotInErrors(t *testing.T) {
	for _, dsn := range []string{
		"postgres://u:c4n4ry@localhost:port/db",
		"postgres://u:%zzc4n4ry@localhost/db",
		"postgres://u:x/c4n4ry@localhost/db",
		"postgres://u:5432/c4n4ry@localhost/db",
		"postgres://u:c4n4ry@c4n4ry@localhost/db",
		"postgres://u:c4n4ry@[localhost/db",
		"postgres://u@localhost/db?password=c4n4ry=c4n4ry",
		"postgres://u@localhost:c4n4ry/db",
		"postgres://u@localhost/db?passwrd=c4n4ry",
		"host=localhost passwrd=c4n4ry",
		"host=localhost PASSWORD=c4n4ry",
		"password=x c4n4ry=y host=localhost",
		"host=localhost fallback_application_namec4n4ry=x",
		"host=localhost keepalives=c4n4ry",
		"host=localhost hostaddr=c4n4ry",
		"host=localhost ssl_min_protocol_version=c4n4ry",
		"host=localhost gssencmode=c4n4ry",
		"host=localhost oauth_client_secret=c4n4ry",
		"password=x c4n4ry host=localhost",
		"password='c4n4ry",
		"c4n4ry",
		"host=localhost password=c4n4ry sslmode=c4n4ry",
		"host=localhost target_session_attrs=c4n4ry",
		"service=c4n4ry",
		"host=localhost sslcert=/c sslkey='-----BEGIN PRIVATE KEY-----\nc4n4ry\n-----END PRIVATE KEY-----\n'",
		"host=localhost sslcert=/c sslkey=c4n4ry",
		"postgres://u@localhost/db?sslcert=/c&sslkey=" + url.QueryEscape("-----BEGIN PRIVATE KEY-----\nc4n4ry\n"),
		"host=localhost sslmode=verify-full sslrootcert='-----BEGIN CERTIFICATE-----\nc4n4ry\n'",
	} {
		_, err := Load(Sources{Flags: []Setting{{Key: "source.dsn", Value: dsn, Flag: "--dsn"}}})
		if err == nil || strings.Contains(err.Error(), canary) || !strings.HasPrefix(err.Error(), "--dsn: source.dsn: ") {
			t.Errorf("%s: error = %v", dsn, err)
		}
	}
}

func TestMaskConninfo(t *testing.T) {
	for _, tt := range []struct{ dsn, want string }{
		{"", ""},
		{"postgres://cdc@db/app", "postgres://cdc@db/app"},
		{"postgresql://cdc:pw@db:5432,db2/app?sslmode=verify-full", "postgresql://cdc:***@db:5432,db2/app?sslmode=verify-full"},
		{"postgres:///app?user=u&password=pw", "postgres:///app?user=u&password=***"},
		{"postgres:///app?password", "***"},
		{"postgres:///app?pass%77ord=p?w&sslpassword=x", "postgres:///app?password=***&sslpassword=***"},
		{"host=db application_name='x password=' password='p w'", "host=db application_name='x password=' password=***"},
		{"host=db password=p\\ w\\", "host=db password=***\\"},
		{"postgres://u:p/w@db/app", "***"},
		{"host=db password=pw", "host=db password=***"},
		{"password=pw  host='a b'", "password=***  host='a b'"},
		{"password = 'p\\'w' host=db", "password=*** host=db"},
		{"password= host=db", "password=***"},
		{"password='pw", "***"},
		{"pw", "***"},
		{"host=db passwrd=pw", "***"},
		{"host=db app.token=pw", "host=db app.token=***"},
		{"host=db statement_timeout=5s keepalives=1", "host=db statement_timeout=5s keepalives=1"},
		{"host=db options='-c app.token=x' connect_timeout=3", "host=db options=*** connect_timeout=3"},
		{"postgres://cdc@db/app?options=-c%20app.token%3Dx&target_session_attrs=read-write", "postgres://cdc@db/app?options=***&target_session_attrs=read-write"},
		{"host=db passfile=/etc/pgpass", "host=db passfile=/etc/pgpass"},
		{"host=db passfile='/etc/pg pass'", "host=db passfile='/etc/pg pass'"},
		{"host=db passfile=hunter2", "host=db passfile=***"},
		{"postgres://cdc@db/app?passfile=%2Fetc%2Fpgpass", "postgres://cdc@db/app?passfile=%2Fetc%2Fpgpass"},
		{"host=db sslrootcert=system", "host=db sslrootcert=system"},
	} {
		if got := maskConninfo(tt.dsn); got != tt.want {
			t.Errorf("maskConninfo(%q) = %q, want %q", tt.dsn, got, tt.want)
		}
	}
}

func FuzzMaskConninfo(f *testing.F) {
	f.Add("postgres://u:", "@h/db?x=y")
	f.Add("host=h password='", "' dbname=x")
	f.Add("password=", `\`)
	f.Add("host=h passwrd='", "'")
	f.Add("postgres://h/db?options=-c%20a=", "")
	f.Fuzz(func(t *testing.T, before, after string) {
		dsn := before + canary + after
		pg, _, err := parseConninfo(dsn)
		if err != nil {
			if strings.Contains(err.Error(), canary) {
				t.Fatalf("%q: %v", dsn, err)
			}
			return
		}
		secrets := pg.Password
		for name, value := range pg.RuntimeParams {
			if !isHarmless(name, value) {
				secrets += value
			}
		}
		if masked := maskConninfo(dsn); strings.Contains(secrets, canary) && strings.Contains(masked, canary) {
			t.Fatalf("maskConninfo(%q) = %q", dsn, masked)
		}
	})
}

func TestSecretFiles(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	dsn := file("dsn", "host=localhost password=c4n4ry\r\n")
	empty := file("empty", "\n")

	cfg, err := Load(Sources{Flags: []Setting{{Key: "source.dsn_file", Value: dsn}}})
	if err != nil {
		t.Fatal(err)
	}
	if got := string(cfg.Source.DSN); got != "host=localhost password=c4n4ry" {
		t.Errorf("DSN = %q", got)
	}
	var out strings.Builder
	if err := cfg.WriteYAML(&out); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), "dsn:") || !strings.Contains(out.String(), "dsn_file: "+dsn) {
		t.Errorf("printed:\n%s", out.String())
	}

	for _, tt := range []struct {
		name  string
		env   []string
		flags []Setting
		want  string // part of the DSN or of the error
	}{
		{"file over variable", []string{"OUTBOX_CDC_SOURCE_DSN=host=localhost"}, []Setting{{Key: "source.dsn_file", Value: dsn}}, "host=localhost password=c4n4ry"},
		{"flag over file", []string{"OUTBOX_CDC_SOURCE_DSN_FILE=/nowhere"}, []Setting{{Key: "source.dsn", Value: "host=localhost"}}, "host=localhost"},
		{
			"both",
			[]string{"OUTBOX_CDC_SOURCE_DSN_FILE=" + dsn, "OUTBOX_CDC_SOURCE_DSN=host=localhost"},
			nil,
			"OUTBOX_CDC_SOURCE_DSN_FILE: source.dsn_file: set together with source.dsn; set only one of them",
		},
		{
			"no such file",
			[]string{"OUTBOX_CDC_SOURCE_DSN_FILE=/nowhere/dsn"},
			nil,
			"OUTBOX_CDC_SOURCE_DSN_FILE: source.dsn_file: open /nowhere/dsn: no such file or directory",
		},
		{
			"empty",
			[]string{"OUTBOX_CDC_SOURCE_DSN_FILE=" + empty},
			nil,
			"OUTBOX_CDC_SOURCE_DSN_FILE: source.dsn_file: " + empty + " is empty",
		},
		{"bad content", []string{"OUTBOX_CDC_SOURCE_DSN_FILE=" + file("bad", canary)}, nil, "OUTBOX_CDC_SOURCE_DSN_FILE: source.dsn: must be a URL"},
	} {
		cfg, err := Load(Sources{Environ: tt.env, Flags: tt.flags})
		got := fmt.Sprint(err)
		if err == nil {
			got = string(cfg.Source.DSN)
		}
		if !strings.HasPrefix(got, tt.want) || strings.Contains(fmt.Sprint(err), canary) {
			t.Errorf("%s: got %s, want %s", tt.name, got, tt.want)
		}
	}
}

// If a secret is given in place of the path of its file, no error or output contains it.
func TestSecretInPlaceOfItsFile(t *testing.T) {
	const key = "-----BEGIN PRIVATE KEY-----\nc4n4ry\n-----END PRIVATE KEY-----\n"
	certificate := file(t, "ca.pem", certtest.New().PEM())
	login := []string{"sink.kafka.sasl.mechanism", "OAUTHBEARER"}
	for _, tt := range []struct {
		key  string
		with []string
	}{
		{"source.dsn_file", nil},
		{"sink.kafka.sasl.password_file", []string{"sink.kafka.sasl.mechanism", "PLAIN", "sink.kafka.sasl.user", "u"}},
		{"sink.kafka.sasl.token_file", login},
		{"sink.kafka.sasl.client_secret_file", append(login, "sink.kafka.sasl.token_url", "https://idp/", "sink.kafka.sasl.client_id", "c")},
		{"sink.kafka.tls.ca_file", []string{"sink.kafka.tls.enabled", "true"}},
		{"sink.kafka.tls.cert_file", []string{"sink.kafka.tls.enabled", "true", "sink.kafka.tls.key_file", certificate}},
		{"sink.kafka.tls.key_file", []string{"sink.kafka.tls.enabled", "true", "sink.kafka.tls.cert_file", certificate}},
		{"tracing.headers_file", []string{"tracing.endpoint", "https://otel"}},
		{"tracing.tls.key_file", []string{"tracing.endpoint", "https://otel", "tracing.tls.cert_file", certificate}},
	} {
		for _, value := range []string{canary, key, "host=db password=c4n4ry", "postgres://u:c4n4ry@h/db", "/+c4n4ry==", strings.Repeat("c4n4ry", 1000)} {
			flags := settings(append(slices.Clone(tt.with), tt.key, value)...)[1:] // without source.dsn
			_, err := Load(Sources{Flags: flags})
			if err == nil || strings.Contains(err.Error(), canary) {
				t.Errorf("%s: error = %v", tt.key, err)
			}
		}
	}
	_, err := Load(Sources{File: "postgres://u:c4n4ry@h/db"})
	if err == nil || strings.Contains(err.Error(), canary) {
		t.Errorf("a secret as configuration file: %v", err)
	}

	// The file is not read if a later source gives the secret itself.
	cfg, err := Load(Sources{
		Environ: []string{"OUTBOX_CDC_SOURCE_DSN_FILE=" + canary},
		Flags:   settings("source.dsn", "host=db", "sink.kafka.tls.enabled", "true", "sink.kafka.tls.ca_file", certificate),
	})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := cfg.WriteYAML(&out); err != nil || strings.Contains(out.String(), canary) || !strings.Contains(out.String(), "ca_file: "+certificate) {
		t.Errorf("printed, %v:\n%s", err, out.String())
	}
}

// The printed configuration does not contain the query and the fragment of a URL. An error does not contain the URL's
// secrets either.
func TestSecretInURL(t *testing.T) {
	cfg, err := Load(Sources{Flags: settings("sink.kafka.sasl.mechanism", "OAUTHBEARER", "sink.kafka.sasl.client_id", "c", "sink.kafka.sasl.client_secret", "s",
		"sink.kafka.sasl.token_url", "https://idp/token?key=c4n4ry#c4n4ry")})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := cfg.WriteYAML(&out); err != nil || strings.Contains(out.String(), canary) || !strings.Contains(out.String(), "token_url: https://idp/token?***") {
		t.Errorf("printed, %v:\n%s", err, out.String())
	}
	for _, value := range []string{"https://u:c4n4ry@otel", "https://otel?key=c4n4ry", "-----BEGIN PRIVATE KEY-----\nc4n4ry\n"} {
		if _, err := Load(Sources{Flags: settings("tracing.endpoint", value)}); err == nil || strings.Contains(err.Error(), canary) {
			t.Errorf("%s: error = %v", value, err)
		}
	}
}
