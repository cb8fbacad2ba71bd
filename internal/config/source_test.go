package config

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/test/kit/certtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// A login is what a server has received from a client.
type login struct {
	user, password string // in clear text, as the server requests it
	certificate    string // the name in the client certificate
	encrypted      bool
}

// A server is a Postgres server up to the password request. It may be an attacker between client and server.
type server struct {
	addr string

	mu       sync.Mutex
	tls      *tls.Config // nil: answers N to SSLRequest
	password string
	logins   []login
}

func startServer(t *testing.T, password string, encryption *tls.Config) *server {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{addr: l.Addr().String(), tls: encryption, password: password}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer conn.Close()
				_ = conn.SetDeadline(time.Now().Add(wait.Patience()))
				_ = s.serve(conn)
			})
		}
	})
	t.Cleanup(func() { l.Close(); serving.Wait() })
	return s
}

func (s *server) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// takeLogins returns the logins since the last call.
func (s *server) takeLogins() []login {
	s.mu.Lock()
	defer s.mu.Unlock()
	logins := s.logins
	s.logins = nil
	return logins
}

func (s *server) serve(conn net.Conn) error {
	s.mu.Lock()
	encryption, right := s.tls, s.password
	s.mu.Unlock()
	backend := pgproto3.NewBackend(conn, conn)
	var got login
	for {
		msg, err := backend.ReceiveStartupMessage()
		if err != nil {
			return err
		}
		if startup, ok := msg.(*pgproto3.StartupMessage); ok {
			got.user = startup.Parameters["user"]
			break
		}
		if encryption == nil {
			if _, err := conn.Write([]byte{'N'}); err != nil {
				return err
			}
			continue
		}
		if _, err := conn.Write([]byte{'S'}); err != nil {
			return err
		}
		tc := tls.Server(conn, encryption)
		if err := tc.Handshake(); err != nil { //nolint:noctx // bounded by the connection's deadline
			return err
		}
		got.encrypted = true
		if certs := tc.ConnectionState().PeerCertificates; len(certs) > 0 {
			got.certificate = certs[0].Subject.CommonName
		}
		backend = pgproto3.NewBackend(tc, tc)
	}
	backend.Send(&pgproto3.AuthenticationCleartextPassword{})
	if err := backend.Flush(); err != nil {
		return err
	}
	if err := backend.SetAuthType(pgproto3.AuthTypeCleartextPassword); err != nil {
		return err
	}
	msg, err := backend.Receive()
	if err != nil {
		return err
	}
	if p, ok := msg.(*pgproto3.PasswordMessage); ok {
		got.password = p.Password
	}
	s.change(func() { s.logins = append(s.logins, got) })
	if got.password == right {
		backend.Send(&pgproto3.AuthenticationOk{})
		backend.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	} else {
		backend.Send(&pgproto3.ErrorResponse{Severity: "FATAL", Code: "28P01", Message: "no"})
	}
	return backend.Flush()
}

// source returns the configured source, with every host at the server's address.
func (s *server) source(t *testing.T, pairs ...string) *pgx.ConnConfig {
	t.Helper()
	cfg, err := Load(Sources{Flags: settings(pairs...)})
	if err != nil {
		t.Fatal(err)
	}
	pg, err := cfg.Postgres()
	if err != nil {
		t.Fatal(err)
	}
	pg.LookupFunc = func(context.Context, string) ([]string, error) { return []string{s.addr}, nil }
	return pg
}

// dial connects with a copy of the configuration, as the other packages do.
func dial(t *testing.T, pg *pgx.ConnConfig) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wait.Patience())
	defer cancel()
	conn, err := pgconn.ConnectConfig(ctx, pg.Config.Copy())
	if err != nil {
		return err
	}
	_ = conn.Close(ctx) // the server has closed the connection
	return nil
}

