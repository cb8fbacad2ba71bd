package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
)

// Limits of a response. A relay responds from memory. A server that is slower, or sends more, is not a relay.
const (
	askTimeout  = 3 * time.Second
	answerBytes = 4 << 20
)

// ErrSilent is the error of an admin server that accepts the connection and does not respond.
var ErrSilent = errors.New("accepts the connection but does not respond")

// A Client asks the admin server of a relay, which may have another version. Its methods may be
// called from any goroutine. They return within 3 s.
type Client struct {
	base string // ends in a slash
	http http.Client
}

// NewClient returns a Client of the server at address, which is a URL or a value of admin.listen. An
// empty or unspecified host is this machine.
func NewClient(address string) (*Client, error) {
	base, err := baseURL(address)
	if err != nil {
		return nil, err
	}
	return &Client{base: base, http: http.Client{
		Timeout:       askTimeout,
		Transport:     &http.Transport{DisableKeepAlives: true}, // and no proxy
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Address returns the URL of the server.
func (c *Client) Address() string { return c.base }

func baseURL(address string) (string, error) {
	if strings.Contains(address, "://") {
		u, err := url.Parse(address)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
			return "", errors.New("the address of an admin server must be host:port, or a URL such as http://host:port/")
		}
		return strings.TrimSuffix((&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String(), "/") + "/", nil
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", fmt.Errorf("the address of an admin server must be host:port or a URL: %w", err)
	}
	if port == "0" {
		return "", errors.New("admin.listen has port 0: the relay's log names the port that it chose")
	}
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return "http://" + net.JoinHostPort(host, port) + "/", nil
}

// Status returns the response of /status, decoded and as it came.
func (c *Client) Status(ctx context.Context) (*Status, json.RawMessage, error) {
	status := new(Status)
	body, err := c.read(ctx, "status", status)
	if err == nil && status.State == "" {
		return nil, nil, c.stranger(http.StatusOK)
	}
	return status, body, err
}

// History returns the response of /history.
func (c *Client) History(ctx context.Context) (*History, error) {
	history := new(History)
	_, err := c.read(ctx, "history", history)
	return history, err
}

// Live returns the text of /livez, and whether the relay is alive.
func (c *Client) Live(ctx context.Context) (text string, ok bool, err error) {
	return c.probe(ctx, "livez")
}

// Ready is Live for /readyz.
func (c *Client) Ready(ctx context.Context) (text string, ok bool, err error) {
	return c.probe(ctx, "readyz")
}

func (c *Client) probe(ctx context.Context, path string) (text string, ok bool, err error) {
	code, body, err := c.get(ctx, path)
	switch {
	case err != nil:
		return "", false, err
	case code != http.StatusOK && code != http.StatusServiceUnavailable:
		return "", false, c.stranger(code)
	}
	return strings.TrimSpace(string(body)), code == http.StatusOK, nil
}

// read decodes a JSON response into v.
func (c *Client) read(ctx context.Context, path string, v any) (json.RawMessage, error) {
	code, body, err := c.get(ctx, path)
	switch {
	case err != nil:
		return nil, err
	case code == http.StatusServiceUnavailable:
		return nil, fmt.Errorf("%s reports: %s", c.base, strings.TrimSpace(string(body)))
	case code != http.StatusOK || json.Unmarshal(body, v) != nil:
		return nil, c.stranger(code)
	}
	return body, nil
}

// stranger returns the error for a response that no relay sends. It does not show the response, which may come from
// any server.
func (c *Client) stranger(code int) error {
	if code == http.StatusForbidden {
		return fmt.Errorf("the server at %s does not respond under this name: add the name to the relay's admin.hosts, or use the IP address", c.base)
	}
	return fmt.Errorf("the server at %s is not the admin server of a relay", c.base)
}

func (c *Client) get(ctx context.Context, path string) (code int, body []byte, err error) {
	var connected atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }})
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+path, http.NoBody)
	if err != nil {
		return 0, nil, err
	}
	res, err := c.http.Do(req)
	if err == nil {
		defer func() { _ = res.Body.Close() }()
		body, err = io.ReadAll(io.LimitReader(res.Body, answerBytes))
		code = res.StatusCode
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Unwrap() // without the URL, which the error below has
	}
	if late, ok := errors.AsType[net.Error](err); ok && late.Timeout() && connected.Load() {
		return 0, nil, fmt.Errorf("%s %w", c.base, ErrSilent)
	}
	if err != nil {
		return 0, nil, fmt.Errorf("no response from %s: %w", c.base, err)
	}
	return code, body, nil
}
