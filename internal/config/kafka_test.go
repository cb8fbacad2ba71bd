package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/kafka"
)

// under returns settings below sink.kafka.sasl.
func under(pairs ...string) []string {
	for i := 0; i < len(pairs); i += 2 {
		pairs[i] = "sink.kafka.sasl." + pairs[i]
	}
	return pairs
}

func kafkaLogin(t *testing.T, pairs ...string) *kafka.SASL {
	t.Helper()
	cfg, err := Load(Sources{Flags: settings(pairs...)})
	if err != nil {
		t.Fatal(err)
	}
	kafka, err := cfg.Kafka()
	if err != nil {
		t.Fatal(err)
	}
	return kafka.SASL
}

// TestPasswordIsReadAgain: the relay reads the password file for each login.
func TestPasswordIsReadAgain(t *testing.T) {
	password := file(t, "password", []byte("one\n"))
	s := kafkaLogin(t, under("mechanism", "SCRAM-SHA-512", "user", "u", "password_file", password)...)
	for _, want := range []string{"one", "two"} {
		replace(t, password, []byte(want+"\n"))
		if got, err := s.Secret(t.Context()); got != want || err != nil {
			t.Errorf("%q, %v, want %q", got, err, want)
		}
	}
	replace(t, password, nil)
	if got, err := s.Secret(t.Context()); err == nil || isMistake(err) || errors.Is(err, sink.ErrAccess) {
		t.Errorf("of an empty file: %q, %v", got, err)
	}
}

// TestTokenFile: the relay reads the token file for each login.
func TestTokenFile(t *testing.T) {
	token := file(t, "token", []byte(" one\n"))
	s := kafkaLogin(t, under("mechanism", "OAUTHBEARER", "token_file", token, "extensions", "logicalCluster=lkc-1,identityPoolId=pool=2")...)
	if diff := cmp.Diff(map[string]string{"logicalCluster": "lkc-1", "identityPoolId": "pool=2"}, s.Extensions); diff != "" {
		t.Errorf("extensions (-want +got):\n%s", diff)
	}
	for _, tt := range []struct{ content, want string }{{"one", "one"}, {"two\n", "two"}, {"", ""}, {canary + "\x01auth=x", ""}, {canary + " " + canary, ""}, {"three", "three"}} {
		replace(t, token, []byte(tt.content))
		got, err := s.Secret(t.Context())
		if got != tt.want || (err == nil) != (tt.want != "") || strings.Contains(fmt.Sprint(err), canary) {
			t.Errorf("%q: %q, %v, want %q", tt.content, got, err, tt.want)
		}
	}
}

// TestTokenEndpoint: if the endpoint rejects the client secret, the error is ErrAccess, as if Kafka rejected the
// login, until the file contains the correct secret.
func TestTokenEndpoint(t *testing.T) {
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if id, secret, _ := r.BasicAuth(); id != "relay" || secret != canary {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"access_token": "for " + r.FormValue("scope"), "expires_in": 3600})
	}))
	defer endpoint.Close()
	secret := file(t, "secret", []byte("old\n"))
	s := kafkaLogin(t, under("mechanism", "OAUTHBEARER", "token_url", endpoint.URL, "client_id", "relay", "client_secret_file", secret, "scopes", "a,b")...)
	if token, err := s.Secret(t.Context()); !errors.Is(err, sink.ErrAccess) || !strings.Contains(err.Error(), endpoint.URL+" answers 401") {
		t.Errorf("with the old secret: %q, %v", token, err)
	}
	replace(t, secret, []byte(canary+"\n"))
	if token, err := s.Secret(t.Context()); token != "for a b" || err != nil {
		t.Errorf("with the new one: %q, %v", token, err)
	}
	endpoint.Close()
	if token, err := s.Secret(t.Context()); token != "for a b" || err != nil {
		t.Errorf("again: %q, %v", token, err)
	}
}

// TestMSKIAM: the login uses a token instead of a password. Package bearer tests the signature.
func TestMSKIAM(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
	t.Setenv("AWS_SECRET_ACCESS_KEY", canary)
	s := kafkaLogin(t, append(under("mechanism", "AWS_MSK_IAM", "region", "eu-central-1"), "sink.kafka.tls.enabled", "true")...)
	token, err := s.Secret(t.Context())
	if s.Mechanism != "OAUTHBEARER" || token == "" || err != nil {
		t.Errorf("%s, %q, %v", s.Mechanism, token, err)
	}
	if again, err := s.Secret(t.Context()); again != token || err != nil {
		t.Errorf("the next connection has another token: %v", err)
	}
}

func TestLoginProblems(t *testing.T) {
	token := file(t, "token", []byte("t"))
	for _, tt := range []struct {
		pairs []string
		want  []string
	}{
		{under("region", "eu-central-1"), []string{"region: has no effect: sink.kafka.sasl.mechanism is not set"}},
		{under("mechanism", "PLAIN"), []string{"mechanism: requires sink.kafka.sasl.user", "mechanism: requires sink.kafka.sasl.password"}},
		{under("mechanism", "PLAIN", "user", "u", "password", "p", "scopes", "a"), []string{"scopes: has no effect: sink.kafka.sasl.mechanism is PLAIN"}},
		{under("mechanism", "OAUTHBEARER"), []string{
			"mechanism: requires sink.kafka.sasl.token_url or sink.kafka.sasl.token_file",
			"mechanism: requires sink.kafka.sasl.client_id", "mechanism: requires sink.kafka.sasl.client_secret",
		}},
		{under("mechanism", "OAUTHBEARER", "token_file", token, "client_id", "c"), []string{"client_id: has no effect: sink.kafka.sasl.token_file is given"}},
		{under("mechanism", "OAUTHBEARER", "token_file", "/nowhere"), []string{"token_file: open /nowhere: no such file or directory"}},
		{under("mechanism", "OAUTHBEARER", "token_file", token, "extensions", "auth=x"), []string{`"auth", which cannot be sent`}},
		{under("extensions", "a b=c"), []string{`extensions: found "a b=c"; allowed is a list, each item name=value`}},
		{under("token_url", "https://u:c4n4ry@idp/token"), []string{`token_url: found "***"; allowed is a URL`}},
		{under("mechanism", "AWS_MSK_IAM", "region", "eu-central-1"), []string{"mechanism: requires sink.kafka.tls.enabled"}},
		{under("mechanism", "AWS_MSK_IAM"), []string{"mechanism: requires sink.kafka.sasl.region", "requires sink.kafka.tls.enabled"}},
	} {
		_, err := Load(Sources{Flags: settings(tt.pairs...)})
		if err == nil {
			cfg, _ := Load(Sources{Flags: settings(tt.pairs...)})
			_, err = cfg.Kafka()
		}
		for _, want := range tt.want {
			if !strings.Contains(fmt.Sprint(err), want) || strings.Contains(fmt.Sprint(err), canary) {
				t.Errorf("%v: error = %v, want %s", tt.pairs, err, want)
			}
		}
	}
}
