package bearer_test

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/bearer"
)

// TestRDS checks the password for the server: a presigned request for rds-db:connect, without its scheme.
func TestRDS(t *testing.T) {
	static(t, "AKIAEXAMPLE", canary, "session")
	const address = "orders.abc.eu-central-1.rds.amazonaws.com:5432"
	token, expires, err := bearer.RDS(t.Context(), "eu-central-1", address, "cdc")
	if err != nil {
		t.Fatal(err)
	}
	signed, err := url.Parse("https://" + token)
	if err != nil {
		t.Fatal(err)
	}
	q := signed.Query()
	if signed.Host != address || q.Get("Action") != "connect" || q.Get("DBUser") != "cdc" || q.Get("X-Amz-Expires") != "900" ||
		!strings.HasPrefix(q.Get("X-Amz-Credential"), "AKIAEXAMPLE/") || !strings.HasSuffix(q.Get("X-Amz-Credential"), "/eu-central-1/rds-db/aws4_request") ||
		q.Get("X-Amz-Security-Token") != "session" || len(q.Get("X-Amz-Signature")) != 64 {
		t.Errorf("signed %s", token)
	}
	if left := time.Until(expires); left < 14*time.Minute || left > 15*time.Minute {
		t.Errorf("it expires in %s", left)
	}
	if strings.Contains(token, canary) {
		t.Error("the secret key is in the token")
	}
}

func TestRDSWithoutCredentials(t *testing.T) {
	static(t, "", "", "")
	if token, _, err := bearer.RDS(t.Context(), "eu-central-1", "db:5432", "cdc"); token != "" || err == nil {
		t.Errorf("Token() = %q, %v", token, err)
	}
}
