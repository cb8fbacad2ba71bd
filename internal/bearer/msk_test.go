package bearer_test

import (
	"encoding/base64"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/bearer"
)

// static sets credentials in the environment, and clears all other settings of AWS.
func static(t *testing.T, key, secret, session string) {
	t.Helper()
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret, "AWS_SESSION_TOKEN": session,
		"AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": "/nowhere", "AWS_SHARED_CREDENTIALS_FILE": "/nowhere", "AWS_PROFILE": "",
		"AWS_CONTAINER_CREDENTIALS_FULL_URI": "", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "", "AWS_WEB_IDENTITY_TOKEN_FILE": "",
	} {
		t.Setenv(name, value)
	}
}

// TestMSK checks the token for the broker: a presigned request for kafka-cluster:Connect.
func TestMSK(t *testing.T) {
	static(t, "AKIAEXAMPLE", canary, "session")
	token, expires, err := bearer.MSK(t.Context(), "eu-central-1")
	if err != nil {
		t.Fatal(err)
	}
	text, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := url.Parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	q := signed.Query()
	if signed.Scheme != "https" || signed.Host != "kafka.eu-central-1.amazonaws.com" || q.Get("Action") != "kafka-cluster:Connect" ||
		!strings.HasPrefix(q.Get("X-Amz-Credential"), "AKIAEXAMPLE/") || !strings.HasSuffix(q.Get("X-Amz-Credential"), "/eu-central-1/kafka-cluster/aws4_request") ||
		q.Get("X-Amz-Security-Token") != "session" || len(q.Get("X-Amz-Signature")) != 64 {
		t.Errorf("signed %s", signed.Redacted())
	}
	if left := time.Until(expires); left < 14*time.Minute || left > 15*time.Minute {
		t.Errorf("it expires in %s", left)
	}
	if strings.Contains(string(text), canary) {
		t.Error("the secret key is in the token")
	}

	static(t, "AKIAOTHER", canary, "")
	next, _, err := bearer.MSK(t.Context(), "eu-central-1")
	if text, _ := base64.RawURLEncoding.DecodeString(next); err != nil || !strings.Contains(string(text), "AKIAOTHER") {
		t.Errorf("after the credentials were replaced: %v", err)
	}
}

func TestMSKWithoutCredentials(t *testing.T) {
	static(t, "", "", "")
	if token, _, err := bearer.MSK(t.Context(), "eu-central-1"); token != "" || err == nil {
		t.Errorf("Token() = %q, %v", token, err)
	}
}
