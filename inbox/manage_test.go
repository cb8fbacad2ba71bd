package inbox_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/outbox-cdc/outbox-cdc/inbox"
	"github.com/outbox-cdc/outbox-cdc/migrations"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

// Retry and Discard change all events or none. The error names the event that is the problem.
func TestNothingToRetryOrDiscard(t *testing.T) {
	t.Parallel()
	db := database(t, pgtest.Server(t), migrations.Config{})
	shared := pool(t, db)
	p := processor(t, shared, nil)
	done, parked, behind := makeEvent(0, "other", "A"), makeEvent(1, "k", "B"), makeEvent(2, "k", "A")
	handle(t, p, done, parked, behind)
	store, unknown := inbox.Store{}, uuid.New()
	for name, test := range map[string]struct {
		err  error
		says string
	}{
		"retry, unknown event": {store.Retry(t.Context(), shared, "test", parked.ID, unknown), `consumer "test" has no event ` + unknown.String()},
		"retry, not parked":    {store.Retry(t.Context(), shared, "test", behind.ID, parked.ID), "is not parked"},
		"retry, processed":     {store.Retry(t.Context(), shared, "test", done.ID), `it was processed or discarded`},
		"retry, consumer":      {store.Retry(t.Context(), shared, "tset", parked.ID), `no events of a consumer "tset"; consumers with waiting events: test`},
		"discard, unknown":     {store.Discard(t.Context(), shared, "test", parked.ID, unknown), `consumer "test" has no event ` + unknown.String()},
		"discard, processed":   {store.Discard(t.Context(), shared, "test", done.ID), `it was processed or discarded`},
		"discard, consumer":    {store.Discard(t.Context(), shared, "tset", parked.ID), `no events of a consumer "tset"`},
	} {
		if !errors.Is(test.err, inbox.ErrNotFound) || !strings.Contains(test.err.Error(), test.says) {
			t.Errorf("%s: %v, want ErrNotFound with %q", name, test.err, test.says)
		}
	}
	if n, err := store.RetryAll(t.Context(), shared, "tset"); n != 0 || !errors.Is(err, inbox.ErrNotFound) {
		t.Errorf("RetryAll of an unknown consumer = %d, %v", n, err)
	}
	if err := errors.Join(store.Retry(t.Context(), shared, "test"), store.Discard(t.Context(), shared, "test")); err != nil {
		t.Errorf("without ids: %v", err)
	}
	claims := pgtest.QueryRow[int](t, db, `SELECT count(*) FROM processed_events`)
	if all := waitingEvents(t, shared); len(all) != 2 || all[0].ParkedAt.IsZero() || claims != 1 {
		t.Errorf("%d claims, List = %+v", claims, all)
	}
	if n, err := store.RetryAll(t.Context(), shared, "test"); n != 1 || err != nil {
		t.Errorf("RetryAll = %d, %v", n, err)
	}
	if n, err := store.RetryAll(t.Context(), shared, "test"); n != 0 || err != nil {
		t.Errorf("RetryAll with nothing parked = %d, %v", n, err)
	}
}
