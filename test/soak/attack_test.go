package soak

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/outbox-cdc/outbox-cdc/test/kit/faultproxy"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
)

// strike carries out one and returns when everything runs again. An error is the test's
// own; what the relay does wrong is noted.
func (s *soak) strike(ctx context.Context, strike Strike) error {
	s.explain(strike)
	if strike.Has(BrokerKill, BrokerShutdown, BrokerPause, LeaderMove, CutBroker, HoleBroker, HoleHost) {
		s.confirms.Unanswered()
	}
	if strike.Has(BrokerKill, BrokerShutdown, BrokerPause, LeaderMove) {
		over := s.confirms.Outage()
		defer func() { over(time.Now()) }()
	}
	if s.over != nil && strike.Has(BrokerKill, BrokerShutdown) {
		s.writers.SetPace(outagePace)
		defer s.writers.SetPace(overPace)
	}
	struck := s.target(ctx, strike)
	var g errgroup.Group
	for _, step := range strike.Attacks {
		g.Go(func() error {
			time.Sleep(step.After)
			if err := s.attack(ctx, struck, step, len(strike.Attacks) == 1); err != nil {
				return fmt.Errorf("%s: %w", step.Attack, err)
			}
			return nil
		})
	}
	return g.Wait()
}

// explain tells the checker of a strike and of the duplicates that it explains.
func (s *soak) explain(strike Strike) {
	began, before := time.Now(), s.confirms.Again()
	refilled := s.delivered.disturb(began, strike.Has(SlotDrop, SlotRecreate))
	var explain func() int // of other brokers than Kafka, see Confirms.MayRepeat
	if refilled != nil {
		explain = func() int { return refilled() + s.confirms.Again() - before }
	}
	s.checker.Fault(strike.Name(), began, explain)
	if s.parked != nil { // the next relay sends dead letters of parked keys again: see encode.RowHeaders
		s.parked.deadLetters.Fault(strike.Name(), began, func() int { return s.confirms.Again() - before })
	}
}

// target returns the relay that the strike attacks: the one that holds the slot, or another one.
func (s *soak) target(ctx context.Context, strike Strike) *instance {
	active := max(0, s.active(ctx))
	if strike.Standby {
		active++
	}
	return s.relays[active%len(s.relays)]
}

// active returns the index of the relay that holds the slot, -1 if none is known to.
func (s *soak) active(ctx context.Context) int {
	var name string
	_ = s.ask(ctx, func(conn *pgx.Conn) error { // the server may be down
		return conn.QueryRow(ctx, `SELECT application_name FROM pg_replication_slots JOIN pg_stat_activity ON pid = active_pid
			WHERE slot_name = $1`, soakSlot).Scan(&name)
	})
	return slices.IndexFunc(s.relays, func(i *instance) bool { return i.name == name })
}

// attack runs one step of a strike against a relay.
func (s *soak) attack(ctx context.Context, relay *instance, step Step, alone bool) error {
	switch step.Attack {
	case RelayKill:
		return s.restart(ctx, relay, syscall.SIGKILL, alone)
	case RelayTerminate:
		return s.restart(ctx, relay, syscall.SIGTERM, alone)
	case RelayPause, RelayFreeze:
		process := relay.process.Load().Cmd.Process
		return pause(step.Hold, func() error { return process.Signal(syscall.SIGSTOP) }, func() error { return process.Signal(syscall.SIGCONT) })
	case SenderTerminate:
		return s.terminateSender(ctx, alone)
	case PostgresFast:
		return s.restartPostgres(ctx, s.srv.Shutdown, alone)
	case PostgresImmediate:
		return s.restartPostgres(ctx, s.srv.Immediate, alone)
	case PostgresKill:
		return s.restartPostgres(ctx, s.srv.Kill, alone)
	case BrokerKill:
		return errors.Join(s.broker.Kill(ctx), s.broker.Restart(ctx))
	case BrokerShutdown:
		return errors.Join(s.broker.Shutdown(ctx), s.broker.Restart(ctx))
	case BrokerPause:
		return pause(step.Hold, s.broker.Pause, s.broker.Resume)
	case LeaderMove:
		return s.cluster.MoveLeaders(ctx)
	case CutPostgres:
		rig.Cut(relay.toPostgres, step.Direction, step.Bytes)
		return nil
	case CutBroker:
		rig.Cut(relay.toBroker, step.Direction, step.Bytes)
		return nil
	case HolePostgres:
		return blackHole(step, relay.toPostgres)
	case HoleBroker:
		return blackHole(step, relay.toBroker)
	case HoleHost:
		return blackHole(step, relay.toPostgres, relay.toBroker)
	case SlotDrop:
		return s.dropSlot(ctx, "", alone)
	case SlotRecreate:
		return s.dropSlot(ctx, `; SELECT pg_create_logical_replication_slot('`+soakSlot+`', 'pgoutput')`, alone)
	case PublicationDrop:
		return s.ask(ctx, func(conn *pgx.Conn) error {
			return pause(step.Hold,
				func() error { return execute(ctx, conn, `DROP PUBLICATION `+rig.Publication) },
				func() error {
					return execute(ctx, conn, `CREATE PUBLICATION `+rig.Publication+` FOR TABLE outbox WITH (publish = 'insert')`)
				})
		})
	}
	return errors.New("unknown attack")
}

