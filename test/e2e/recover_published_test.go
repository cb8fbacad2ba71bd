package e2e

import (
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outbox-cdc/outbox-cdc/internal/exit"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
)

const (
	unpublish = `ALTER PUBLICATION ` + rig.Publication + ` DROP TABLE outbox`
	republish = `ALTER PUBLICATION ` + rig.Publication + ` ADD TABLE outbox`
)

// newAlone returns a rig on a server of its own, because a new slot waits for every open transaction.
func newAlone(t *testing.T, opts ...kfake.Opt) (*rig.Rig, *kafkatest.FakeCluster) {
	t.Helper()
	fake := kafkatest.Fake(t, opts...)
	return rig.NewOn(t, rig.DatabaseOn(t, pgtest.Start(t, pgserver.Config{})), fake.Cluster), fake
}

// leaveOut writes rows before, in and after a time in which the publication leaves them out.
func leaveOut(t *testing.T, r *rig.Rig, off, on string) {
	t.Helper()
	r.Load.Run(t.Context(), t, 50)
	r.DB.Exec(t, off)
	r.Load.Run(t.Context(), t, 50)
	r.DB.Exec(t, on)
	r.Load.Run(t.Context(), t, 50)
}

// If the publication leaves out rows while the relay is stopped, its start fails. Recover sends these rows, in order with those that the
// slot still has, each once.
func TestRecoverWhatThePublicationLeftOut(t *testing.T) {
	need.FullRun(t, "internal/catalog tests that the gap is found, and TestRecoverDroppedSlot how it is closed")
	t.Parallel()
	for name, tc := range map[string]struct {
		off, on string
		says    string
		flags   []string
		since   int // major version
	}{
		"removed and added":   {unpublish, republish, "removed and added again", nil, 0},
		"altered":             {`ALTER PUBLICATION ` + rig.Publication + ` SET (publish = 'delete')`, `ALTER PUBLICATION ` + rig.Publication + ` SET (publish = 'insert')`, "altered and restored", nil, 0},
		"dropped":             {`DROP PUBLICATION ` + rig.Publication, `CREATE PUBLICATION ` + rig.Publication + ` FOR TABLE outbox WITH (publish = 'insert')`, "dropped and re-created", nil, 0},
		"a list of columns":   {`ALTER PUBLICATION ` + rig.Publication + ` SET TABLE outbox (id, aggregateid)`, `ALTER PUBLICATION ` + rig.Publication + ` SET TABLE outbox`, "removed and added again", nil, 15},
		"another filter":      {`ALTER PUBLICATION ` + rig.Publication + ` SET TABLE outbox WHERE (id IS NULL)`, `ALTER PUBLICATION ` + rig.Publication + ` SET TABLE outbox WHERE (id IS NOT NULL)`, "has another row filter or column list", nil, 15},
		"added with a filter": {unpublish, republish + ` WHERE (id IS NOT NULL)`, "has another row filter or column list", nil, 15},
		"another publication": {`SELECT`, `CREATE PUBLICATION other FOR TABLE outbox WITH (publish = 'insert')`, "another publication", []string{"--publication", "other"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name != "altered" {
				need.FullRun(t, "one gap runs always, and internal/catalog tests that each is found")
			}
			r, _ := newAlone(t)
			if r.DB.Server.Install().Major < tc.since {
				return
			}
			deliverAndStop(t, r, 100)
			leaveOut(t, r, tc.off, tc.on)
			rig.Start(t, append([]string{"run", "-c", r.Config}, tc.flags...)...).Fails(t, exit.NoDelivery, "outbox-cdc recover")
			runRecover(t, r, exit.OK, append([]string{"--dry-run"}, tc.flags...), tc.says, "would be sent to "+r.Topic)
			runRecover(t, r, exit.OK, tc.flags, tc.says, "Refilled: ")
			runRecover(t, r, exit.OK, tc.flags, "Nothing to recover")
			r.GoesOn(t, tc.flags...)
			settleRefill(t, r)
		})
	}
}

