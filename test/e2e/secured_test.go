package e2e

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/kit/certtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// A secured is a Postgres as docs/security.md has it: TLS, passwords, and a role that may do
// nothing but replicate one database.
type secured struct {
	db        *pgtest.DB // its DSN is the superuser's, without a password
	authority *certtest.Authority
	roots     string // path of the authority's certificate
}

// startSecured starts such a server, with the outbox in its database, and cdc's password.
func startSecured(t *testing.T, password string) *secured {
	t.Helper()
	srv := pgtest.Start(t, pgserver.Config{})
	s := &secured{db: pgtest.DatabaseOn(t, srv), authority: certtest.New()}
	s.roots = writeFile(t, "ca.pem", s.authority.PEM())
	server := s.authority.Issue(time.Now().Add(time.Hour), "127.0.0.1")
	rig.Must(t, srv.WriteFile("server.crt", server.Cert))
	rig.Must(t, srv.WriteFile("server.key", server.Key))
	rig.Migrate(t, s.db.DSN)
	for _, statement := range s.documented(t, "sql") {
		s.db.Exec(t, strings.ReplaceAll(statement, "'change-me'", "'"+password+"'"))
	}
	s.rules(t, s.documented(t, "conf")...)
	s.db.Exec(t, "ALTER SYSTEM SET ssl = on")
	s.reload(t)
	return s
}

// documented returns what the page says in its first block of a language, statement by statement
// or line by line, about this database.
func (s *secured) documented(t *testing.T, language string) []string {
	t.Helper()
	page, err := os.ReadFile("../../docs/security.md")
	rig.Must(t, err)
	_, rest, found := strings.Cut(string(page), "```"+language+"\n")
	block, _, closed := strings.Cut(rest, "```")
	if !found || !closed {
		t.Fatalf("docs/security.md has no block of %s", language)
	}
	block = strings.NewReplacer("DATABASE app", "DATABASE "+s.db.Name, " app ", " "+s.db.Name+" ", "10.1.2.0/24", "127.0.0.1/32").Replace(block)
	end := "\n"
	if language == "sql" {
		end = ";\n"
	}
	var out []string
	for part := range strings.SplitSeq(strings.TrimSpace(block)+"\n", end) {
		if strings.TrimSpace(part) != "" {
			out = append(out, part)
		}
	}
	return out
}

// rules replaces pg_hba.conf. The superuser stays welcome.
func (s *secured) rules(t *testing.T, lines ...string) {
	t.Helper()
	rig.Must(t, s.db.Server.WriteFile("pg_hba.conf", []byte("host all postgres 127.0.0.1/32 trust\n"+strings.Join(lines, "\n")+"\n")))
	s.reload(t)
}

// reload makes the server read its files, and waits until it has.
func (s *secured) reload(t *testing.T) {
	t.Helper()
	loaded := func() string { return pgtest.QueryRow[string](t, s.db, "SELECT pg_conf_load_time()::text") }
	before := loaded()
	s.db.Exec(t, "SELECT pg_reload_conf()")
	wait.For(t, "the server to read its files", func() bool { return loaded() != before })
}

// dsn is cdc's, verified.
func (s *secured) dsn(password string, more ...string) string {
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword("cdc", password), Host: s.db.Server.Addr(), Path: s.db.Name,
		RawQuery: "sslmode=verify-full&sslrootcert=" + s.roots + strings.Join(more, ""),
	}
	return u.String()
}

// write commits one event for the topic orders.
func (s *secured) write(t *testing.T) {
	t.Helper()
	s.db.Exec(t, `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) VALUES (gen_random_uuid(), 'orders', 'k', 'T', '{}')`)
}

func writeFile(t *testing.T, name string, content []byte) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), name)
	rig.Must(t, os.WriteFile(path, content, 0o600))
	return path
}

// yamlFile writes a configuration file.
func yamlFile(t *testing.T, format string, args ...any) (path string) {
	t.Helper()
	return writeFile(t, "outbox-cdc.yaml", fmt.Appendf(nil, format, args...))
}
