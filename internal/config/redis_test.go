package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/sink/redisstreams"
)

const redisFile = `
source: {dsn: host=localhost}
sink:
  redis_streams:
    addresses: ["a:26379"]
    user: relay
    password: x
    sentinel:
      primary: orders
      user: watcher
`

// The password for Sentinels is read from its file for each connection.
func TestSentinelPasswordIsReadAgain(t *testing.T) {
	cleanEnviron(t)
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("first\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := load(t, redisFile+"      password_file: "+file+"\n", nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := cfg.Broker()
	if err != nil {
		t.Fatal(err)
	}
	got, ok := b.(redisstreams.Config)
	if !ok || got.Sentinel == nil || got.Sentinel.Primary != "orders" {
		t.Fatalf("broker %+v", got)
	}
	for _, want := range []string{"first", "second"} {
		if err := os.WriteFile(file, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
		if user, password, err := got.Sentinel.Credentials(t.Context()); err != nil || user != "watcher" || password != want {
			t.Errorf("user %q, password %q, %v, want the one that is in the file now", user, password, err)
		}
	}
	cfg, err = load(t, redisFile, nil)
	if err == nil {
		_, err = cfg.Broker()
	}
	if err == nil || !strings.Contains(err.Error(), "sink.redis_streams.sentinel.user: requires sink.redis_streams.sentinel.password") {
		t.Errorf("a user without a password: %v", err)
	}
}