// A relay that runs stops if it finds the publication altered and restored, and its record is still from before that. Recover waits for a
// transaction that was in progress all the time, and sends what was left out, in order with the other rows, and each row once.
func TestRecoverWhatWasLeftOutMeanwhile(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "TestRecoverWhatThePublicationLeftOut has one gap always")
	r, _ := newAlone(t)
	process := r.Run(t)
	r.Deliver(t, 100)
	r.AwaitSnapshotOfAll(t)
	var recovers *rig.Process
	r.Load.Transaction(t.Context(), t, []string{"open"}, func(tx pgx.Tx, put func(n int) error) error {
		rig.Must(t, put(1))
		r.DB.Exec(t, `ALTER PUBLICATION `+rig.Publication+` SET (publish = 'delete')`)
		subtransaction, err := tx.Begin(t.Context())
		rig.Must(t, err)
		rig.Must(t, put(1))
		rig.Must(t, subtransaction.Commit(t.Context()))
		r.Load.Run(t.Context(), t, 50)
		r.DB.Exec(t, `ALTER PUBLICATION `+rig.Publication+` SET (publish = 'insert')`)
		process.Fails(t, exit.NoDelivery, "outbox-cdc recover")
		r.Refused(t, exit.NoDelivery, "altered and restored", "outbox-cdc recover")
		recovers = rig.Start(t, "recover", "-c", r.Config)
		awaitBlockedCreation(t, r)
		return put(1)
	})
	if code := recovers.Exit(t); code != exit.OK {
		t.Fatalf("recover: exit code %d\n%s", code, recovers.Stderr)
	}
	runRecover(t, r, exit.OK, nil, "Nothing to recover")
	r.GoesOn(t)
	settleRefill(t, r)
}

// Recover after a gap of the publication may end at any time: between the slots, or while it sends the rows. The same command goes on.
func TestRecoverWhatWasLeftOutInterrupted(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "TestRecoverWhatThePublicationLeftOut has one gap always")
	r, fake := newAlone(t, kfake.NumBrokers(1))
	deliverAndStop(t, r, 100)
	leaveOut(t, r, unpublish, republish)
	r.Load.Transaction(t.Context(), t, []string{"open"}, func(_ pgx.Tx, put func(n int) error) error {
		rig.Must(t, put(1))
		between := rig.Start(t, "recover", "-c", r.Config)
		awaitBlockedCreation(t, r)
		between.Kill(t)
		return put(1)
	})
	if r.Recorded(t).Refill != nil {
		t.Fatal("the refill has begun")
	}
	fault := fake.Control.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: r.Topic, Err: kerr.NotEnoughReplicas, Count: -1})
	second := rig.Start(t, "recover", "-c", r.Config)
	rig.Must(t, fault.Wait(t.Context(), 1))
	second.Kill(t)
	fault.Remove()
	if p := r.Recorded(t); p.Refill == nil || !strings.Contains(p.Publication, rig.Publication) {
		t.Fatalf("recorded is %+v", p)
	}
	leaveOut(t, r, unpublish, republish) // behind the new slot
	r.Refused(t, exit.NoDelivery, "removed and added again", "outbox-cdc recover")
	runRecover(t, r, exit.OK, nil, "Refilled: ")
	r.GoesOn(t)
	settleRefill(t, r)
}

// Recover refuses a partitioned table whose partitions are published each by itself. If the operator does what it says, which alters the
// publication once more, the same command finds the gap.
func TestRecoverWhatWasLeftOutOfPartitions(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "TestRecoverWhatThePublicationLeftOut has one gap always")
	r, _ := newAlone(t)
	r.DB.Exec(t, `ALTER TABLE outbox RENAME TO whole; ALTER TABLE whole ALTER position DROP IDENTITY; CREATE SEQUENCE positions;
		CREATE TABLE outbox (LIKE whole INCLUDING DEFAULTS) PARTITION BY HASH (id);
		ALTER TABLE outbox ALTER position SET DEFAULT nextval('positions');
		CREATE TABLE outbox_0 PARTITION OF outbox FOR VALUES WITH (MODULUS 2, REMAINDER 0); CREATE TABLE outbox_1 PARTITION OF outbox FOR VALUES WITH (MODULUS 2, REMAINDER 1)`)
	setUpWith(t, r, "FOR TABLE outbox WITH (publish = 'insert', publish_via_partition_root = false)")
	deliverAndStop(t, r, 100)
	leaveOut(t, r, `ALTER PUBLICATION `+rig.Publication+` SET (publish = 'delete')`, `ALTER PUBLICATION `+rig.Publication+` SET (publish = 'insert')`)
	r.Refused(t, exit.NoDelivery, "altered and restored", "outbox-cdc recover")
	runRecover(t, r, exit.Continuity, nil, "publish_via_partition_root = true", "nothing was changed")
	r.DB.Exec(t, `ALTER PUBLICATION `+rig.Publication+` SET (publish_via_partition_root = true)`)
	runRecover(t, r, exit.OK, nil, "it was altered", "Refilled: ")
	runRecover(t, r, exit.OK, nil, "Nothing to recover")
	r.GoesOn(t)
	settleRefill(t, r)
}

