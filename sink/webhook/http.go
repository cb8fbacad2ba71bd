package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/lane"
	"github.com/outbox-cdc/outbox-cdc/sink/network"
)

// maxResponse is how much of the body of a response is read, so that the connection can be used again. Nothing of it is used.
const maxResponse = 64 << 10

// idleTime is how long a connection was idle if the receiver may have closed it for that reason: receivers keep idle
// connections for some seconds.
const idleTime = time.Second / 2

// errUnprocessed is the error of a request that the receiver has not processed. Its connection was being closed, or had too
// many requests.
var errUnprocessed = errors.New("the receiver did not process the request")

// A poster sends requests to receivers.
type poster struct {
	cfg           *Config
	base          *lane.Base
	secrets       *credential[[][]byte] // nil: requests are not signed
	authorization *credential[string]   // nil: none
	network       network.Dialer
	transport     *http.Transport
}

func newPoster(cfg *Config, base *lane.Base) *poster {
	p := &poster{cfg: cfg, base: base, network: network.Dialer{
		Dial: cfg.Dial, TLS: cfg.TLS, Protocols: []string{"h2", "http/1.1"}, Timeout: cfg.ConnectTimeout, Connected: base.ConnectionMade,
	}}
	if cfg.RefusePrivate {
		p.network.Dial = (&net.Dialer{KeepAlive: 30 * time.Second, Control: refusePrivate}).DialContext
	}
	if cfg.Secrets != nil {
		p.secrets = &credential[[][]byte]{what: "the signing secrets", get: func(context.Context) ([][]byte, error) {
			texts, err := cfg.Secrets()
			if err != nil {
				return nil, err
			}
			return parseSecrets(texts)
		}}
	}
	if cfg.Authorization != nil {
		p.authorization = &credential[string]{what: "the authorization", get: func(ctx context.Context) (string, error) {
			value, err := cfg.Authorization(ctx)
			if err == nil && !isPrintable([]byte(value)) {
				err = errors.New("it is empty, or has characters that a header cannot have")
			}
			return value, err
		}}
	}
	p.transport = &http.Transport{
		Proxy:                  cfg.Proxy,
		DialContext:            p.network.DialPlain,
		DialTLSContext:         p.network.DialTLS,
		ForceAttemptHTTP2:      true,
		DisableCompression:     true,
		MaxIdleConns:           0, // those of each host are limited
		MaxIdleConnsPerHost:    cfg.Concurrency,
		IdleConnTimeout:        time.Minute,
		TLSHandshakeTimeout:    cfg.ConnectTimeout,
		MaxResponseHeaderBytes: maxResponse,
	}
	if cfg.Proxy != nil && cfg.TLS != nil { // through a proxy, the transport makes the TLS connections
		if base, err := cfg.TLS(); err == nil {
			p.transport.TLSClientConfig = base
		}
	}
	return p
}

// A response is the part of a receiver's response that the relay uses.
type response struct {
	code     int
	pause    time.Duration // that the receiver asks for
	protocol string
	tls      *tls.ConnectionState // nil: no TLS
}

// post sends a record.
func (p *poster) post(ctx context.Context, at *address, r *sink.Record) (response, error) {
	event := wrap(p.cfg, r)
	if p.secrets != nil {
		keys, err := p.secrets.read(ctx)
		if err != nil {
			return response{}, err
		}
		event.sign(keys, time.Now(), r.Value)
	}
	req := p.newRequest(http.MethodPost, at, event.header)
	if len(r.Value) > 0 {
		// The transport may read the body after it has returned, when the bytes of the record are used for another one.
		payload := bytes.Clone(r.Value)
		req.ContentLength = int64(len(payload))
		req.Body = io.NopCloser(bytes.NewReader(payload))
		// The transport would send the request again, because it knows that the receiver has not processed it. The Writer
		// does that: it asks the fence, and counts.
		req.GetBody = func() (io.ReadCloser, error) { return nil, errUnprocessed }
	}
	return p.do(ctx, at, req)
}

// sendEmpty sends a request without an event.
func (p *poster) sendEmpty(ctx context.Context, method string, at *address) (response, error) {
	return p.do(ctx, at, p.newRequest(method, at, http.Header{"User-Agent": {userAgent}}))
}

func (p *poster) newRequest(method string, at *address, header http.Header) *http.Request {
	return &http.Request{
		Method: method, URL: at.url, Host: at.url.Host, Header: header,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
}

// do sends a request with the credentials that the receiver may get.
func (p *poster) do(ctx context.Context, at *address, req *http.Request) (response, error) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Timeout)
	defer cancel()
	if p.authorization != nil && at.trusted {
		value, err := p.authorization.read(ctx)
		if err != nil {
			return response{}, err
		}
		req.Header["Authorization"] = []string{value}
	}
	var conn httptrace.GotConnInfo
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) { conn = info }})
	res, err := p.transport.RoundTrip(req.WithContext(ctx)) // it follows no redirect
	if err != nil {
		return response{}, p.connectionError(err, conn.IdleTime)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusSwitchingProtocols { // its body is the connection, which has no end
		_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, maxResponse)) // the status has decided
	}
	if res.StatusCode == http.StatusUnauthorized && p.authorization != nil {
		p.authorization.forget()
	}
	return response{code: res.StatusCode, pause: pauseAfter(res.Header, time.Now()), protocol: res.Proto, tls: res.TLS}, nil
}

// connectionError returns the error of a request on a connection that was idle before. It wraps lane.ErrStale if the receiver
// was closing the connection; otherwise the connection counts as lost.
func (p *poster) connectionError(err error, idle time.Duration) error {
	_, unsent := errors.AsType[*network.DialError](err)
	late := errors.Is(err, context.DeadlineExceeded)
	switch {
	case unsent, errors.Is(err, context.Canceled):
	case errors.Is(err, errUnprocessed), idle >= idleTime && !late:
		return fmt.Errorf("%w: %w", lane.ErrStale, err)
	default:
		p.base.ConnectionLost()
	}
	return err
}

// closeIdle closes the connections that no request uses. It may leave out one of HTTP/2 whose last request has just ended.
func (p *poster) closeIdle() { p.transport.CloseIdleConnections() }

// close closes every connection.
func (p *poster) close() {
	p.closeIdle()
	p.network.Close()
}
