package config

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outbox-cdc/outbox-cdc/sink/webhook"
)

// flagsOf returns settings for sink.webhook, and none for another broker.
func flagsOf(pairs ...string) []Setting {
	flags := []Setting{{Key: "source.dsn", Value: "host=localhost", Flag: "--dsn"}}
	for i := 0; i < len(pairs); i += 2 {
		flags = append(flags, Setting{Key: pairs[i], Value: pairs[i+1], Flag: "--set"})
	}
	return flags
}

func webhookOf(t *testing.T, pairs ...string) webhook.Config {
	t.Helper()
	cfg, err := Load(Sources{Flags: flagsOf(pairs...)})
	if err != nil {
		t.Fatal(err)
	}
	w, err := cfg.Webhook()
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func signingSecret(b byte) string {
	return "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat(string(b), 24)))
}

// TestWebhookSecretsAreReadAgain: the relay reads the files of secrets for later requests.
func TestWebhookSecretsAreReadAgain(t *testing.T) {
	a, b := signingSecret('a'), signingSecret('b')
	signing, token := file(t, "signing", []byte(a+"\n")), file(t, "token", []byte("one\n"))
	w := webhookOf(t, "sink.webhook.url", "https://hooks.example.com", "sink.webhook.signing_secrets_file", signing, "sink.webhook.token_file", token)
	for _, want := range [][]string{{a}, {b, a}} {
		replace(t, signing, []byte(strings.Join(want, "\n")+"\n"))
		if got, err := w.Secrets(); err != nil || !slices.Equal(got, want) {
			t.Errorf("%d secrets, %v, want %d", len(got), err, len(want))
		}
	}
	replace(t, signing, []byte(canary))
	if got, err := w.Secrets(); err == nil || isMistake(err) || strings.Contains(err.Error(), canary) {
		t.Errorf("of a file without a secret: %d, %v", len(got), err)
	}
	for _, want := range []string{"one", "two"} {
		replace(t, token, []byte(want+"\n"))
		if got, err := w.Authorization(t.Context()); err != nil || got != "Bearer "+want {
			t.Errorf("%q, %v", got, err)
		}
	}
	basic := webhookOf(t, "sink.webhook.url", "https://hooks.example.com", "sink.webhook.user", "relay", "sink.webhook.password", "p:w")
	if got, err := basic.Authorization(t.Context()); err != nil || got != "Basic cmVsYXk6cDp3" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestWebhookOrigins(t *testing.T) {
	for _, tt := range []struct {
		topic, origins string
		want           []string
	}{
		{"https://hooks.example.com/${route}", "", []string{"https://hooks.example.com"}},
		{"https://hooks.example.com:8443/in", "https://*.customer.example", []string{"https://*.customer.example", "https://hooks.example.com:8443"}},
		{"https://hooks.example.com", "", []string{"https://hooks.example.com"}},
		{"https://hooks.example.com${route}", "", nil}, // .evil.example would be a route
		{"https://${route}.example.com/", "", nil},
		{"${route}", "", nil},
		{"orders", "", nil},
	} {
		pairs := []string{"outbox.topic", tt.topic, "sink.webhook.url", "https://other.example.com"}
		if tt.origins != "" {
			pairs = append(pairs, "sink.webhook.origins", tt.origins)
		}
		if diff := cmp.Diff(tt.want, webhookOf(t, pairs...).Origins); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.topic, diff)
		}
	}
}

func TestWebhookProblems(t *testing.T) {
	const at = "sink.webhook."
	for _, tt := range []struct {
		pairs []string
		want  string
	}{
		{[]string{at + "timeout", "5s"}, at + "url"},
		{[]string{at + "url", "https://u:" + canary + "@hooks.example.com"}, at + "url"},
		{[]string{at + "url", "https://hooks.example.com?code=" + canary}, at + "url"},
		{[]string{at + "url", "https://a", at + "signing_secrets", canary}, at + "signing_secrets"},
		{[]string{at + "url", "https://a", at + "token", "a\n" + canary}, at + "token"},
		{[]string{at + "url", "https://a", at + "token", canary, at + "user", "u", at + "password", "p"}, at + "user"},
		{[]string{at + "url", "https://a", at + "user", "u"}, at + "user"},
		{[]string{at + "url", "https://a", at + "password", canary}, at + "password"},
		{[]string{at + "url", "https://a", at + "origins", "https://a/b"}, at + "origins"},
		{[]string{at + "url", "https://a", at + "content_type", "application/cloudevents+json"}, "sink.webhook"},
		{[]string{at + "url", "https://a", "on_bad_record", "park"}, "on_bad_record"},
		{[]string{at + "url", "https://a", "position_topic", "p"}, "position_topic"},
		{[]string{at + "url", "https://a", "on_bad_record", "dead-letter", "dead_letter_topic", "../x"}, "dead_letter_topic"},
		{[]string{at + "url", "https://a", "sink.kafka.brokers", "a:1"}, "sink"},
	} {
		cfg, err := Load(Sources{Flags: flagsOf(tt.pairs...)})
		if err == nil {
			_, err = cfg.Broker()
		}
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), canary) {
			t.Errorf("%q: %v", tt.pairs, err)
		}
	}
}

func TestWebhookWarnings(t *testing.T) {
	for _, tt := range []struct {
		pairs []string
		want  int
	}{
		{[]string{"sink.webhook.url", "https://a", "sink.webhook.signing_secrets", signingSecret('a')}, 0},
		{[]string{"sink.webhook.url", "http://localhost:8080", "sink.webhook.signing_secrets", signingSecret('a')}, 0},
		{[]string{"sink.webhook.url", "http://a", "sink.webhook.origins", "https://*", "sink.webhook.tls.insecure_skip_verify", "true"}, 4},
		{[]string{"sink.webhook.url", "https://a", "sink.webhook.origins", "https://*", "sink.webhook.refuse_private_addresses", "true"}, 1},
	} {
		cfg, err := Load(Sources{Flags: flagsOf(tt.pairs...)})
		if err != nil {
			t.Fatal(err)
		}
		if got := cfg.webhookWarnings(); len(got) != tt.want {
			t.Errorf("%q: %q", tt.pairs, fmt.Sprint(got))
		}
		w, err := cfg.Webhook()
		if err != nil || w.RefusePrivate == (w.Proxy != nil) {
			t.Errorf("%q: %v", tt.pairs, err)
		}
	}
}
