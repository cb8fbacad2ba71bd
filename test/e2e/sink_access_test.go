package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

const (
	kafkaUser     = "relay"
	kafkaPassword = "relay-secret"
)

// guarded returns a rig whose broker asks who somebody is and what he may do. The tests' own
// clients may do anything; the relay, by args, is a user with no more rights than it needs.
func guarded(t *testing.T) (r *rig.Rig, positions string, args []string) {
	t.Helper()
	broker := kafkatest.Start(t, kafkatest.Config{
		Users: map[string]string{kafkaUser: kafkaPassword},
		Properties: map[string]string{
			"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
			"super.users":           "User:ANONYMOUS",
		},
	})
	r = rig.NewOn(t, rig.Database(t), broker.Cluster)
	positions = broker.Topic(t, 1, map[string]string{"cleanup.policy": "compact"})
	grant(t, r, r.Topic, kadm.OpWrite, kadm.OpDescribe, kadm.OpDescribeConfigs)
	grant(t, r, positions, kadm.OpRead, kadm.OpWrite, kadm.OpDescribe, kadm.OpDescribeConfigs)
	secret := filepath.Join(t.TempDir(), "password")
	rig.Must(t, os.WriteFile(secret, []byte(kafkaPassword), 0o600))
	return r, positions, []string{
		"run", "-c", r.Config, "--brokers", broker.SASLAddr(), "--set", "position_topic=" + positions,
		"--set", "sink.kafka.sasl.mechanism=SCRAM-SHA-256", "--set", "sink.kafka.sasl.user=" + kafkaUser,
		"--set", "sink.kafka.sasl.password_file=" + secret,
	}
}

func rights(topic string, ops ...kadm.ACLOperation) *kadm.ACLBuilder {
	return kadm.NewACLs().Topics(topic).ResourcePatternType(kadm.ACLPatternLiteral).Operations(ops...).Allow("User:" + kafkaUser).AllowHosts("*")
}

func grant(t *testing.T, r *rig.Rig, topic string, ops ...kadm.ACLOperation) {
	t.Helper()
	made, err := r.Kafka.Admin(t).CreateACLs(t.Context(), rights(topic, ops...))
	rig.Must(t, err)
	for _, acl := range made {
		rig.Must(t, acl.Err)
	}
}

func revoke(t *testing.T, r *rig.Rig, topic string, ops ...kadm.ACLOperation) {
	t.Helper()
	gone, err := r.Kafka.Admin(t).DeleteACLs(t.Context(), rights(topic, ops...))
	rig.Must(t, err)
	deleted := 0
	for _, filter := range gone {
		rig.Must(t, filter.Err)
		deleted += len(filter.Deleted)
	}
	if deleted != len(ops) {
		t.Fatalf("%d rights were revoked, want %d", deleted, len(ops))
	}
}

// slotState is what the server knows of the rig's slot.
func slotState(t *testing.T, r *rig.Rig, conn *pgx.Conn) (pid int, confirmed string) {
	t.Helper()
	rig.Must(t, conn.QueryRow(t.Context(), `SELECT active_pid, confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = $1`, r.Slot).Scan(&pid, &confirmed))
	return pid, confirmed
}

// A relay with the least rights loses those to write under load, first to its topic, then to
// the position topic. It says so, goes on with what it may still do, keeps its slot, and goes
// on by itself when the right is back.
func TestRightsRevoked(t *testing.T) {
	t.Parallel()
	r, positions, args := guarded(t)
	process := rig.Start(t, args...)
	process.Logged(t, "streaming")
	conn := r.Connect(t)
	rig.UnderLoad(t, r, func() {
		r.Progress(t)
		pid, _ := slotState(t, r, conn)

		revoke(t, r, r.Topic, kadm.OpWrite)
		process.Logged(t, "topic rejects records")
		process.Logged(t, "TOPIC_AUTHORIZATION_FAILED")
		r.Silent(t)
		grant(t, r, r.Topic, kadm.OpWrite)
		r.Recover(t)

		revoke(t, r, positions, kadm.OpWrite)
		process.Logged(t, "topic="+positions)
		notConfirmed(t, r, conn)
		grant(t, r, positions, kadm.OpWrite)
		if now, _ := slotState(t, r, conn); now != pid {
			t.Error("the slot was given up meanwhile")
		}
	})
	r.Confirmed(t)
	process.Flat(t)
	process.Terminate(t)
	r.Settle(t, 0)
	// What was already on the wire may still be taken after the first refusal, and the second
	// is told then too.
	if n := process.Times("topic rejects records"); n < 2 || n > 4 {
		t.Errorf("%d lines on topics, want one of each", n)
	}
}

