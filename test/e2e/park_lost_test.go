package e2e

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// newParkedRig returns a parkRig whose relay has parked the key a, and the relay.
func newParkedRig(t *testing.T) (*parkRig, *kafkatest.FakeCluster, *kadm.Client, *rig.Process) {
	t.Helper()
	fake := kafkatest.Fake(t) // other relays of a shared broker have the same position topic
	r := newParkRig(t, fake.Cluster, "")
	process := r.Run(t)
	r.insert(t, "a", 3, 10)
	r.large(t, "a")
	r.insert(t, "a", 3, 10)
	r.Confirmed(t)
	r.demandNumbers(t, r.dead, "a", countFrom(4, 7))
	return r, fake, fake.Admin(t), process
}

func deletePositions(t *testing.T, admin *kadm.Client) {
	t.Helper()
	_, err := admin.DeleteTopic(t.Context(), position.DefaultTopic)
	rig.Must(t, err)
}

// Nobody but a relay releases a parked key, so status tells of it when none runs, and setup when it drops the slot.
func TestParkedKeysWithoutARelay(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "a page has the same warning")
	r, _, _, process := newParkedRig(t)
	process.Terminate(t)
	if s := runStatus(t, r.Rig, "--set", "admin.listen="); s.Title != "No relay reads the slot" || !strings.Contains(s.Why, "Parked keys: 1, see outbox-cdc dead-letter list ") {
		t.Errorf("status: %+v", s)
	}
	out, code := rig.Command(t, "setup", "-c", r.Config, "--drop")
	if code != 0 || !strings.Contains(out, "warning: parked keys: 1. Only a relay with this name can release them: outbox-cdc dead-letter list -c "+r.Config) {
		t.Errorf("setup --drop: exit code %d\n%s", code, out)
	}
}

// A relay that finds parked records but nothing of its own in the position topic stops before it sends a later record.
// The operator sends the parked ones, and then has the relay continue.
func TestParkedKeysAreLostWithThePositionTopic(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it starts a relay five times")
	r, _, admin, process := newParkedRig(t)
	process.Terminate(t)
	deletePositions(t, admin)
	r.insert(t, "a", 2, 10)
	if s := runStatus(t, r.Rig, "--set", "admin.listen="); s.Title != "The next start fails with exit code 15" || !strings.Contains(s.Why, "of 1 parked keys") {
		t.Errorf("status: %+v", s)
	}
	if list := r.demandOutput(t, 0, "whether it was released is not known", "list"); strings.Count(list, "is not known") != 4 {
		t.Errorf("4 dead letters were parked:\n%s", list)
	}
	r.demandOutput(t, 0, "0 resent, 0 rejected, 4 are of keys that were parked under a position store that is lost", "resend", "--all")
	if topics, err := admin.ListTopics(t.Context(), position.DefaultTopic); err != nil || topics.Has(position.DefaultTopic) {
		t.Errorf("list and resend have created the position topic: %v", err)
	}
	for range 2 { // the first start changes nothing
		rig.Start(t, "run", "-c", r.Config).Fails(t, 15, "of 1 parked keys", "a slot of the same name in another database",
			"dead-letter resend -c "+r.Config+" --all --again --since 48h", "--accept-gap")
	}
	if out := r.demandOutput(t, 14, "MESSAGE_TOO_LARGE", "resend", "--all", "--again"); strings.Count(out, "an earlier record of its key was rejected") != 3 {
		t.Errorf("3 records follow the one that the broker rejects:\n%s", out)
	}
	r.demandNumbers(t, r.Topic, "a", countTo(3))
	r.allowLarge(t)
	r.demandOutput(t, 0, "", "resend", "--all", "--again", "--since", "48h")
	process = r.Run(t, "--accept-gap")
	r.insert(t, "a", 1, 10)
	r.Confirmed(t)
	r.demandNumbers(t, r.Topic, "a", countTo(10))
	process.Terminate(t)
	process = r.Run(t)
	r.poison(t, "c")
	r.insert(t, "c", 2, 10)
	r.Confirmed(t)
	process.Terminate(t)
	deletePositions(t, admin)
	if out := r.demandOutput(t, 14, "has a member with the name", "resend", "--all", "--again"); strings.Count(out, "an earlier record of its key was rejected") != 2 {
		t.Errorf("2 records follow the one that is rejected:\n%s", out)
	}
	r.demandNumbers(t, r.Topic, "c", nil)
	process = r.Run(t, "--accept-gap")
	r.poison(t, "d")
	r.Confirmed(t)
	process.Terminate(t)
	if list := r.demandOutput(t, 0, "key d (1 bytes)", "list"); strings.Count(list, "is not known") != 3 || strings.Count(list, "its key is parked") != 1 {
		t.Errorf("the keys that were lost are not forgotten when a new one is parked:\n%s", list)
	}
}

// A relay that runs while the position topic is deleted stores its parked keys again, so that the next one has them.
func TestParkedKeysAreRestored(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it restores a deleted topic")
	r, fake, admin, process := newParkedRig(t)
	deletePositions(t, admin)
	fake.CreateTopic(t, position.DefaultTopic, 1, map[string]string{"cleanup.policy": "compact"})
	r.insert(t, "b", 1, 10)
	r.Confirmed(t)
	wait.For(t, "the parked keys", func() bool {
		out, _ := rig.Command(t, "dead-letter", "list", "-c", r.Config)
		return strings.Contains(out, "key a (1 bytes) of topic")
	})
	process.Kill(t)
	process = r.Run(t)
	r.insert(t, "a", 1, 10)
	r.Confirmed(t)
	r.demandNumbers(t, r.Topic, "a", countTo(3))
	r.allowLarge(t)
	r.demandOutput(t, 0, "the key is not parked any more", "release", "--key", "a")
	r.demandNumbers(t, r.Topic, "a", countTo(8))
	process.Terminate(t)
}
