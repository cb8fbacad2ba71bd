package status

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/internal/admin"
	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/relay"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/fault"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// askTimeout is how long Postgres and the relay may take to respond.
const askTimeout = 5 * time.Second

// Config names the slot and the relay.
type Config struct {
	Conn              *pgconn.Config
	Publication, Slot string
	Address           string // of the server, for display: without user and password
	Arguments         string // of the commands in instructions, for the configuration: -c relay.yaml; may be empty

	// Admin is the address of the relay's admin server, as for [admin.NewClient]. If it is empty,
	// only Postgres is asked.
	Admin string

	// Relay is asked for what its next start would find if the relay does not run. Nil: the broker is not configured.
	Relay *relay.Config
}

// refills reports whether a relay refills by itself after the loss of the slot.
func (c *Config) refills() bool { return c.Relay != nil && c.Relay.RefillOnLoss }

// An Asker asks Postgres and a relay for their state. It may be used by one goroutine at a time and must be closed.
type Asker struct {
	cfg      Config
	observer *catalog.Observer
	client   *admin.Client // nil: its address is wrong, or the relay is not to be asked
	refused  error         // why the address is wrong

	trend   catalog.Trend // of the WAL that Postgres may still retain for the slot
	history admin.History // of the relay

	blocked   []string // result of blockedStandbys
	blockedAt time.Time

	next   *relay.NextStart // result of nextStart
	nextAt time.Time
	unread error // why next is not known
}

// New returns an Asker. It does not connect.
func New(cfg Config) *Asker {
	a := &Asker{cfg: cfg, observer: catalog.ObserveSlot(cfg.Conn, cfg.Slot)}
	if cfg.Admin != "" {
		a.client, a.refused = admin.NewClient(cfg.Admin)
	}
	return a
}

// Close closes the connection to Postgres, also after ctx has ended.
func (a *Asker) Close(ctx context.Context) { a.observer.Close(ctx) }

// History returns the relay's last minutes. It is valid until the next Ask.
func (a *Asker) History() *admin.History { return &a.history }

// Ask asks Postgres and the relay at the same time, and the position store if no relay runs. It blocks for 8 s at most.
func (a *Asker) Ask(ctx context.Context) *Report {
	limited, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	r := &Report{At: time.Now()}
	var both sync.WaitGroup
	both.Go(func() { r.Postgres = a.postgres(limited) })
	both.Go(func() { r.Relay = a.relay(limited) })
	both.Wait()
	if s := r.Postgres.Slot; r.Relay.status == nil && r.Postgres.Error == "" && (s == nil || !s.Active && !s.Synced) {
		if r.NextStart = a.nextStart(ctx); r.NextStart == nil && a.unread != nil && !errors.Is(a.unread, errors.ErrUnsupported) {
			r.unread = oneLine(a.unread)
		}
	}
	r.judge(&a.cfg)
	r.fill(catalog.Terms{Slot: a.cfg.Slot, Publication: a.cfg.Publication, Arguments: a.cfg.Arguments})
	return r
}

func (a *Asker) postgres(ctx context.Context) Postgres {
	p := Postgres{Address: a.cfg.Address}
	state, err := a.observer.InspectSlot(ctx)
	if err != nil {
		p.Error, p.ExitCode = oneLine(err), fault.ExitCode(err)
		if advice := adviceOn(err); advice != "" {
			p.Advice = sentence(advice) + "."
		}
		return p
	}
	p.Version, p.SystemID, p.LogEnd = state.ServerVersion, state.SystemID, state.WALEnd.String()
	if t := state.Oldest; t != nil {
		p.Oldest = &Transaction{PID: t.PID, GID: t.GID, User: t.User, App: t.Application, Age: t.Age.Seconds()}
	}
	if s := state.Slot; s != nil {
		reserve := state.Reserve(a.trend.Note(state.ReadAt, s.SafeWALSize))
		p.Slot = &Slot{
			Name: s.Name, Active: s.Active, ActivePID: s.ActivePID, Application: s.Client.Application,
			Confirmed: s.ConfirmedFlushLSN.String(), Restart: s.RestartLSN.String(),
			WALStatus: s.WALStatus, Invalidation: s.InvalidationReason,
			NotConfirmed: behind(s.ConfirmedFlushLSN, state.WALEnd), Retained: reserve.Retained, Safe: reserve.Safe, idleAt: reserve.IdleAt,
			Orphaned: state.Orphaned(), Blocked: a.blockedStandbys(ctx, state), Missing: state.MissingStandbys(), Failover: s.Failover, Synced: s.Synced, SyncSkipReason: s.SyncSkipReason,
			Decoding: Decoding(s.Decoding), temporary: s.Temporary,
		}
		if !s.Client.IsRelay(a.cfg.Conn) {
			p.Slot.foreign = s.Holder()
		}
		if left := reserve.Judge(state.ReadAt).TimeToLimit; left > 0 {
			p.Slot.TimeToFull = new(left.Seconds())
		}
	}
	return p
}

