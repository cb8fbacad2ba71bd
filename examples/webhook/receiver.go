package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/outbox-cdc/outbox-cdc/inbox"
)

// consumer is the service's name in the inbox. Do not change it: under another name the service would process every event
// again.
const consumer = "webhook"

// maxPayload is the maximum size of a payload.
const maxPayload = 1 << 20

// A receiver is the handler of POST /events/….
type receiver struct {
	pool    *pgxpool.Pool
	secrets []*standardwebhooks.Webhook
	log     *slog.Logger
}

// newReceiver returns the handler of the service, and creates its table. While the secret is changed, there are two.
func newReceiver(ctx context.Context, pool *pgxpool.Pool, secrets []string, log *slog.Logger) (http.Handler, error) {
	r := &receiver{pool: pool, log: log}
	for _, secret := range secrets {
		verifier, err := standardwebhooks.NewWebhook(strings.TrimPrefix(secret, "whsec_"))
		if err != nil {
			return nil, errors.New("a signing secret is not valid") // without the secret
		}
		r.secrets = append(r.secrets, verifier)
	}
	_, err := pool.Exec(ctx, `CREATE TABLE IF NOT EXISTS notifications (
		id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, order_id text NOT NULL, message text NOT NULL)`)
	if err != nil {
		return nil, fmt.Errorf("create table notifications: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("POST /events/", r)
	return mux, nil
}

// ServeHTTP handles an event. The status says what the relay does next: 2xx acknowledges, 5xx makes it send the event again,
// and 4xx says that it is of no use to send it again.
func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	payload, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxPayload))
	switch {
	case errors.As(err, new(*http.MaxBytesError)):
		http.Error(w, "too large", http.StatusRequestEntityTooLarge)
		return
	case err != nil:
		return // the relay has gone
	case !r.verified(req.Header, payload):
		http.Error(w, "the signature does not verify", http.StatusUnauthorized)
		return
	}
	e, err := readEvent(req.Header)
	if err != nil {
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
		return
	}
	if err := r.handle(req.Context(), e); err != nil {
		r.log.ErrorContext(req.Context(), "event failed", slog.String("id", e.id.String()), slog.Any("err", err))
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// An event is what the headers of a CloudEvent say.
type event struct {
	id        uuid.UUID
	kind, key string
}

// readEvent reads the headers of a CloudEvent in binary mode. Their values are percent-encoded.
func readEvent(h http.Header) (event, error) {
	id, err := uuid.Parse(h.Get("ce-id"))
	if err != nil {
		return event{}, errors.New("ce-id is not a UUID")
	}
	kind, typeErr := url.PathUnescape(h.Get("ce-type"))
	key, keyErr := url.PathUnescape(h.Get("ce-subject"))
	if typeErr != nil || keyErr != nil || kind == "" {
		return event{}, errors.New("not a CloudEvent")
	}
	return event{id, kind, key}, nil
}

// verified reports whether one of the secrets has signed a request, within the last five minutes.
func (r *receiver) verified(h http.Header, payload []byte) bool {
	for _, secret := range r.secrets {
		if secret.Verify(payload, h) == nil {
			return true
		}
	}
	return false
}

// handle writes the notification of an event, in the transaction that claims its id. An id that was claimed before is a
// duplicate.
func (r *receiver) handle(ctx context.Context, e event) error {
	return pgx.BeginFunc(ctx, r.pool, func(tx pgx.Tx) error {
		fresh, err := inbox.Claim(ctx, tx, consumer, e.id)
		if err != nil || !fresh {
			return err
		}
		_, err = tx.Exec(ctx, `INSERT INTO notifications (order_id, message) VALUES ($1, $2)`, e.key, e.kind)
		return err
	})
}