// TestSourceTLS: a server that cannot prove its identity never receives a password. Neither does a server that
// rejects encryption.
func TestSourceTLS(t *testing.T) {
	cleanEnviron(t)
	soon := time.Now().Add(time.Hour)
	authority := certtest.New()
	trusted, other := file(t, "ca.pem", authority.PEM()), file(t, "other.pem", certtest.New().PEM())
	db := authority.Issue(soon, "db").TLS
	clientCert, clientKey := certificate(t, authority, "relay")
	strangerCert, strangerKey := certificate(t, certtest.New(), "stranger")
	serving := func(c tls.Certificate) *tls.Config { return &tls.Config{Certificates: []tls.Certificate{c}} }
	mutual := serving(db)
	mutual.ClientAuth, mutual.ClientCAs = tls.RequireAndVerifyClientCert, authority.Pool()
	ancient := serving(db)
	ancient.MinVersion, ancient.MaxVersion = tls.VersionTLS10, tls.VersionTLS11

	for _, tt := range []struct {
		name   string
		dsn    string
		server *tls.Config
		says   string // empty: the login succeeds
	}{
		{"verified", "sslrootcert=" + trusted, serving(db), ""},
		{"verified, said", "sslmode=verify-full sslrootcert=" + trusted, serving(db), ""},
		{"unknown authority", "sslrootcert=" + other, serving(db), "unknown authority"},
		{"not one of the system's", "", serving(db), "unknown authority"},
		{"another name", "sslrootcert=" + trusted, serving(authority.Issue(soon, "elsewhere").TLS), "not db"},
		{"expired", "sslrootcert=" + trusted, serving(authority.Issue(time.Now().Add(-time.Minute), "db").TLS), "expired"},
		{"older than TLS 1.2", "sslrootcert=" + trusted, ancient, "protocol version"},
		{"no TLS", "", nil, "server refused TLS"},
		{"no TLS for require", "sslmode=require", nil, "server refused TLS"},
		{"no TLS for verify-ca", "sslmode=verify-ca sslrootcert=" + trusted, nil, "server refused TLS"},
		{"verify-ca takes any name", "sslmode=verify-ca sslrootcert=" + trusted, serving(authority.Issue(soon, "elsewhere").TLS), ""},
		{"verify-ca takes no other authority", "sslmode=verify-ca sslrootcert=" + other, serving(db), "unknown authority"},
		{"require with authorities is verify-ca", "sslmode=require sslrootcert=" + other, serving(db), "unknown authority"},
		{"require alone verifies nothing", "sslmode=require", serving(db), ""},
		{"client certificate absent", "sslrootcert=" + trusted, mutual, "certificate required"},
		{"client certificate of a stranger", "sslrootcert=" + trusted + " sslcert=" + strangerCert + " sslkey=" + strangerKey, mutual, "certificate"},
		{"client certificate", "sslrootcert=" + trusted + " sslcert=" + clientCert + " sslkey=" + clientKey, mutual, ""},
		{"password that could be passed on", "channel_binding=require sslrootcert=" + trusted, serving(db), "channel binding"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := startServer(t, canary, tt.server)
			pg := s.source(t, "source.dsn", "host=db user=cdc password="+canary+" "+tt.dsn)
			err := dial(t, pg)
			logins := s.takeLogins()
			if tt.says == "" {
				if err != nil || len(logins) != 1 || !logins[0].encrypted {
					t.Errorf("%v, the server heard %v", err, logins)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.says) || strings.Contains(err.Error(), canary) {
				t.Errorf("error = %v, want %q", err, tt.says)
			}
			if len(logins) > 0 {
				t.Errorf("the server heard %v", logins)
			}
		})
	}
}

// TestCertificateErrors: the error of a connection names the root certificate that is missing, and the key to set.
func TestCertificateErrors(t *testing.T) {
	cleanEnviron(t)
	soon := time.Now().Add(time.Hour)
	authority := certtest.New()
	trusted, other := file(t, "ca.pem", authority.PEM()), file(t, "other.pem", certtest.New().PEM())
	const missing = `; the trusted root certificates do not contain "CN=certtest", which issued it: set sslrootcert in source.dsn`
	for _, tt := range []struct{ dsn, name, says string }{
		{"", "db", missing},
		{"sslrootcert=system", "db", missing},
		{"sslrootcert=" + other, "db", missing},
		{"sslmode=verify-ca sslrootcert=" + other, "db", missing},
		{"sslrootcert=" + trusted, "elsewhere", "valid for elsewhere, not db; connect by a name of the certificate"},
		{"sslrootcert=" + trusted, "192.0.2.1", "; the certificate names no host: set sslmode=verify-ca"},
	} {
		s := startServer(t, "", &tls.Config{Certificates: []tls.Certificate{authority.Issue(soon, tt.name).TLS}})
		pg := s.source(t, "source.dsn", "host=db user=cdc "+tt.dsn)
		_, err := replication.Connect(t.Context(), &pg.Config)
		if !errors.Is(err, replication.ErrAccess) || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%q: error = %v, want %q", tt.dsn, err, tt.says)
		}
	}
}

// TestNoWayBack: the sslmodes that fall back to plain text are allowed only for the local host.
func TestNoWayBack(t *testing.T) {
	cleanEnviron(t)
	for _, mode := range []string{"prefer", "allow"} {
		for _, dsn := range []string{"postgres://db/app?sslmode=" + mode, "host=localhost,db sslmode=" + mode} {
			_, err := Load(Sources{Flags: settings("source.dsn", dsn)})
			if err == nil || !strings.Contains(err.Error(), "source.dsn: sslmode prefer and allow") {
				t.Errorf("%s: error = %v", dsn, err)
			}
		}
		t.Setenv("PGSSLMODE", mode)
		if _, err := Load(Sources{Flags: settings("source.dsn", "host=db")}); err == nil {
			t.Errorf("PGSSLMODE=%s is accepted", mode)
		}
		t.Setenv("PGSSLMODE", "")
	}
}

