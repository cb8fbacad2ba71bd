package config

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Another process that gets these settings has the same broker: secrets are not masked, defaults are left out, and so are the
// settings of other sections.
func TestSinkSettings(t *testing.T) {
	cfg, err := Load(Sources{
		Environ: []string{"OUTBOX_CDC_SINK_JETSTREAM_PASSWORD=c4n4ry"},
		Flags: []Setting{
			{Key: "source.dsn", Value: "postgres://db/app", Flag: "--dsn"},
			{Key: "sink.jetstream.servers", Value: "a:1,b:2", Flag: "--nats"},
			{Key: "sink.jetstream.user", Value: "relay", Flag: "--set"},
			{Key: "sink.jetstream.request_timeout", Value: "90s", Flag: "--set"},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if cfg.SinkKind() != "jetstream" {
		t.Errorf("kind %s", cfg.SinkKind())
	}
	want := map[string]any{
		"sink.jetstream.servers": []string{"a:1", "b:2"}, "sink.jetstream.user": "relay", "sink.jetstream.password": "c4n4ry",
		"sink.jetstream.request_timeout": "1m30s",
	}
	if diff := cmp.Diff(want, cfg.SinkSettings()); diff != "" {
		t.Error(diff)
	}
}