// blackHole has paths drop all data for a while. Afterwards the connections continue, as with TCP, or
// stay half-open, as after a gateway has forgotten them.
func blackHole(step Step, paths ...*faultproxy.Proxy) error {
	var release []func()
	for _, p := range paths {
		release = append(release, p.Stall(step.Ways...))
	}
	time.Sleep(step.Hold)
	for i, p := range paths {
		if step.Forgotten {
			p.Partition()
			p.Heal()
		}
		release[i]()
	}
	return nil
}

func pause(hold time.Duration, stop, resume func() error) error {
	if err := stop(); err != nil {
		return err
	}
	time.Sleep(hold)
	return resume()
}

func execute(ctx context.Context, conn *pgx.Conn, sql string) error {
	_, err := conn.Exec(ctx, sql)
	return err
}

// restart ends a relay by a signal and starts it again.
func (s *soak) restart(ctx context.Context, relay *instance, sig syscall.Signal, alone bool) error {
	r := relay.process.Load()
	if r.Ended() {
		return nil // by itself; that is noted elsewhere
	}
	if err := r.Cmd.Process.Signal(sig); err != nil {
		return err
	}
	select {
	case <-r.Done:
	case <-time.After(40 * time.Second):
		s.broke(Exited, "the relay still runs 40 s after %v", sig)
		_ = r.Cmd.Process.Kill()
		<-r.Done
	}
	if code := r.Cmd.ProcessState.ExitCode(); sig == syscall.SIGTERM && code != 0 {
		s.broke(Exited, "exit code %d after SIGTERM:\n%s", code, rig.Tail(r.Stderr.String(), 20))
	}
	if s.cfg.before != nil {
		before := func(conn *pgx.Conn) error { return s.cfg.before(ctx, conn) }
		err := s.ask(ctx, before)
		for end := time.Now().Add(10 * time.Second); err != nil && time.Now().Before(end); err = s.ask(ctx, before) {
			time.Sleep(20 * time.Millisecond) // the other strike of a pair may have the server restarted
		}
		if err != nil {
			return err
		}
	}
	// A relay that has not heard from Postgres when it stops does not wait for every record, and says so.
	undrained := strings.Contains(r.Stderr.String(), "stopped before every record was acknowledged")
	if sig == syscall.SIGKILL || !alone || undrained {
		s.confirms.Forgotten(time.Now())
	}
	s.before = r
	return s.launch(relay) //nolint:contextcheck // it outlives the strike
}

// terminateSender ends the walsender's session. Alone, there is a server to ask.
func (s *soak) terminateSender(ctx context.Context, alone bool) error {
	err := s.ask(ctx, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, `SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1 AND active`, soakSlot)
		return err
	})
	if !alone {
		return nil
	}
	return err
}

// restartPostgres stops the server and starts it again. Nothing of the relay may hold that
// up: not for long when the broker takes records, and never beyond its grace.
func (s *soak) restartPostgres(ctx context.Context, stop func(context.Context) error, alone bool) error {
	limit := 10 * time.Second
	if alone && !s.cfg.missing {
		limit = 5 * time.Second
	}
	began := time.Now()
	if err := stop(ctx); err != nil {
		return err
	}
	if took := time.Since(began); took > limit {
		s.broke(Impeded, "the server took %v to stop", took)
	}
	return s.srv.Restart(ctx)
}
