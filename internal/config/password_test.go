package config

import (
	"crypto/tls"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/test/kit/bubble"
	"github.com/outbox-cdc/outbox-cdc/test/kit/certtest"
)

// issuer returns the password command of a shop for tokens: it prints the content of a file, and counts its runs in another.
func issuer(t *testing.T, token string) (command, tokens, runs string) {
	t.Helper()
	tokens, runs = file(t, "tokens", []byte(token+"\n")), file(t, "runs", nil)
	script := file(t, "issue.sh", fmt.Appendf(nil, "echo run >>%s; cat %s", runs, tokens))
	return "/bin/sh," + script, tokens, runs
}

// expire is loaded configuration whose logins all go to s.
func (s *server) expire(t *testing.T, pairs ...string) *pgx.ConnConfig {
	t.Helper()
	return s.source(t, append([]string{"source.dsn", "host=localhost user=cdc password=" + canary + " sslmode=disable"}, pairs...)...)
}

// TestPasswordCommand follows a token through its life, by a fake clock. The server knows only the current one.
func TestPasswordCommand(t *testing.T) {
	cleanEnviron(t)
	s := startServer(t, "one", nil)
	command, tokens, runs := issuer(t, "one")
	pg := s.expire(t, "source.password_command", command, "source.password_lifetime", "10m")
	synctest.Test(t, func(t *testing.T) {
		issue := func(token string) { replace(t, tokens, []byte(token+"\n")) }
		for _, step := range []struct {
			name  string
			after time.Duration
			do    func()
			want  string // password that the server hears; empty: none
			runs  int
			says  string // error; empty: success
		}{
			{"first login", 0, func() {}, "one", 1, ""},
			{"logins within a minute share one", 59 * time.Second, func() {}, "one", 0, ""},
			{"later ones do not", 2 * time.Second, func() {}, "one", 1, ""},
			{"a new token", time.Hour, func() { issue("two"); s.change(func() { s.password = "two" }) }, "two", 1, ""},
			{"the server rejects it", 0, func() { s.change(func() { s.password = "three" }) }, "two", 0, "28P01"},
			{"so it is not used again", 0, func() { issue("three") }, "three", 1, ""},
			{"no tokens are issued", 2 * time.Minute, func() { _ = os.Remove(tokens) }, "three", 1, ""},
			{"until the last one expires", 7*time.Minute + 51*time.Second, func() {}, "", 1, "tokens: No such file"},
			{"tokens again", 0, func() { issue("three") }, "three", 1, ""},
		} {
			bubble.Sleep(step.after)
			step.do()
			replace(t, runs, nil)
			err := dial(t, pg)
			if (err == nil) != (step.says == "") || err != nil && !strings.Contains(err.Error(), step.says) {
				t.Errorf("%s: error = %v, want %q", step.name, err, step.says)
			}
			if err != nil && (strings.Contains(err.Error(), canary) || strings.Contains(err.Error(), "three")) {
				t.Errorf("%s: a secret is in %q", step.name, err)
			}
			heard := ""
			for _, l := range s.takeLogins() {
				heard += l.password
			}
			if heard != step.want {
				t.Errorf("%s: the server heard %q, want %q", step.name, heard, step.want)
			}
			if n := strings.Count(string(read(t, runs)), "run"); n != step.runs {
				t.Errorf("%s: the command ran %d times, want %d", step.name, n, step.runs)
			}
		}
	})
}

// TestPasswordOfConnections: a connection that package replication makes gets an error that is neither a rejection nor an
// unreachable server.
func TestPasswordOfConnections(t *testing.T) {
	cleanEnviron(t)
	s := startServer(t, "one", nil)
	command, tokens, _ := issuer(t, "one")
	pg := s.expire(t, "source.password_command", command)
	_ = os.Remove(tokens)
	_, err := replication.Connect(t.Context(), replication.Ordinary(&pg.Config))
	want := `connect as "cdc" to database "": no password: source.password_command: "/bin/sh": exit status 1: cat:`
	if err == nil || !strings.HasPrefix(err.Error(), want) || !strings.Contains(err.Error(), "; the relay needs a program that prints a password") {
		t.Errorf("error = %v, want %s", err, want)
	}
}

