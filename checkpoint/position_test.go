package checkpoint

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pglogrepl"
)

func recorded() Position {
	return Position{
		SystemID: "7710599691266436019", Timeline: 2, TimelineStart: 0x5000, Slot: "outbox_cdc", EndLSN: 0x1_0000_0100, Generation: 3,
		Last: Landmark{0x1_0000_00C0, 1_772_366_399_000_001}, Reading: "orders",
		AdvancedAt: time.Date(2026, 3, 1, 11, 58, 0, 0, time.UTC),
		Snapshots:  []Snapshot{{0x1_0000_0080, "750:752:750", time.Date(2026, 3, 1, 11, 59, 59, 0, time.UTC), Witness{751, 31}}, {EndLSN: 0x80, Text: "740:740:"}},
		WrittenAt:  time.Date(2026, 3, 1, 12, 0, 0, 5000, time.UTC),
		Owner:      5,
	}
}

func TestPositionRoundTripsAsJSON(t *testing.T) {
	data, err := json.Marshal(recorded())
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"version":1,"system_id":"7710599691266436019","timeline":2,"timeline_start":"0/5000","slot":"outbox_cdc","end_lsn":"1/100","last":{"commit_lsn":"1/C0","commit_micros":1772366399000001,"reading":"orders"},"generation":3,"owner":5,` +
		`"snapshots":[{"end_lsn":"1/80","snapshot":"750:752:750","commit_time":"2026-03-01T11:59:59Z","witness":{"xid":"751","hash":31}},{"end_lsn":"0/80","snapshot":"740:740:"}],` +
		`"advanced_at":"2026-03-01T11:58:00Z","written_at":"2026-03-01T12:00:00.000005Z"}`
	if string(data) != want {
		t.Errorf("got  %s\nwant %s", data, want)
	}
	var back Position
	if err := json.Unmarshal(data, &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(recorded(), back); diff != "" {
		t.Errorf("read back (-written +read):\n%s", diff)
	}
	parked := recorded()
	parked.KeysParked, parked.Publication = true, `{"oid":7}`
	if data, err = json.Marshal(parked); err != nil || !strings.Contains(string(data), `"keys_parked":true,"publication":{"oid":7}`) {
		t.Errorf("%s, %v", data, err)
	}
	if err := json.Unmarshal(data, &back); err != nil || !back.KeysParked || back.Publication != parked.Publication {
		t.Errorf("%+v, %v", back, err)
	}
	stopped := recorded()
	stopped.Stopped = &Stop{At: stopped.WrittenAt, ExitCode: 14, Reason: "a row", Advice: "mend it"}
	if data, err = json.Marshal(stopped); err != nil || !strings.Contains(string(data), `"stopped":{"at":"2026-03-01T12:00:00.000005Z","exit_code":14,"reason":"a row","advice":"mend it"}`) {
		t.Errorf("%s, %v", data, err)
	}
	if err := json.Unmarshal(data, &back); err != nil || cmp.Diff(stopped, back) != "" {
		t.Errorf("%+v, %v", back, err)
	}
	if p := stopped.BeginRefill(Server{}, 1, "", false); p.Stopped != nil || p.Refill.Lost.Stopped != nil {
		t.Errorf("a refill begins after the stop, and has %+v", p)
	}
	if p := parked.BeginRefill(Server{}, 1, "", false); p.Publication != "" || p.Refill.Lost.Publication != "" {
		t.Errorf("a refill sends what the publication has left out, and has %+v", p)
	}
}

func TestPositionRejectsOtherJSON(t *testing.T) {
	for _, tc := range []struct{ data, want string }{
		{`{}`, "version 0"},
		{`{"version":2}`, "version 2"},
		{`{"version":2,"slot":7}`, "later version"},
		{`{"version":-1,"system_id":"1","slot":"s","end_lsn":"0/1"}`, "version -1"},
		{`{"version":1,"slot":"s","end_lsn":"0/1"}`, `system_id ""`},
		{`{"version":1,"system_id":"primary","slot":"s","end_lsn":"0/1"}`, `system_id "primary"`},
		{`{"version":1,"system_id":"18446744073709551616","slot":"s","end_lsn":"0/1"}`, "system_id"},
		{`{"version":1,"system_id":"1","end_lsn":"0/1"}`, "without a slot"},
		{`{"version":1,"system_id":"1","slot":"s","end_lsn":"0/1","timeline":-1}`, "timeline -1"},
		{`{"version":1,"system_id":"1","slot":"s","end_lsn":"0/1","owner":9223372036854775807}`, "owner 9223372036854775807"},
		{`{"version":1,"system_id":"1","slot":"s","end_lsn":"0/1","generation":-1}`, "generation -1"},
		{`{"version":1,"system_id":"1","slot":"s","end_lsn":"1"}`, "end_lsn of a position record"},
		{`{"version":1,"system_id":"1","slot":"s"}`, "end_lsn of a position record"},
		{`{"version":1,"system_id":"1","slot":"s","end_lsn":"0/1","snapshots":[{"snapshot":"1:1:"}]}`, "end_lsn of a snapshot"},
		{`{"version":1,"system_id":"1","slot":"s","end_lsn":"0/1","timeline_start":"1"}`, "timeline_start of a position record"},
		{`[]`, "cannot unmarshal"},
		{`{`, "unexpected end"},
	} {
		p := recorded()
		if err := json.Unmarshal([]byte(tc.data), &p); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want one with %q", tc.data, err, tc.want)
		}
		if diff := cmp.Diff(recorded(), p); diff != "" {
			t.Errorf("%s changes the position:\n%s", tc.data, diff)
		}
	}
}

func TestWithSnapshotKeepsAFewSpacedSnapshots(t *testing.T) {
	var p Position
	var ends []pglogrepl.LSN
	add := func(end pglogrepl.LSN) {
		p = p.WithSnapshot(Snapshot{EndLSN: end, Text: end.String()})
		ends = ends[:0]
		for _, s := range p.Snapshots {
			ends = append(ends, s.EndLSN)
		}
	}
	const mib = 1 << 20
	for _, tc := range []struct {
		add  pglogrepl.LSN
		want []pglogrepl.LSN
	}{
		{1 * mib, []pglogrepl.LSN{1 * mib}},
		{2 * mib, []pglogrepl.LSN{2 * mib, 1 * mib}},
		{3 * mib, []pglogrepl.LSN{3 * mib, 1 * mib}},
		{17 * mib, []pglogrepl.LSN{17 * mib, 1 * mib}},
		{18 * mib, []pglogrepl.LSN{18 * mib, 17 * mib, 1 * mib}},
		{40 * mib, []pglogrepl.LSN{40 * mib, 17 * mib, 1 * mib}},
		{60 * mib, []pglogrepl.LSN{60 * mib, 40 * mib, 17 * mib, 1 * mib}},
		{80 * mib, []pglogrepl.LSN{80 * mib, 60 * mib, 40 * mib, 17 * mib, 1 * mib}},
		{100 * mib, []pglogrepl.LSN{100 * mib, 80 * mib, 60 * mib, 40 * mib, 17 * mib, 1 * mib}},
		{120 * mib, []pglogrepl.LSN{120 * mib, 100 * mib, 80 * mib, 60 * mib, 40 * mib, 17 * mib}},
	} {
		add(tc.add)
		if diff := cmp.Diff(tc.want, ends); diff != "" {
			t.Fatalf("after %s (-want +got):\n%s", tc.add, diff)
		}
	}
}
