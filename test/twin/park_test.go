package twin

import (
	"context"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/outbox-cdc/outbox-cdc/internal/delivery"
	"github.com/outbox-cdc/outbox-cdc/internal/parking"
	"github.com/outbox-cdc/outbox-cdc/internal/relay"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

const (
	// maxParked is more than the keys of a world.
	maxParked = 100

	// operatorLimit limits how long a command of the operator takes.
	operatorLimit = 30 * time.Second
)

// A place is the place of a row among the rows of its topic and key.
type place struct {
	aggregate string
	seq       int64
}

// parkedRows is what the history knows of rows whose keys are parked. The methods of a nil *parkedRows do nothing. history.mu
// guards it.
type parkedRows struct {
	deadLetters judge            // of the dead-letter topic: the rows of a key are in order there, too
	bad         map[place]string // ids of the rows that brokers reject
	lost        map[place]bool   // a promotion has lost the row, and it may never leave the dead-letter topic
	discarded   map[string]bool  // ids
	ended       map[string]bool  // ids of parkings that a crash has ended, because a broker then took the row that was rejected
	complete    bool             // no key is parked any more: what was not discarded is in its topic
}

// parkKeys has the relays park keys, or not.
func (w *world) parkKeys(on bool) {
	w.cfg.ParkedKeys, w.history.parked = 0, nil
	if !on {
		return
	}
	w.cfg.ParkedKeys = maxParked
	checked := delivery.Config{AnyPartition: true, Missing: func(string, int64) bool { return true }}
	w.history.parked = &parkedRows{
		deadLetters: judge{Checker: delivery.New(checked)}, bad: make(map[place]string), lost: make(map[place]bool), discarded: make(map[string]bool), ended: make(map[string]bool),
	}
}

// mayMiss reports whether a row may be missing in its topic while later ones of its key are there.
func (h *history) mayMiss(aggregate string, seq int64) bool {
	p, at := h.parked, place{aggregate, seq}
	if p == nil {
		return false
	}
	id, bad := p.bad[at]
	return p.lost[at] || bad && (!p.complete || p.discarded[id])
}

// takes reports whether a topic has the dead letters of parked keys.
func (p *parkedRows) takes(topic string) bool { return p != nil && topic == deadLetters }

// deadLetterOf returns the event of a dead letter.
func deadLetterOf(e *delivery.Event) *delivery.Event {
	if e == nil {
		return nil
	}
	deadLetter := *e
	deadLetter.Topic = deadLetters
	return &deadLetter
}

// lose records that a promotion has lost a row that is stored.
func (p *parkedRows) lose(r *row) {
	if p != nil {
		p.lost[place{r.event.Aggregate, r.event.Seq}] = true
	}
}

// forget removes a row that a promotion has lost and no broker has stored.
func (p *parkedRows) forget(r *row) {
	if p != nil {
		delete(p.bad, place{r.event.Aggregate, r.event.Seq})
	}
}

// recorded handles a record of the position topic. It returns false for a position record.
func (p *parkedRows) recorded(h *history, run int, key string, value []byte) bool {
	_, key, _ = strings.Cut(key, "/")
	if p == nil || key == sink.PositionKey {
		return false
	}
	v, err := parking.Parse(key, value)
	switch {
	case err != nil:
		h.violatedLocked("run %d: record of parked keys %q: %v", run, value, err)
	case v.Request != nil:
		h.noteLocked("operator: request %s to %s parking %s", v.Request.ID, v.Request.Action, v.Request.Parking)
	default:
		h.noteLocked("run %d: record of %d parked keys: %s", run, len(v.Record.Parkings), value)
		for i := range v.Record.Parkings {
			p.discard(h, run, v.Record.Parkings[i].Discarded)
		}
	}
	return true
}

// discard records the rows that an operator has discarded. A relay discards only what cannot be delivered.
func (p *parkedRows) discard(h *history, run int, all []parking.Discarded) {
	for _, d := range all {
		if r := h.rows[d.ID]; r == nil || !r.poison {
			h.violatedLocked("run %d: discards row %q, which brokers do not reject", run, d.ID)
		}
		p.discarded[d.ID] = true
	}
}

// missing describes the rows that were not discarded and are not in their topics, or returns "". No key is parked.
func (h *history) missing() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.parked.complete = true
	if found := h.checker.Finish(delivery.UpTo(h.keys), math.MaxInt); found.All > h.checker.Violations().All {
		return found.String()
	}
	return ""
}

// An operator releases and discards parked keys. Its process has connections of its own.
type operator struct {
	*world
	host *host
	rng  *rand.Rand
}

func (w *world) newOperator() *operator {
	return &operator{world: w, host: newHost(w.net, 0), rng: rand.New(rand.NewPCG(w.seed, drawOperator))}
}

// operateParked releases and discards parked keys at random times until ctx ends. Sometimes the operator fixes the cause before a
// release.
func (w *world) operateParked(ctx context.Context) {
	o := w.newOperator()
	defer o.host.leave()
	pause := float64(time.Second) * (0.1 + 3*o.rng.Float64())
	for {
		o.sleep(ctx, time.Duration(o.rng.ExpFloat64()*pause))
		if ctx.Err() != nil {
			return
		}
		action := []parking.Action{parking.Release, parking.Discard}[o.rng.IntN(2)]
		if o.cfg.RefillOnLoss {
			action = parking.Release // a refill sends a discarded row again, as a row that nobody has discarded
		}
		if o.rng.IntN(4) == 0 {
			o.broker.cure(o.postgres.rows())
		}
		_, _ = o.request(ctx, action) // the brokers may be away
	}
}

// request files a request for a random parked key. It returns the number of parked keys.
func (o *operator) request(ctx context.Context, action parking.Action) (parked int, err error) {
	ctx, cancel := context.WithTimeout(ctx, operatorLimit)
	defer cancel()
	cfg := o.cfg
	cfg.Sink = o.broker.connect(o.host)
	keys, err := relay.OpenParkedKeys(ctx, cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		return 0, err
	}
	defer keys.Close()
	found, filed, err := keys.Read(ctx)
	if err != nil || len(found.Parkings) == 0 {
		return 0, err
	}
	p := found.Parkings[o.rng.IntN(len(found.Parkings))]
	if slices.ContainsFunc(filed, func(r parking.Request) bool { return r.Parking == p.ID }) {
		return len(found.Parkings), nil
	}
	return len(found.Parkings), keys.File(ctx, parking.Request{ID: uuid.NewString(), Action: action, Parking: p.ID, FiledAt: time.Now().UTC()})
}

// releaseAll fixes the cause and releases every key. Then every row that was not discarded must be in its topic.
func (w *world) releaseAll() {
	if w.history.parked == nil {
		return
	}
	o := w.newOperator()
	defer o.host.leave()
	w.broker.cure(math.MaxInt)
	for began := time.Now(); ; time.Sleep(time.Second) {
		parked, err := o.request(w.Context(), parking.Release)
		if err == nil && parked == 0 {
			break
		}
		if time.Since(began) > patience {
			w.history.violated("%d keys are still parked %s after the last trouble, %v", parked, patience, err)
			return
		}
	}
	if missing := w.history.missing(); missing != "" {
		w.history.violated("all keys are released, and have not arrived: %s", missing)
	}
}

// rows returns the number of the last row.
func (p *postgres) rows() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.serial
}