// TestSourceIsReadAgain replaces, one by one, every file that a connection sends or trusts. The configuration stays
// the same.
func TestSourceIsReadAgain(t *testing.T) {
	cleanEnviron(t)
	soon := time.Now().Add(time.Hour)
	old, next := certtest.New(), certtest.New()
	roots := file(t, "ca.pem", old.PEM())
	cert, key := certificate(t, old, "relay-1")
	encryption := func(a *certtest.Authority, clients *certtest.Authority) *tls.Config {
		return &tls.Config{
			Certificates: []tls.Certificate{a.Issue(soon, "db").TLS},
			ClientAuth:   tls.RequireAndVerifyClientCert, ClientCAs: clients.Pool(),
		}
	}
	s := startServer(t, "one", encryption(old, old))
	conninfo := func(user, password, more string) []byte {
		return fmt.Appendf(nil, "host=db dbname=app user=%s password=%s sslrootcert=%s sslcert=%s sslkey=%s %s\n", user, password, roots, cert, key, more)
	}
	dsn := file(t, "dsn", conninfo("cdc", "one", ""))
	pg := s.source(t, "source.dsn_file", dsn, "source.dsn", "")

	newCert, newKey := certificate(t, next, "relay-2")
	for _, step := range []struct {
		name string
		do   func()
		want login  // empty: an error
		says string // part of the error
	}{
		{"at first", func() {}, login{"cdc", "one", "relay-1", true}, ""},
		{"password replaced on the server only", func() { s.change(func() { s.password = "two" }) }, login{}, "28P01"},
		{"and in the file", func() { replace(t, dsn, conninfo("cdc", "two", "")) }, login{"cdc", "two", "relay-1", true}, ""},
		{"user replaced", func() { replace(t, dsn, conninfo("cdc_b", "two", "")) }, login{"cdc_b", "two", "relay-1", true}, ""},
		{"the server's certificate by another authority", func() { s.change(func() { s.tls = encryption(next, old) }) }, login{}, "unknown authority"},
		{"and both trusted", func() { replace(t, roots, slices.Concat(old.PEM(), next.PEM())) }, login{"cdc_b", "two", "relay-1", true}, ""},
		{"the client's authority replaced", func() { s.change(func() { s.tls = encryption(next, next) }) }, login{}, "certificate"},
		{"half of the certificate", func() { replace(t, cert, read(t, newCert)) }, login{}, "unable to load cert"},
		{"all of it", func() { replace(t, key, read(t, newKey)) }, login{"cdc_b", "two", "relay-2", true}, ""},
		{"another database", func() { replace(t, dsn, conninfo("cdc_b", "two", "dbname=other")) }, login{}, "restart"},
		{"without TLS", func() { replace(t, dsn, conninfo("cdc_b", "two", "sslmode=disable")) }, login{}, "restart"},
		{"nonsense", func() { replace(t, dsn, []byte(canary)) }, login{}, "must be a URL"},
		{"nothing", func() { replace(t, dsn, nil) }, login{}, "is empty"},
		{"mended", func() { replace(t, dsn, conninfo("cdc", "two", "")) }, login{"cdc", "two", "relay-2", true}, ""},
	} {
		step.do()
		err := dial(t, pg)
		logins := s.takeLogins()
		if step.want == (login{}) {
			if err == nil || !strings.Contains(err.Error(), step.says) || strings.Contains(err.Error(), canary) || isMistake(err) {
				t.Errorf("%s: error = %v, want %q", step.name, err, step.says)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", step.name, err)
		}
		if diff := cmp.Diff([]login{step.want}, logins, cmp.AllowUnexported(login{})); diff != "" {
			t.Errorf("%s: the server heard (-want +got):\n%s", step.name, diff)
		}
	}
}

// TestPasswordFileIsReadAgain: libpq's password file is read again, too.
func TestPasswordFileIsReadAgain(t *testing.T) {
	cleanEnviron(t)
	s := startServer(t, "one", nil)
	pass := file(t, "pass", []byte("*:*:*:*:one\n"))
	t.Setenv("PGPASSFILE", pass)
	pg := s.source(t, "source.dsn", "host=localhost user=cdc sslmode=disable")
	if err := dial(t, pg); err != nil {
		t.Error(err)
	}
	s.change(func() { s.password = "two" })
	replace(t, pass, []byte("*:*:*:*:two\n"))
	if err := dial(t, pg); err != nil {
		t.Error(err)
	}
}
