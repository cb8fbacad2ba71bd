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
	maxRetryAfter  = time.Minute // more is not believed
	maxAnswer      = 64 << 10    // bytes of an answer that are read
)

func newClient(encryption *tls.Config) *http.Client {
	return &http.Client{
		Timeout: requestTimeout,
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, TLSClientConfig: encryption, ForceAttemptHTTP2: true,
			MaxIdleConnsPerHost: 1, IdleConnTimeout: time.Minute, TLSHandshakeTimeout: requestTimeout,
		},
		// Whoever answers from elsewhere must not get the headers.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Run exports spans until ctx ends: a batch as soon as there is one, otherwise what has ended
// within a second. What the receiver cannot take now is kept, and tried again. That it does not is
// logged once, and once that it does again.
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

// Flush exports what has ended, until ctx ends, and returns how many spans are left then: ended
// ones, and those of records without an outcome. It must not be called while Run runs.
func (t *Tracer) Flush(ctx context.Context) (left int) {
	defer t.client.CloseIdleConnections()
	t.flush(ctx)
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.ended) + len(t.started)
}

// flush exports batches until there are none or ctx ends.
func (t *Tracer) flush(ctx context.Context) {
	for ctx.Err() == nil {
		batch := t.batch()
		if len(batch) == 0 {
			return
		}
		t.export(ctx, batch)
	}
}

// export posts a batch until the receiver has taken or rejected it, or ctx ends: then the batch
// is kept.
func (t *Tracer) export(ctx context.Context, batch []*span) {
	t.body = t.encode(t.body[:0], batch)
	for attempt := 0; ; attempt++ {
		rejected, err := t.post(ctx)
		if err == nil {
			t.releaseBatch(batch, rejected)
			t.taken(ctx)
			return
		}
		if ctx.Err() != nil {
			t.keep(batch)
			return
		}
		t.refused(ctx, err)
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

// backoff is how long to wait after so many failed attempts and one more.
func backoff(attempt int) time.Duration {
	limit := min(maxBackoff, time.Second<<min(attempt, 10))
	return limit/2 + rand.N(limit/2)
}

// post sends t.body and returns how many of its spans were rejected. The error is a *answerError
// if there was an answer.
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
		t.log.WarnContext(ctx, "the trace receiver rejects spans; this is said once", slog.Uint64("spans", rejected), slog.String("reason", why))
	}
	return rejected, nil
}

// An answerError is an answer other than that the spans were taken.
type answerError struct {
	status string
	code   int
	after  time.Duration // the receiver asks to wait so long
}

func newAnswerError(res *http.Response) *answerError {
	e := &answerError{status: res.Status, code: res.StatusCode}
	if seconds, err := strconv.ParseUint(res.Header.Get("Retry-After"), 10, 31); err == nil {
		e.after = min(time.Duration(seconds)*time.Second, maxRetryAfter)
	}
	return e
}

func (e *answerError) Error() string { return fmt.Sprintf("the receiver answers %s", e.status) }

// retryable reports whether the same request may be taken later:
// https://opentelemetry.io/docs/specs/otlp/#retryable-response-codes
func (e *answerError) retryable() bool {
	switch e.code {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// refused logs that spans are not exported, the first time.
func (t *Tracer) refused(ctx context.Context, err error) {
	if !t.failing {
		t.failing = true
		t.log.WarnContext(ctx, "spans cannot be exported, the relay goes on", slog.Any("err", err))
	}
}

// taken logs that they are again.
func (t *Tracer) taken(ctx context.Context) {
	if t.failing {
		t.failing = false
		st := t.Stat()
		t.log.InfoContext(ctx, "spans are exported again", slog.Uint64("dropped", st.Dropped), slog.Uint64("rejected", st.Rejected))
	}
}
