package tracing

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

const (
	requestTimeout = 10 * time.Second // of one request; what OTLP exporters have by default
	maxBackoff     = 10 * time.Second
	maxRetryAfter  = time.Minute // limit of Retry-After
	maxAnswer      = 64 << 10    // how many bytes of a response are read
)

func newClient(encryption *tls.Config) *http.Client {
	return &http.Client{
		Timeout: requestTimeout,
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, TLSClientConfig: encryption, ForceAttemptHTTP2: true,
			MaxIdleConnsPerHost: 1, IdleConnTimeout: time.Minute, TLSHandshakeTimeout: requestTimeout,
		},
		// No redirects: another server must not get the headers.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Run exports spans until ctx ends: a full batch immediately, other spans within a second after they have
// ended. It keeps spans that the receiver cannot accept and retries. It logs once that exporting fails, and
// once that it succeeds again.
func (t *Tracer) Run(ctx context.Context) {
	defer t.client.CloseIdleConnections()
	for {
		select {
		case <-t.some:
		case <-ctx.Done():
			return
		}
		timer := time.NewTimer(exportEvery)
		select {
		case <-t.full:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		t.flush(ctx)
	}
}

// Flush exports the ended spans, until ctx ends. It returns the number of spans that are left, including
// those of records without an outcome. It must not be called while Run runs.
func (t *Tracer) Flush(ctx context.Context) (left int) {
	defer t.client.CloseIdleConnections()
	t.flush(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.ended) + len(t.started)
}

// flush exports batches until none is left or ctx ends.
func (t *Tracer) flush(ctx context.Context) {
	for ctx.Err() == nil {
		batch := t.batch()
		if len(batch) == 0 {
			return
		}
		t.export(ctx, batch)
	}
}

// export posts a batch until the receiver has accepted or rejected it. If ctx ends first, it keeps the
// batch.
func (t *Tracer) export(ctx context.Context, batch []*span) {
	t.body = t.encode(t.body[:0], batch)
	for attempt := 0; ; attempt++ {
		rejected, err := t.post(ctx)
		if err == nil {
			t.releaseBatch(batch, rejected)
			t.logRecovery(ctx)
			return
		}
		if ctx.Err() != nil {
			t.keep(batch)
			return
		}
		t.logFailure(ctx, err)
		answer, answered := errors.AsType[*answerError](err)
		if answered && !answer.retryable() {
			t.releaseBatch(batch, uint64(len(batch)))
			return
		}
		wait := backoff(attempt)
		if answered {
			wait = max(wait, answer.after)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			t.keep(batch)
			return
		}
	}
}

// backoff returns the wait before the next attempt; attempt counts the failed ones, from 0.
func backoff(attempt int) time.Duration {
	limit := min(maxBackoff, time.Second<<min(attempt, 10))
	return limit/2 + rand.N(limit/2)
}

// post sends t.body and returns how many of its spans were rejected. The error is an *answerError if there
// was a response.
func (t *Tracer) post(ctx context.Context) (rejected uint64, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, t.cfg.URL, bytes.NewReader(t.body))
	if err != nil {
		return 0, err
	}
	if t.cfg.Headers != nil {
		if req.Header, err = t.cfg.Headers(); err != nil {
			return 0, err
		}
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	req.Header.Set("User-Agent", "outbox-cdc/"+t.cfg.Version)
	res, err := t.client.Do(req)
	if err != nil {
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err
		}
		return 0, err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if res.StatusCode != http.StatusOK {
		return 0, newAnswerError(res)
	}
	if err != nil {
		return 0, err
	}
	rejected, why := partialSuccess(answer)
	if rejected > 0 && !t.partly {
		t.partly = true
		t.log.WarnContext(ctx, "the trace receiver rejects spans", slog.Uint64("spans", rejected), slog.String("reason", why))
	}
	return rejected, nil
}

// An answerError is a response that does not accept the spans.
type answerError struct {
	status string
	code   int
	after  time.Duration // Retry-After of the response
}

func newAnswerError(res *http.Response) *answerError {
	e := &answerError{status: res.Status, code: res.StatusCode}
	if seconds, err := strconv.ParseUint(res.Header.Get("Retry-After"), 10, 31); err == nil {
		e.after = min(time.Duration(seconds)*time.Second, maxRetryAfter)
	}
	return e
}

func (e *answerError) Error() string { return fmt.Sprintf("the receiver responds with %s", e.status) }

// retryable reports whether the receiver may accept the same request later:
// https://opentelemetry.io/docs/specs/otlp/#retryable-response-codes
func (e *answerError) retryable() bool {
	switch e.code {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// logFailure logs, once, that spans cannot be exported.
func (t *Tracer) logFailure(ctx context.Context, err error) {
	if !t.failing {
		t.failing = true
		t.log.WarnContext(ctx, "spans cannot be exported, retrying", slog.Any("err", err))
	}
}

// logRecovery logs that spans are exported again.
func (t *Tracer) logRecovery(ctx context.Context) {
	if t.failing {
		t.failing = false
		st := t.Stat()
		t.log.InfoContext(ctx, "spans are exported again", slog.Uint64("dropped", st.Dropped), slog.Uint64("rejected", st.Rejected))
	}
}
