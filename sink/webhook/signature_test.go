package webhook

import (
	"bytes"
	"encoding/base64"
	"net/http"
	"strings"
	"testing"
	"time"
)

// TestSignature: the example of the specification's reference libraries.
func TestSignature(t *testing.T) {
	key, err := ParseSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		t.Fatal(err)
	}
	e := envelope{id: "msg_p5jXN8AQM9LWM0D4loKWxJek", header: make(http.Header)}
	e.sign([][]byte{key, bytes.Repeat([]byte{1}, 32)}, time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`))
	first, second, _ := strings.Cut(e.header.Get("webhook-signature"), " ")
	if want := "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; first != want {
		t.Errorf("%s, want %s", first, want)
	}
	if !strings.HasPrefix(second, "v1,") || second == first {
		t.Errorf("with the other secret: %s", second)
	}
	if e.header.Get("webhook-id") != e.id || e.header.Get("webhook-timestamp") != "1614265330" {
		t.Errorf("headers %v", e.header)
	}
}

// TestSignedID: a full stop in an id would let one signature be valid for another id, time and payload.
func TestSignedID(t *testing.T) {
	e := envelope{id: "1.1614265330", header: make(http.Header)}
	e.sign([][]byte{make([]byte, 32)}, time.Unix(1614265330, 0), nil)
	if got := e.header.Get("webhook-id"); got != "1%2E1614265330" {
		t.Errorf("webhook-id: %s", got)
	}
}

func TestParseSecret(t *testing.T) {
	encode := func(size int) string { return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("k"), size)) }
	for text, ok := range map[string]bool{
		"whsec_" + encode(24): true, encode(64): true, " whsec_" + encode(32) + "\n": true,
		"": false, "whsec_": false, "whsec_" + encode(23): false, encode(65): false, "whsec_not base64!" + encode(32): false, "whsk_" + encode(32): false,
	} {
		if _, err := ParseSecret(text); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		} else if err != nil && len(text) > 10 && strings.Contains(err.Error(), text[6:]) {
			t.Errorf("the error shows the secret: %v", err)
		}
	}
	if _, err := parseSecrets(nil); err == nil {
		t.Error("no secret is enough")
	}
}
