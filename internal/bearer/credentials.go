package bearer

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"
)

// ClientCredentials is a client of a token endpoint (RFC 6749, 4.4).
type ClientCredentials struct {
	URL    string // http or https
	ID     string
	Secret func() (string, error) // called for each request
	Scopes []string
}

// requestTimeout bounds one request: a login waits for it.
const requestTimeout = 10 * time.Second

// Token asks the endpoint. An error wraps ErrRefused if the endpoint has understood us and
// says no; it names the endpoint, its status, and the code of the error if that is one of the
// RFC's. Redirects are not followed: they would carry the secret elsewhere. Certificates are
// verified by the system's authorities, and HTTPS_PROXY is obeyed.
func (c ClientCredentials) Token(ctx context.Context) (string, time.Time, error) {
	secret, err := c.Secret()
	if err != nil {
		return "", time.Time{}, err
	}
	ctx = context.WithValue(ctx, oauth2.HTTPClient, &http.Client{
		Timeout:       requestTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	})
	request := clientcredentials.Config{ClientID: c.ID, ClientSecret: secret, TokenURL: c.URL, Scopes: c.Scopes}
	token, err := request.Token(ctx)
	if err != nil {
		return "", time.Time{}, c.explain(err)
	}
	return token.AccessToken, token.Expiry, nil
}

// explain says why there is no token, without the query of the URL, which may have a key, and without the body of the
// answer: an endpoint may repeat in it what it was sent.
func (c ClientCredentials) explain(err error) error {
	endpoint, _, _ := strings.Cut(c.URL, "?")
	if e, ok := errors.AsType[*url.Error](err); ok {
		return fmt.Errorf("ask %s for a token: %w", endpoint, e.Err)
	}
	answer, ok := errors.AsType[*oauth2.RetrieveError](err)
	if !ok {
		return fmt.Errorf("token endpoint %s: its answer has no token", endpoint)
	}
	what := fmt.Sprintf("token endpoint %s answers %s", endpoint, answer.Response.Status)
	known := isErrorCode(answer.ErrorCode)
	if known {
		what += ", " + answer.ErrorCode
	}
	if known || isRefusal(answer.Response.StatusCode) {
		return fmt.Errorf("%w: %s", ErrRefused, what)
	}
	return errors.New(what)
}

// isErrorCode reports whether code is one of RFC 6749, 5.2.
func isErrorCode(code string) bool {
	switch code {
	case "invalid_request", "invalid_client", "invalid_grant", "unauthorized_client", "unsupported_grant_type", "invalid_scope":
		return true
	}
	return false
}

func isRefusal(status int) bool {
	return status/100 == 4 && status != http.StatusRequestTimeout && status != http.StatusTooManyRequests
}
