package bearer_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/bearer"
	"github.com/outbox-cdc/outbox-cdc/test/kit/bubble"
)

const canary = "c4n4ry"

// endpoint starts a token endpoint that knows one client. If answer is not nil, it handles the requests instead.
func endpoint(t *testing.T, answer http.HandlerFunc) bearer.ClientCredentials {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if answer != nil {
			answer(w, r)
			return
		}
		id, secret, ok := r.BasicAuth()
		if !ok { // the other way to send them: RFC 6749, 2.3.1
			id, secret = r.FormValue("client_id"), r.FormValue("client_secret")
		}
		if id != "relay" || secret != canary || r.FormValue("grant_type") != "client_credentials" {
			refuse(w, http.StatusUnauthorized, "invalid_client")
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{
			"access_token": "token for " + r.FormValue("scope"), "token_type": "Bearer", "expires_in": 300,
		})
	}))
	t.Cleanup(s.Close)
	return bearer.ClientCredentials{
		URL: s.URL, ID: "relay", Scopes: []string{"kafka", "write"},
		Secret: func() (string, error) { return canary, nil },
	}
}

// refuse responds as RFC 6749 defines, and includes the secret in the description.
func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": code, "error_description": canary + " is wrong"})
}

func TestClientCredentials(t *testing.T) {
	token, expires, err := endpoint(t, nil).Token(t.Context())
	if err != nil || token != "token for kafka write" {
		t.Errorf("Token() = %q, %v", token, err)
	}
	if left := time.Until(expires); left < 4*time.Minute || left > 5*time.Minute {
		t.Errorf("it expires in %s", left)
	}
}

func TestNoToken(t *testing.T) {
	for name, tc := range map[string]struct {
		answer  http.HandlerFunc
		secret  string
		refused bool
		says    string
	}{
		"wrong secret": {nil, canary + "!", true, "401 Unauthorized, invalid_client"},
		"unknown code": {func(w http.ResponseWriter, _ *http.Request) { refuse(w, http.StatusForbidden, canary) }, canary, true, "403 Forbidden"},
		"code and 200": {func(w http.ResponseWriter, _ *http.Request) { refuse(w, http.StatusOK, "invalid_scope") }, canary, true, "invalid_scope"},
		"outage":       {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, canary, http.StatusServiceUnavailable) }, canary, false, "503 Service Unavailable"},
		"overload":     {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, canary, http.StatusTooManyRequests) }, canary, false, "429"},
		"no JSON":      {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, canary) }, canary, false, "has no token"},
		"empty":        {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "{}") }, canary, false, "has no token"},
		"sends us away": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}, canary, false, "307"},
		"hangs up": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, canary, false, "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			c := endpoint(t, tc.answer)
			c.Secret = func() (string, error) { return tc.secret, nil }
			token, _, err := c.Token(t.Context())
			if token != "" || err == nil || errors.Is(err, bearer.ErrRefused) != tc.refused || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("Token() = %q, %v", token, err)
			}
			if strings.Contains(fmt.Sprint(err), canary) {
				t.Errorf("the secret is in %q", err)
			}
		})
	}
}

// TestRedirectIsNotFollowed: the target of a redirect does not get the secret.
func TestRedirectIsNotFollowed(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the redirect was followed") }))
	defer elsewhere.Close()
	c := endpoint(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
	})
	if _, _, err := c.Token(t.Context()); err == nil {
		t.Error("there is a token")
	}
}

// TestSecretIsRead: the secret is read for each request, and an error of reading it is returned.
func TestSecretIsRead(t *testing.T) {
	c := endpoint(t, nil)
	secret := "old"
	c.Secret = func() (string, error) {
		if secret == "" {
			return "", errors.New("no such file")
		}
		return secret, nil
	}
	if _, _, err := c.Token(t.Context()); !errors.Is(err, bearer.ErrRefused) {
		t.Errorf("old secret: %v", err)
	}
	secret = ""
	if _, _, err := c.Token(t.Context()); err == nil || err.Error() != "no such file" {
		t.Errorf("no secret: %v", err)
	}
	secret = canary
	if _, _, err := c.Token(t.Context()); err != nil {
		t.Errorf("new secret: %v", err)
	}
}

// TestReuse checks each stage in the life of a token.
func TestReuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		var trouble error
		get := bearer.Reuse(func(context.Context) (string, time.Time, error) {
			if trouble != nil {
				return "", time.Time{}, trouble
			}
			asked++
			return fmt.Sprint(asked), time.Now().Add(5 * time.Minute), nil
		})
		outage := errors.New("connection refused")
		for _, step := range []struct {
			after   time.Duration
			trouble error
			want    string
		}{
			{0, nil, "1"},
			{59 * time.Second, nil, "1"},
			{2 * time.Second, nil, "2"},      // more than a minute old
			{2 * time.Minute, outage, "2"},   // still valid for 3 minutes
			{0, bearer.ErrRefused, ""},       // a rejection always counts
			{169 * time.Second, outage, "2"}, // 11 s before it expires
			{2 * time.Second, outage, ""},    // too close to its expiry
			{0, nil, "3"},
		} {
			bubble.Sleep(step.after)
			trouble = step.trouble
			got, err := get(t.Context())
			if got != step.want || (err == nil) != (step.want != "") || !errors.Is(err, trouble) && got == "" {
				t.Errorf("%s later, with %v: %q, %v, want %q", step.after, trouble, got, err, step.want)
			}
		}
	})
}

// TestShortToken: if a token is valid for less than a minute, it is not reused for a minute.
func TestShortToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		get := bearer.Reuse(func(context.Context) (string, time.Time, error) {
			asked++
			return fmt.Sprint(asked), time.Now().Add(30 * time.Second), nil
		})
		for _, want := range []string{"1", "1", "1", "2"} {
			if got, err := get(t.Context()); got != want || err != nil {
				t.Errorf("%q, %v, want %q", got, err, want)
			}
			bubble.Sleep(8 * time.Second)
		}
	})
}

// TestReuseTogether: connections that start together share one token. If the context of one ends, it returns at
// once.
func TestReuseTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		get := bearer.Reuse(func(context.Context) (string, time.Time, error) {
			asked++
			bubble.Sleep(time.Second)
			return "x", time.Time{}, nil
		})
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				if token, err := get(t.Context()); token != "x" || err != nil {
					t.Errorf("%q, %v", token, err)
				}
			})
		}
		synctest.Wait()
		hasty, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := get(hasty); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("one in a hurry: %v", err)
		}
		all.Wait()
		if asked != 1 {
			t.Errorf("asked %d times", asked)
		}
	})
}