// TestSlowCommand: a login may take password_timeout longer, and not more.
func TestSlowCommand(t *testing.T) {
	cleanEnviron(t)
	s := startServer(t, "one", nil)
	pg := s.expire(t, "source.password_command", "/bin/sleep,60", "source.password_timeout", "200ms")
	if pg.ConnectTimeout != connectTimeout+200*time.Millisecond {
		t.Errorf("a login may take %s", pg.ConnectTimeout)
	}
	if err := dial(t, pg); err == nil || !strings.Contains(err.Error(), `"/bin/sleep" did not end within 200ms`) {
		t.Errorf("error = %v", err)
	}
}

// TestRDSLogin: the password is a request that is signed for the address in the connection string and for the user of the
// moment.
func TestRDSLogin(t *testing.T) {
	cleanEnviron(t)
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": "AKIAEXAMPLE", "AWS_SECRET_ACCESS_KEY": canary, "AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull,
	} {
		t.Setenv(name, value)
	}
	authority := certtest.New()
	s := startServer(t, "", &tls.Config{Certificates: []tls.Certificate{authority.Issue(time.Now().Add(time.Hour), "db").TLS}})
	roots := file(t, "ca.pem", authority.PEM())
	dsn := file(t, "dsn", []byte("host=db user=cdc sslrootcert="+roots))
	pg := s.source(t, "source.dsn_file", dsn, "source.dsn", "", "source.rds_iam_region", "eu-central-1")
	for _, user := range []string{"cdc", "cdc_b"} {
		replace(t, dsn, []byte("host=db user="+user+" sslrootcert="+roots))
		_ = dial(t, pg) // the server rejects the password
		logins := s.takeLogins()
		if len(logins) != 1 || !logins[0].encrypted {
			t.Fatalf("logins: %+v", logins)
		}
		signed, err := url.Parse("https://" + logins[0].password)
		if err != nil {
			t.Fatal(err)
		}
		if signed.Host != "db:5432" || signed.Query().Get("DBUser") != user || len(signed.Query().Get("X-Amz-Signature")) != 64 {
			t.Errorf("%s sent %s", user, signed)
		}
	}
}

func TestPasswordKeys(t *testing.T) {
	cleanEnviron(t)
	const dsn = "postgres://cdc@db/app"
	for _, tt := range []struct {
		pairs []string
		says  string
	}{
		{[]string{"source.dsn", dsn, "source.password_command", "a", "source.rds_iam_region", "b"}, "source.password_command: set together with source.rds_iam_region"},
		{[]string{"source.dsn", dsn, "source.password_timeout", "1s"}, "source.password_timeout: has no effect: source.password_command is not set"},
		{[]string{"source.dsn", dsn, "source.password_lifetime", "1h"}, "source.password_lifetime: has no effect"},
		{[]string{"source.dsn", dsn, "source.rds_iam_region", "EU Central"}, "the name of a region"},
		{[]string{"source.dsn", dsn + "?sslmode=disable", "source.rds_iam_region", "b"}, "source.rds_iam_region: needs TLS"},
		{[]string{"source.dsn", "postgres://localhost/app", "source.rds_iam_region", "b"}, "source.rds_iam_region: needs TLS"},
		{[]string{"source.dsn", "postgres://a,b/app", "source.rds_iam_region", "b"}, "source.rds_iam_region: a token is for one address"},
		{[]string{"source.dsn", dsn, "source.password_command", ""}, "source.password_command"},
	} {
		if _, err := Load(Sources{Flags: settings(tt.pairs...)}); err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%q: error = %v, want %q", tt.pairs, err, tt.says)
		}
	}
}