// Rows of a parked key that the publication left out wait with the others of the key, in order, until the key is released.
func TestRecoverWhatWasLeftOutOfAParkedKey(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "TestRecoverWhatThePublicationLeftOut has one gap always")
	srv := pgtest.Start(t, pgserver.Config{})
	r := newParkRigOn(t, rig.DatabaseOn(t, srv), kafkatest.Broker(t), "")
	put := func() {
		r.insert(t, "a", 2, 10)
		r.insert(t, "b", 2, 10)
	}
	process := r.Run(t)
	put()
	r.Confirmed(t)
	r.AwaitSnapshot(t)
	r.large(t, "a")
	put()
	r.Confirmed(t)
	process.Kill(t)
	r.DB.Exec(t, unpublish)
	put()
	r.DB.Exec(t, republish)
	put()
	r.Refused(t, exit.NoDelivery, "removed and added again", "outbox-cdc recover")
	runRecover(t, r.Rig, exit.OK, nil, "Refilled: ", "of them are dead letters, see outbox-cdc dead-letter list")
	r.demandNumbers(t, r.Topic, "a", countTo(2))
	r.demandNumbers(t, r.dead, "a", countFrom(3, 9))
	process = r.Run(t)
	r.allowLarge(t)
	r.demandOutput(t, 0, "the key is not parked any more", "release", "--key", "a")
	put()
	r.Confirmed(t)
	process.Terminate(t)
	for key, n := range r.rows {
		if got := r.numbers(t, r.Topic, key); !slices.Equal(got, countTo(n)) {
			t.Errorf("key %s: %v, want 1 to %d", key, got, n)
		}
	}
}

// A relay that has stopped because the publication leaves out rows does not start before somebody has sent them, however the publication was
// mended.
func TestStopIsNotForgotten(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "TestRecoverWhatThePublicationLeftOut has one gap always")
	const alter = `ALTER PUBLICATION ` + rig.Publication
	for name, tc := range map[string]struct {
		off, says, on string
		since         int // major version
	}{
		"no inserts":   {alter + ` SET (publish = 'update')`, "does not publish inserts", alter + ` SET (publish = 'insert, delete')`, 0},
		"a row filter": {alter + ` SET TABLE outbox WHERE (id IS NULL)`, "has another row filter", alter + ` SET TABLE outbox WHERE (id IS NOT NULL)`, 15},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, _ := newAlone(t)
			if r.DB.Server.Install().Major < tc.since {
				return
			}
			deliverAndStop(t, r, 50)
			process := r.Run(t)
			r.DB.Exec(t, tc.off)
			r.Load.Run(t.Context(), t, 10)
			process.Fails(t, exit.NoDelivery, tc.says)
			r.DB.Exec(t, tc.on)
			r.Refused(t, exit.NoDelivery, "outbox-cdc recover")
			runRecover(t, r, exit.OK, nil, "Refilled: ")
			r.GoesOn(t)
			settleRefill(t, r)
		})
	}
}

// A start cannot tell whether a publication that was altered has published inserts all the time, and says so. check says it before, while
// recover can still send the rows. The start after that has nothing to say.
func TestAlteredPublication(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "internal/catalog tests what is found always")
	r, _ := newAlone(t)
	deliverAndStop(t, r, 50)
	r.DB.Exec(t, `ALTER PUBLICATION `+rig.Publication+` SET (publish = 'insert, delete')`)
	r.Load.Run(t.Context(), t, 10)
	if out, code := rig.Command(t, "check", "-c", r.Config); code != exit.OK || !strings.Contains(out, "may not have published inserts for a while") {
		t.Errorf("check: exit code %d\n%s", code, out)
	}
	const warning = "the publication was altered, and may have left out rows before this start"
	process := r.Run(t)
	process.Logged(t, warning)
	r.Arrived(t)
	process.Terminate(t)
	process = r.Run(t)
	r.Deliver(t, 10)
	process.Terminate(t)
	if n := process.Times(warning); n != 0 {
		t.Errorf("the second start warned %d times", n)
	}
	r.Settle(t, 0)
}