// notConfirmed demands that events go on arriving, while nothing of them is confirmed: the
// position cannot be recorded, and the server is told nothing else.
func notConfirmed(t *testing.T, r *rig.Rig, conn *pgx.Conn) {
	t.Helper()
	reports := func(n int) (confirmed string) { // what the slot has after n more status updates
		t.Helper()
		const last = `SELECT r.reply_time::text FROM pg_stat_replication r JOIN pg_replication_slots s ON s.active_pid = r.pid WHERE s.slot_name = $1`
		for seen := rig.Ask[string](t, conn, last, r.Slot); n > 0; n-- {
			wait.For(t, "a status update of the relay", func() bool {
				before := seen
				seen = rig.Ask[string](t, conn, last, r.Slot)
				return seen != before
			})
		}
		_, confirmed = slotState(t, r, conn)
		return confirmed
	}
	before := reports(2) // the first of them may confirm what was recorded last
	r.Progress(t)
	if now := reports(3); now != before {
		t.Errorf("the slot has moved from %s to %s without a record", before, now)
	}
}

// The connection to Postgres ends while Kafka refuses to show the position: what was no reason
// to give up within a session is none between two. The next one begins when the right is back.
func TestRightToReadThePositionRevoked(t *testing.T) {
	t.Parallel()
	r, positions, args := guarded(t)
	process := rig.Start(t, args...)
	process.Logged(t, "streaming")
	conn := r.Connect(t)
	rig.UnderLoad(t, r, func() {
		r.Progress(t)
		revoke(t, r, positions, kadm.OpRead)
		if !rig.Ask[bool](t, conn, `SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1`, r.Slot) {
			t.Fatal("the relay had no connection to end")
		}
		process.Logged(t, "waiting for the broker")
		process.Logged(t, "TOPIC_AUTHORIZATION_FAILED")
		grant(t, r, positions, kadm.OpRead)
		r.Recover(t)
	})
	r.Confirmed(t)
	process.Terminate(t)
	r.Settle(t, 0)
}

// The position topic is deleted under the relay. Records go on and the slot stands still
// until the topic is there again. A relay that is killed before that creates it again, reads
// again what was not recorded, and loses and repeats nothing.
func TestPositionTopicDeleted(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it waits until the relay sees that a topic is missing")
	r := rig.New(t)
	compacted := map[string]string{"cleanup.policy": "compact"}
	positions := r.Kafka.Topic(t, 1, compacted)
	args := []string{"run", "-c", r.Config, "--set", "position_topic=" + positions}
	process := rig.Start(t, args...)
	process.Logged(t, "streaming")
	conn := r.Connect(t)
	deleted := func() {
		r.Progress(t)
		const missing = "UNKNOWN_TOPIC_OR_PARTITION" // the next write says so, or the look for claims after the last one
		complaints := process.Times(missing)
		_, err := r.Kafka.Admin(t).DeleteTopic(t.Context(), positions)
		rig.Must(t, err)
		process.LoggedTimes(t, missing, complaints+1)
		notConfirmed(t, r, conn)
	}
	rig.UnderLoad(t, r, func() {
		deleted()
		r.Kafka.CreateTopic(t, positions, 1, compacted)
		rig.AwaitConfirmed(t, conn, r.Slot)

		deleted()
		process.Kill(t)
		process = rig.Start(t, args...)
		process.Logged(t, "streaming")
		r.Progress(t)
		rig.AwaitConfirmed(t, conn, r.Slot)
	})
	r.Arrived(t)
	process.Terminate(t)
	r.Settle(t, 0)
}