// Intervals at which the standbys, and the position store, are asked, and how long the latter may take.
const (
	blockedEvery = 10 * time.Second
	nextEvery    = 5 * time.Second
	nextTimeout  = 3 * time.Second
)

// nextStart returns what the next start of the relay would find, which it remembers for a while; nil if that is not known.
func (a *Asker) nextStart(ctx context.Context) *NextStart {
	if a.cfg.Relay == nil {
		return nil
	}
	if now := time.Now(); now.Sub(a.nextAt) >= nextEvery {
		limited, cancel := context.WithTimeout(ctx, nextTimeout)
		defer cancel()
		next, err := relay.FindNextStart(limited, *a.cfg.Relay, slog.New(slog.DiscardHandler))
		a.nextAt, a.next, a.unread = now, next, err
	}
	if errors.Is(a.unread, position.ErrFile) {
		return unreadFile(a.unread)
	}
	if a.unread != nil {
		return nil // another part of the report, or check, says what is wrong
	}
	n := &NextStart{Parked: a.next.Parked, first: a.next.First, recover: a.next.Recover}
	if a.next.Refused != nil {
		n.refused = oneLine(a.next.Refused)
	}
	if p := a.next.Record; p != nil {
		n.Recorded = &Recorded{EndLSN: p.EndLSN.String(), WrittenAt: p.WrittenAt, Unfinished: a.next.Unfinished(), Stopped: p.Stopped}
	}
	if err := cmp.Or(a.next.Catalog, a.next.Broken); err != nil {
		n.Error, n.ExitCode = oneLine(err), fault.ExitCode(err)
		n.Advice = cmp.Or(adviceOn(err), fault.NextAfter(n.ExitCode))
	}
	return n
}

// unreadFile returns the next start of a relay whose position file this process cannot use.
func unreadFile(err error) *NextStart {
	return &NextStart{
		Error: oneLine(err), ExitCode: fault.ExitCode(err), recover: catalog.InstructRecover,
		Advice: "if this is the operating-system user of the relay, let it read and write in that directory; otherwise run status as that user (docs/access.md#position-file)",
	}
}

// adviceOn returns what to do about an error, in a few words and without a full stop.
func adviceOn(err error) string {
	return strings.TrimSuffix(cmp.Or(fault.Next(err), fault.Advice(err)), ".")
}

// blockedStandbys returns [catalog.BlockedStandbys], which it remembers for a while.
func (a *Asker) blockedStandbys(ctx context.Context, state *catalog.State) []string {
	if state.InRecovery || !state.Slot.Failover {
		return nil
	}
	if now := time.Now(); now.Sub(a.blockedAt) >= blockedEvery {
		limited, cancel := context.WithTimeout(ctx, askTimeout/2) // the rest of the report does not need them
		defer cancel()
		a.blockedAt, a.blocked = now, catalog.BlockedStandbys(limited, a.cfg.Conn, a.cfg.Slot)
	}
	return a.blocked
}

// behind returns the number of bytes of WAL from confirmed to end.
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
		err = fmt.Errorf("the relay at %s uses slot %s", r.URL, status.Slot.Name)
	}
	if err != nil {
		r.Error, r.silent = oneLine(err), errors.Is(err, admin.ErrSilent)
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

// fill completes the texts that have instructions.
func (r *Report) fill(terms catalog.Terms) {
	texts := []*string{&r.Why, &r.Advice, &r.Postgres.Advice}
	if n := r.NextStart; n != nil {
		texts = append(texts, &n.Error, &n.Advice)
		if n.Recorded != nil && n.Recorded.Stopped != nil {
			texts = append(texts, &n.Recorded.Stopped.Reason, &n.Recorded.Stopped.Advice)
		}
	}
	for _, text := range texts {
		*text = terms.Fill(*text)
	}
}

// oneLine returns the first line of err: the others are further attempts that failed for the same reason.
func oneLine(err error) string {
	if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, replication.ErrUnreachable) && !errors.Is(err, sink.ErrUnreachable) {
		return "no response within " + askTimeout.String()
	}
	line, _, _ := strings.Cut(err.Error(), "\n")
	return strings.TrimSpace(line)
}

// timeToLimit returns the seconds until Postgres may remove WAL that the slot needs, at the present rate; NaN if it is
// not known or the retained WAL does not grow. The relay has watched the slot for longer, so its value comes first.
func (r *Report) timeToLimit() float64 {
	if r.Relay.status != nil && r.Relay.status.Slot.TimeToFull != nil {
		return float64(*r.Relay.status.Slot.TimeToFull)
	}
	if r.Postgres.Slot != nil && r.Postgres.Slot.TimeToFull != nil {
		return *r.Postgres.Slot.TimeToFull
	}
	return math.NaN()
}
