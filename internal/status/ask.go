package status

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/internal/admin"
	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/relay"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

// askTimeout is how long Postgres may take to answer.
const askTimeout = 5 * time.Second

// Config says who is asked.
type Config struct {
	Conn              *pgconn.Config
	Publication, Slot string
	Address           string // of the server, to be shown: without user and password

	// Admin is where the relay's admin server is, as [admin.NewClient] takes it. Empty: there is
	// none, and Postgres alone is asked.
	Admin string
}

// An Asker asks, again and again. It belongs to one goroutine at a time and must be closed.
type Asker struct {
	cfg      Config
	observer *catalog.Observer
	client   *admin.Client // nil: refused, or the relay is not to be asked
	refused  error

	trend   catalog.Trend // of the slot's reserve, as Postgres has told
	history admin.History // of the relay
}

// New returns an Asker. It contacts nobody.
func New(cfg Config) *Asker {
	a := &Asker{cfg: cfg, observer: catalog.ObserveSlot(cfg.Conn, cfg.Slot)}
	if cfg.Admin != "" {
		a.client, a.refused = admin.NewClient(cfg.Admin)
	}
	return a
}

// Close closes the connection to Postgres, also after ctx has ended.
func (a *Asker) Close(ctx context.Context) { a.observer.Close(ctx) }

// History returns what the relay has told of the last minutes. It is valid until the next Ask.
func (a *Asker) History() *admin.History { return &a.history }

// Ask asks both sides at once. It blocks for 5 s at most.
func (a *Asker) Ask(ctx context.Context) *Report {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	r := &Report{At: time.Now()}
	var both sync.WaitGroup
	both.Go(func() { r.Postgres = a.postgres(ctx) })
	both.Go(func() { r.Relay = a.relay(ctx) })
	both.Wait()
	r.judge(&a.cfg)
	return r
}

func (a *Asker) postgres(ctx context.Context) Postgres {
	p := Postgres{Address: a.cfg.Address}
	state, err := a.observer.InspectSlot(ctx)
	if err != nil {
		p.Error, p.ExitCode, p.Advice = oneLine(err), relay.ExitCode(err), a.named(relay.Advice(err))
		return p
	}
	p.Version, p.SystemID, p.LogEnd = state.ServerVersion, state.SystemID, state.WALEnd.String()
	if t := state.Oldest; t != nil {
		p.Oldest = &Transaction{PID: t.PID, GID: t.GID, User: t.User, App: t.Application, Age: t.Age.Seconds()}
	}
	if s := state.Slot; s != nil {
		reserve := state.Reserve(a.trend.Note(state.ReadAt, s.SafeWALSize))
		p.Slot = &Slot{
			Name: s.Name, Active: s.Active, ActivePID: s.ActivePID,
			Confirmed: s.ConfirmedFlushLSN.String(), Restart: s.RestartLSN.String(),
			WALStatus: s.WALStatus, Invalidation: s.InvalidationReason,
			NotConfirmed: behind(s.ConfirmedFlushLSN, state.WALEnd), Retained: reserve.Retained, Safe: reserve.Safe, idleAt: reserve.IdleAt,
		}
		if left := reserve.Judge(state.ReadAt).TimeToLimit; left > 0 {
			p.Slot.TimeToFull = new(left.Seconds())
		}
	}
	return p
}

// behind is how much log there is from confirmed to end.
func behind(confirmed, end pglogrepl.LSN) int64 {
	if end < confirmed {
		return 0
	}
	return int64(end - confirmed)
}

func (a *Asker) relay(ctx context.Context) Relay {
	if a.refused != nil {
		return Relay{URL: a.cfg.Admin, Error: oneLine(a.refused)}
	}
	if a.client == nil {
		return Relay{}
	}
	r := Relay{URL: a.client.Address()}
	status, body, err := a.client.Status(ctx)
	if err == nil && status.Slot.Name != a.cfg.Slot {
		err = fmt.Errorf("what answers at %s is the relay of slot %s", r.URL, status.Slot.Name)
	}
	if err != nil {
		r.Error = oneLine(err)
		return r
	}
	r.status, r.Status = status, body
	if len(a.history.Points) == 0 {
		if history, err := a.client.History(ctx); err == nil {
			a.history = *history
		}
	}
	a.history.Follow(status)
	return r
}

// named fills in the names that an advice leaves open.
func (a *Asker) named(advice string) string {
	return strings.NewReplacer("<slot>", a.cfg.Slot, "<publication>", a.cfg.Publication).Replace(advice)
}

// oneLine is the text of err: of several attempts that failed for one reason, the first.
func oneLine(err error) string {
	if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, replication.ErrUnreachable) {
		return "no answer in " + askTimeout.String()
	}
	line, _, _ := strings.Cut(err.Error(), "\n")
	return strings.TrimSpace(line)
}

// timeToFull returns in how many seconds the slot's reserve is used up, as whoever has watched it
// for longer knows; NaN if it is not known or will not be.
func (r *Report) timeToFull() float64 {
	if r.Relay.status != nil && r.Relay.status.Slot.TimeToFull != nil {
		return float64(*r.Relay.status.Slot.TimeToFull)
	}
	if r.Postgres.Slot != nil && r.Postgres.Slot.TimeToFull != nil {
		return *r.Postgres.Slot.TimeToFull
	}
	return math.NaN()
}
