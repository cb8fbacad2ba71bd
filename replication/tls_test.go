package replication

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/test/kit/bubble"
	"github.com/outbox-cdc/outbox-cdc/test/kit/serverproc"
	"github.com/outbox-cdc/outbox-cdc/test/kit/walsender"
)

// A slowConn sends one byte at a time while slow is set, and nothing while holdBack is set.
type slowConn struct {
	net.Conn
	slow, holdBack bool
	held           []byte
}

func (c *slowConn) Write(p []byte) (int, error) {
	switch {
	case c.holdBack:
		c.held = append(c.held, p...)
		return len(p), nil
	case !c.slow:
		if _, err := c.Conn.Write(append(c.held, p...)); err != nil {
			return 0, err
		}
		c.held = nil
		return len(p), nil
	}
	for i := range p {
		bubble.Sleep(300 * time.Millisecond)
		if _, err := c.Conn.Write(p[i : i+1]); err != nil {
			return i, err
		}
	}
	return len(p), nil
}

// If a deadline passes within a TLS record, the received part must not be lost.
func TestMessageInPiecesOfATLSRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, wire := newTLSSession(t)
		s.open(0).run()
		began := time.Now()
		go func() {
			s.server.send(walData(1, "I1"))
			wire.slow = true
			s.server.send(walData(2, "I2"))
		}()
		for _, want := range []string{"0/1 I1", "0/2 I2"} {
			if diff := cmp.Diff([]string{want}, s.receive()); diff != "" {
				t.Errorf("batch (-want +got):\n%s", diff)
			}
		}
		if d := bubble.Since(began); d < 10*time.Second {
			t.Errorf("the record took %s only", d)
		}
	})
}

// The server sends each message in a TLS record of its own. Records that arrive together still form one batch.
func TestTLSRecordsGather(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, wire := newTLSSession(t)
		s.open(0).run()
		synctest.Wait()
		wire.holdBack = true
		for i := range 20 {
			s.server.send(walData(pgLSN(i), "I"))
		}
		wire.holdBack = false
		go s.server.send(walData(20, "I"))
		if got := len(s.receive()); got != 21 {
			t.Errorf("%d messages in a batch", got)
		}
	})
}

func newTLSSession(t *testing.T) (*session, *slowConn) {
	t.Helper()
	s := newSession(t)
	s.cfg.Conn.TLSConfig = &tls.Config{InsecureSkipVerify: true}
	wire := &slowConn{Conn: s.server.Net}
	s.server.accept = func() {
		if _, err := s.server.ReceiveStartupMessage(); err != nil { // SSLRequest
			return
		}
		_, _ = wire.Write([]byte{'S'})
		s.server.Conn = walsender.New(tls.Server(wire, &tls.Config{Certificates: []tls.Certificate{certificate(t)}}))
	}
	return s, wire
}

func TestTLSRefused(t *testing.T) {
	for name, answer := range map[string]byte{"no TLS": 'N', "unknown authority": 'S'} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, wire := newTLSSession(t)
				s.cfg.Conn.TLSConfig = &tls.Config{ServerName: "db"}
				go func() {
					defer close(s.server.gone)
					defer wire.Close()
					_, _ = s.server.ReceiveStartupMessage()
					_, _ = wire.Write([]byte{answer})
					if answer == 'S' {
						_ = tls.Server(wire, &tls.Config{Certificates: []tls.Certificate{certificate(t)}}).HandshakeContext(t.Context())
					}
				}()
				if _, err := Open(t.Context(), s.cfg, discard()); !errors.Is(err, ErrAccess) {
					t.Errorf("Open: %v", err)
				}
				<-s.server.gone
			})
		})
	}
}

func certificate(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"db"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// With sslmode=prefer, the default, the client tries a host with TLS and without. If both attempts fail for the
// same reason, the error names it once.
func TestConnectErrorSaysEachReasonOnce(t *testing.T) {
	t.Parallel()
	port, err := serverproc.ReservePort() // nobody listens on it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(port.Close)
	for dsn, reason := range map[string]string{
		"postgres://u@" + port.Addr() + "/db":            "connection refused",
		"postgres://u@nowhere.invalid/db?sslmode=prefer": "lookup nowhere.invalid",
	} {
		cfg, err := pgconn.ParseConfig(dsn)
		if err != nil {
			t.Fatal(err)
		}
		_, err = Connect(t.Context(), cfg)
		if text := fmt.Sprint(err); strings.Count(text, reason) != 1 || strings.Contains(text, "\n") || !errors.Is(err, ErrUnreachable) {
			t.Errorf("%s: %q", dsn, err)
		}
	}
}
