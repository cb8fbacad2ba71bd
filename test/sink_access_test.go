package test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

const (
	kafkaUser     = "relay"
	kafkaPassword = "relay-secret"
)

// guarded returns a rig whose broker asks who somebody is and what he may do. The tests' own
// clients may do anything; the relay, by args, is a user with no more rights than it needs.
func guarded(t *testing.T) (r *rig, positions string, args []string) {
	t.Helper()
	broker := kafkatest.Start(t, kafkatest.Config{
		Users: map[string]string{kafkaUser: kafkaPassword},
		Properties: map[string]string{
			"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
			"super.users":           "User:ANONYMOUS",
		},
	})
	r = newRig(t, pgtest.Database(t), broker.Cluster)
	positions = broker.Topic(t, 1, map[string]string{"cleanup.policy": "compact"})
	r.grant(t, r.topic, kadm.OpWrite, kadm.OpDescribe, kadm.OpDescribeConfigs)
	r.grant(t, positions, kadm.OpRead, kadm.OpWrite, kadm.OpDescribe, kadm.OpDescribeConfigs)
	secret := filepath.Join(t.TempDir(), "password")
	must(t, os.WriteFile(secret, []byte(kafkaPassword), 0o600))
	return r, positions, []string{
		"run", "-c", r.config, "--brokers", broker.SASLAddr(), "--set", "position_topic=" + positions,
		"--set", "sink.kafka.sasl.mechanism=SCRAM-SHA-256", "--set", "sink.kafka.sasl.user=" + kafkaUser,
		"--set", "sink.kafka.sasl.password_file=" + secret,
	}
}

func rights(topic string, ops ...kadm.ACLOperation) *kadm.ACLBuilder {
	return kadm.NewACLs().Topics(topic).ResourcePatternType(kadm.ACLPatternLiteral).Operations(ops...).Allow("User:" + kafkaUser).AllowHosts("*")
}

func (r *rig) grant(t *testing.T, topic string, ops ...kadm.ACLOperation) {
	t.Helper()
	made, err := r.kafka.Admin(t).CreateACLs(t.Context(), rights(topic, ops...))
	must(t, err)
	for _, acl := range made {
		must(t, acl.Err)
	}
}

func (r *rig) revoke(t *testing.T, topic string, ops ...kadm.ACLOperation) {
	t.Helper()
	gone, err := r.kafka.Admin(t).DeleteACLs(t.Context(), rights(topic, ops...))
	must(t, err)
	deleted := 0
	for _, filter := range gone {
		must(t, filter.Err)
		deleted += len(filter.Deleted)
	}
	if deleted != len(ops) {
		t.Fatalf("%d rights were revoked, want %d", deleted, len(ops))
	}
}

// slotState is what the server knows of the rig's slot.
func (r *rig) slotState(t *testing.T, conn *pgx.Conn) (pid int, confirmed string) {
	t.Helper()
	must(t, conn.QueryRow(t.Context(), `SELECT active_pid, confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = $1`, r.slot).Scan(&pid, &confirmed))
	return pid, confirmed
}

// A relay with the least rights loses those to write under load, first to its topic, then to
// the position topic. It says so, goes on with what it may still do, keeps its slot, and goes
// on by itself when the right is back.
func TestRightsRevoked(t *testing.T) {
	t.Parallel()
	r, positions, args := guarded(t)
	process := start(t, args...)
	process.logged(t, "streaming")
	conn := r.connect(t)
	underLoad(t, r, func() {
		r.progress(t)
		pid, _ := r.slotState(t, conn)

		r.revoke(t, r.topic, kadm.OpWrite)
		process.logged(t, "topic does not take records")
		process.logged(t, "TOPIC_AUTHORIZATION_FAILED")
		r.silent(t)
		r.grant(t, r.topic, kadm.OpWrite)
		r.recover(t)

		r.revoke(t, positions, kadm.OpWrite)
		process.logged(t, "topic="+positions)
		r.notConfirmed(t, conn)
		r.grant(t, positions, kadm.OpWrite)
		if now, _ := r.slotState(t, conn); now != pid {
			t.Error("the slot was given up meanwhile")
		}
	})
	r.confirmed(t, 30*time.Second)
	process.flat(t)
	process.terminate(t)
	r.settle(t, 0)
	// What was already on the wire may still be taken after the first refusal, and the second
	// is told then too.
	if n := process.times("topic does not take records"); n < 2 || n > 4 {
		t.Errorf("%d lines on topics, want one of each", n)
	}
}

// notConfirmed demands that events go on arriving, while nothing of them is confirmed: the
// position cannot be recorded, and the server is told nothing else.
func (r *rig) notConfirmed(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	var before string
	waitFor(t, 30*time.Second, "the slot to reach the last record", func() bool {
		_, before = r.slotState(t, conn)
		time.Sleep(1500 * time.Millisecond) // more than a status interval
		_, now := r.slotState(t, conn)
		return now == before
	})
	for end := time.Now().Add(2500 * time.Millisecond); time.Now().Before(end); {
		r.progress(t)
	}
	if _, now := r.slotState(t, conn); now != before {
		t.Errorf("the slot has moved from %s to %s without a record", before, now)
	}
}

// The connection to Postgres ends while Kafka refuses to show the position: what was no reason
// to give up within a session is none between two. The next one begins when the right is back.
func TestRightToReadThePositionRevoked(t *testing.T) {
	t.Parallel()
	r, positions, args := guarded(t)
	process := start(t, args...)
	process.logged(t, "streaming")
	conn := r.connect(t)
	underLoad(t, r, func() {
		r.progress(t)
		r.revoke(t, positions, kadm.OpRead)
		if !ask[bool](t, conn, `SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1`, r.slot) {
			t.Fatal("the relay had no connection to end")
		}
		process.logged(t, "waiting for Kafka")
		process.logged(t, "TOPIC_AUTHORIZATION_FAILED")
		r.grant(t, positions, kadm.OpRead)
		r.recover(t)
	})
	r.confirmed(t, 30*time.Second)
	process.terminate(t)
	r.settle(t, 0)
}

// The position topic is deleted under the relay. Records go on and the slot stands still
// until the topic is there again. A relay that is killed before that makes it anew, repeats
// what was not recorded and loses nothing.
func TestPositionTopicDeleted(t *testing.T) {
	t.Parallel()
	r, _ := fakeRig(t)
	compacted := map[string]string{"cleanup.policy": "compact"}
	positions := r.kafka.Topic(t, 1, compacted)
	args := []string{"run", "-c", r.config, "--set", "position_topic=" + positions}
	process := start(t, args...)
	process.logged(t, "streaming")
	conn := r.connect(t)
	deleted := func() (unrecorded int) {
		r.progress(t)
		complaints := process.times("topic does not take records")
		_, err := r.kafka.Admin(t).DeleteTopic(t.Context(), positions)
		must(t, err)
		began := r.load.total()
		process.loggedTimes(t, "topic does not take records", complaints+1)
		r.notConfirmed(t, conn)
		return r.load.total() - began
	}
	var repeated int
	underLoad(t, r, func() {
		deleted()
		r.kafka.CreateTopic(t, positions, 1, compacted)
		awaitConfirmed(t, conn, r.slot, 30*time.Second)

		repeated = deleted() + unconfirmed
		process.kill(t)
		process = start(t, args...)
		process.logged(t, "streaming")
		r.progress(t)
		awaitConfirmed(t, conn, r.slot, 30*time.Second)
	})
	r.arrived(t, 30*time.Second)
	process.terminate(t)
	r.settle(t, repeated)
}
