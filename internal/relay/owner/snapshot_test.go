package owner

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/test/kit/positiontest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/streamtest"
)

// The limit of the stream for the relay's own messages suffices for the largest snapshot: prefix, nonce, a bar, a
// snapshot.
const _ = uint(replication.MaxOwnMessage - 15 - len(catalog.MessagePrefix) - 26 - 1 - checkpoint.MaxSnapshot)

// ownMessage returns a transactional message with the relay's own prefix.
func ownMessage(content string) *replication.WALData {
	b := append([]byte("M\x01\x00\x00\x00\x00\x00\x00\x00\x50"), catalog.MessagePrefix+"\x00"...)
	return streamtest.WALData(append(binary.BigEndian.AppendUint32(b, uint32(len(content))), content...))
}

// A row that the operator skips counts as delivered, also after a loss of the slot.
func TestSnapshotOfSkippedRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		src := &streamtest.Source{Err: streamtest.ErrLost}
		cfg := settings{place: position.Place{Topic: position.DefaultTopic}, skipTo: 110}
		s, _ := newTestSessionWith(t, cfg, src, newScriptedProducer(), 0)
		src.Script = streamtest.Join(
			streamtest.Script{streamtest.Begin(100), streamtest.Insert("a", 1), streamtest.Commit(100, 110)},
			streamtest.Script{streamtest.Begin(120), ownMessage(s.owner.cfg.Pump.Nonce + "|740:745:741"), streamtest.Commit(120, 130)},
		)
		if err := s.run(t.Context()); !errors.Is(err, streamtest.ErrLost) {
			t.Fatalf("session ended with %v", err)
		}
		positiontest.Deliver(s.tracker, 200)
		positiontest.Write(t, s.owner.positions)
		if w := s.owner.positions.Record.Stored().Witness(); w.XID != 731 {
			t.Errorf("the last row is %+v", w)
		}
	})
}

// Only a snapshot that this process has written becomes part of the position record. Any role can write messages
// with the relay's prefix, and may know the relay's name and the format of a snapshot, but not the nonce. A message
// with the nonce must still contain a valid snapshot.
func TestPumpKeepsOnlyItsOwnSnapshots(t *testing.T) {
	const snapshot = "740:745:741"
	for name, tc := range map[string]struct {
		content func(nonce string) string
		kept    bool
	}{
		"its own":                    {func(nonce string) string { return nonce + "|" + snapshot }, true},
		"of an earlier version":      {func(string) string { return "orders|" + snapshot }, false},
		"without a nonce":            {func(string) string { return "|" + snapshot }, false},
		"of another process":         {func(nonce string) string { return strings.ToLower(nonce) + "|" + snapshot }, false},
		"1.2 MB":                     {func(string) string { return "orders|" + strings.Repeat("7", 1_200_000) }, false},
		"1.2 MB that knows the rest": {func(nonce string) string { return nonce + "|1:9:" + strings.Repeat("7", 1_200_000) }, false},
		"SQL":                        {func(string) string { return "orders|1:1:') OR true --" }, false},
		"SQL that knows the rest":    {func(nonce string) string { return nonce + "|1:1:') OR true --" }, false},
		"a mark of prune":            {func(string) string { return "" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				src := &streamtest.Source{Err: streamtest.ErrLost}
				s, _ := newTestSessionWith(t, settings{place: position.Place{Topic: position.DefaultTopic}}, src, newScriptedProducer(), 0)
				src.Script = streamtest.Join(streamtest.Script{streamtest.Begin(100), streamtest.Insert("a", 1), ownMessage(tc.content(s.owner.cfg.Pump.Nonce)), streamtest.Commit(100, 110)})
				if err := s.run(t.Context()); !errors.Is(err, streamtest.ErrLost) {
					t.Fatalf("session ended with %v", err)
				}
				var want []checkpoint.Snapshot
				if tc.kept {
					hash := crc32.Checksum([]byte(strings.Join([]string{"id-1", "a", "1", ""}, "\x00")), crc32.MakeTable(crc32.Castagnoli))
					want = []checkpoint.Snapshot{{
						EndLSN: 110, Text: "732:732:", CommitTime: time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC), Witness: checkpoint.Witness{XID: 731, Hash: hash},
					}}
				}
				// The position of the transaction may be stored before its snapshot is; the next record then has it.
				confirmed := s.tracker.Confirmed()
				positiontest.Deliver(s.tracker, 200)
				positiontest.Write(t, s.owner.positions)
				if diff := cmp.Diff(want, s.owner.positions.Record.Stored().Snapshots); diff != "" {
					t.Errorf("snapshots of the record (-want +got):\n%s", diff)
				}
				if confirmed != 110 {
					t.Errorf("confirmed %s", confirmed)
				}
			})
		})
	}
}
