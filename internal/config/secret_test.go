package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const canary = "c4n4ry"

// TestSecretIsNeverShown looks for the canary in everything that can be made from a Config
// that is full of it.
func TestSecretIsNeverShown(t *testing.T) {
	for _, dsn := range []string{
		"postgres://u:c4n4ry@localhost/db",
		"postgres://u:c4n4ry@localhost/db?sslpassword=c4n4ry&application_name=x",
		"postgres://u@localhost/db?pass%77ord=c4n4ry",
		"host=localhost password=c4n4ry dbname=db",
		"host=localhost password = 'x c4n4ry \\' c4n4ry' dbname=db",
		"host=localhost password=x\\ c4n4ry",
		"sslpassword=c4n4ry host=localhost",
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

// TestSecretIsNotInErrors feeds connection strings that cannot be parsed.
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
		"password=x c4n4ry host=localhost",
		"password='c4n4ry",
		"c4n4ry",
		"host=localhost password=c4n4ry sslmode=c4n4ry",
		"host=localhost target_session_attrs=c4n4ry",
		"service=c4n4ry",
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
	f.Fuzz(func(t *testing.T, before, after string) {
		dsn := before + canary + after
		pg, err := parseConninfo(dsn)
		if err != nil {
			if strings.Contains(err.Error(), canary) {
				t.Fatalf("%q: %v", dsn, err)
			}
			return
		}
		if masked := maskConninfo(dsn); strings.Contains(pg.Password, canary) && strings.Contains(masked, canary) {
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
		want  string // of the DSN, or in the error
	}{
		{"file over variable", []string{"OUTBOX_CDC_SOURCE_DSN=host=localhost"}, []Setting{{Key: "source.dsn_file", Value: dsn}}, "host=localhost password=c4n4ry"},
		{"flag over file", []string{"OUTBOX_CDC_SOURCE_DSN_FILE=/nowhere"}, []Setting{{Key: "source.dsn", Value: "host=localhost"}}, "host=localhost"},
		{
			"both",
			[]string{"OUTBOX_CDC_SOURCE_DSN_FILE=" + dsn, "OUTBOX_CDC_SOURCE_DSN=host=localhost"},
			nil,
			"OUTBOX_CDC_SOURCE_DSN_FILE: source.dsn_file: given together with source.dsn; one of them is allowed",
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
		{"bad content", []string{"OUTBOX_CDC_SOURCE_DSN_FILE=" + file("bad", canary)}, nil, "OUTBOX_CDC_SOURCE_DSN_FILE: source.dsn: neither a URL"},
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
