package twin

import (
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/rows"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// queueWriters is what the history knows of the Writers over a queue. history.mu guards it.
type queueWriters struct {
	claims map[writer]*claim
	acked  map[ackedRow]time.Time
}

// An ackedRow is a row at a destination of which a Writer has got the acknowledgement.
type ackedRow struct {
	writer
	destination, id string
}

// opened records that a run has made a Writer. It writes in the ownership that the run has claimed last.
func (h *history) opened(w writer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range slices.Backward(h.claims) {
		if c.run == w.run {
			h.queue.claims[w] = c
			return
		}
	}
}

// judgeClaim returns the claim of a Writer, and checks that its run has read after it that it holds the slot.
func (q *queueWriters) judgeClaim(h *history, w writer) *claim {
	c := q.claims[w]
	if !h.kept {
		return nil
	}
	if c == nil || !c.looked {
		h.violatedLocked("run %d: stores without a claim, or has not looked whether it has the slot", w.run)
	}
	return c
}

// acknowledged records that a Writer has got the acknowledgement of the first records of a request.
func (h *history) acknowledged(w writer, m *message, stored int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range m.Records[:stored] {
		h.queue.acked[ackedRow{w, m.Destination, headerOf(r, "id")}] = time.Now()
	}
}

// judgeResend checks that a Writer had no acknowledgement of a record when it wrote the request. A release may find two dead letters
// of a row.
func (h *history) judgeResend(w writer, m *message, written time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range m.Records {
		at, ok := h.queue.acked[ackedRow{w, m.Destination, headerOf(r, "id")}]
		if ok && at.Before(written) && headerOf(r, rows.ResentFromHeader) == "" {
			h.violatedLocked("run %d: sends row %s again, which was acknowledged", w.run, headerOf(r, "id"))
		}
	}
}

func headerOf(r sink.StoredRecord, name string) string {
	i := slices.IndexFunc(r.Headers, func(h sink.Header) bool { return h.Key == name })
	if i < 0 {
		return ""
	}
	return string(r.Headers[i].Value)
}
