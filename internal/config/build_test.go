package config

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// settings makes flags of alternating keys and values, after those every relay needs.
func settings(pairs ...string) []Setting {
	pairs = append([]string{
		"source.dsn", "host=localhost user=u dbname=app", "source.publication", "p", "source.slot", "s", "sink.kafka.brokers", "a:9092",
	}, pairs...)
	var out []Setting
	for pair := range slices.Chunk(pairs, 2) {
		out = append(out, Setting{Key: pair[0], Value: pair[1], Flag: "--set"})
	}
	return out
}

func TestConnector(t *testing.T) {
	cfg, err := Load(Sources{Flags: settings(
		"sink.kafka.create_topics.partitions", "6", "sink.kafka.sasl.mechanism", "SCRAM-SHA-512",
		"sink.kafka.sasl.user", "u", "sink.kafka.sasl.password", "pw", "source.wait_for_slot", "false", "headers.position", "true",
	)})
	if err != nil {
		t.Fatal(err)
	}
	got, err := cfg.Connector()
	if err != nil {
		t.Fatal(err)
	}
	wantSink := sink.Config{
		Brokers: []string{"a:9092"}, ClientID: "s", Compression: "none", Partitioner: "murmur2",
		CreateTopics: &sink.TopicSpec{Partitions: 6, ReplicationFactor: -1},
		SASL:         &sink.SASL{Mechanism: "SCRAM-SHA-512", User: "u", Password: "pw"},
		WindowBytes:  8 << 20, WindowRecords: 50_000, ConnectionsPerBroker: 1,
	}
	if diff := cmp.Diff(wantSink, got.Sink); diff != "" {
		t.Errorf("Sink (-want +got):\n%s", diff)
	}
	if got.Name != "s" || !got.Create || !got.FailIfSlotInUse || !got.Route.PositionHeaders || got.Source.Conn.Database != "app" ||
		got.DrainTimeout != 25*time.Second || !slices.Equal(got.Tables, []string{"outbox"}) {
		t.Errorf("Connector() = %+v", got)
	}
}

func TestKafkaTLS(t *testing.T) {
	certFile, keyFile := certificate(t)
	cfg, err := Load(Sources{Flags: settings(
		"sink.kafka.tls.enabled", "true", "sink.kafka.tls.ca_file", certFile, "sink.kafka.tls.server_name", "kafka",
		"sink.kafka.tls.cert_file", certFile, "sink.kafka.tls.key_file", keyFile,
	)})
	if err != nil {
		t.Fatal(err)
	}
	got, err := cfg.Connector()
	if err != nil {
		t.Fatal(err)
	}
	if c := got.Sink.TLS; c == nil || c.RootCAs == nil || c.InsecureSkipVerify || c.ServerName != "kafka" || len(c.Certificates) != 1 {
		t.Errorf("TLS = %+v", c)
	}

	for _, tt := range []struct {
		pairs []string
		want  string
	}{
		{[]string{"sink.kafka.tls.ca_file", "/nowhere"}, "--set: sink.kafka.tls.ca_file: open /nowhere: no such file or directory"},
		{[]string{"sink.kafka.tls.ca_file", keyFile}, "--set: sink.kafka.tls.ca_file: " + keyFile + " contains no certificate in PEM form"},
		{[]string{"sink.kafka.tls.key_file", keyFile}, "--set: sink.kafka.tls.key_file: sink.kafka.tls.cert_file is needed too"},
		{[]string{"sink.kafka.tls.cert_file", keyFile, "sink.kafka.tls.key_file", keyFile}, "--set: sink.kafka.tls.cert_file: tls: failed to find"},
	} {
		_, err := Load(Sources{Flags: settings(append(tt.pairs, "sink.kafka.tls.enabled", "true")...)})
		if err == nil || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%v: error = %v, want %s", tt.pairs, err, tt.want)
		}
	}
}

func TestWarnings(t *testing.T) {
	cfg, err := Load(Sources{Flags: settings("sink.kafka.sasl.mechanism", "PLAIN", "sink.kafka.sasl.user", "u", "sink.kafka.sasl.password", "p")})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"the Kafka password crosses the network unencrypted"}, cfg.Warnings()); diff != "" {
		t.Errorf("Warnings() (-want +got):\n%s", diff)
	}
}

// certificate writes a self-signed certificate and its key.
func certificate(t *testing.T) (certFile, keyFile string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	keyBytes, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for name, block := range map[string]*pem.Block{
		certFile: {Type: "CERTIFICATE", Bytes: cert},
		keyFile:  {Type: "EC PRIVATE KEY", Bytes: keyBytes},
	} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile
}
