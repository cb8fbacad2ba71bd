package status

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/admin"
	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/exit"
	"github.com/outbox-cdc/outbox-cdc/internal/relay"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// running is the response of a healthy relay.
const running = `{
	"name": "orders", "version": "1.4.0", "at": "2026-03-01T12:00:00Z", "uptime": 93600,
	"state": "streaming", "since": "2026-02-28T10:00:00Z", "ready": true,
	"source": {"address": "db:5432/app", "publication": "p", "received": "0/3000", "confirmed": "0/2FD0", "server_end": "0/3000"},
	"slot": {"name": "s", "read_at": "2026-03-01T11:59:52Z", "wal_status": "reserved", "retained_bytes": 34000000, "safe_bytes": 10700000000, "time_to_full": null, "endangered": false},
	"lag": {"bytes": 48, "seconds": 0.2}, "in_flight": {"records": 12, "bytes": 4120, "full": 0.25},
	"rates": {"records": 1204.4, "bytes": 250000, "rows": 1204.4, "log": 1100000},
	"latency": {"commit_to_ack_p50": 0.0011, "commit_to_ack_p99": 0.0042, "ack_p50": 0.0009, "ack_p99": 0.003},
	"totals": {"records": 41080000}, "sink": {"broker": "Kafka", "brokers": ["kafka-1:9092", "kafka-2:9092"], "stalled": 0, "last_error_at": null},
	"topics": [{"name": "outbox.event.order", "records": 31900000, "bytes": 6380000000, "rate": 1200}, {"name": "outbox.event.customer", "records": 9180000, "bytes": 1100000000, "rate": 4.4}],
	"failures": []
}`

// sides returns a report with a healthy relay and a healthy slot. alter may change both.
func sides(t *testing.T, alter func(p *Postgres, st *admin.Status)) *Report {
	t.Helper()
	st := new(admin.Status)
	if err := json.Unmarshal([]byte(running), st); err != nil {
		t.Fatal(err)
	}
	r := &Report{
		At: st.At,
		Postgres: Postgres{Address: "db:5432/app", Version: 180001, LogEnd: "0/3000", Slot: &Slot{
			Name: "s", Active: true, ActivePID: 4711, Confirmed: "0/2FD0", Restart: "0/1000", WALStatus: "reserved",
			NotConfirmed: 48, Retained: 34_000_000, Safe: new(int64(10_700_000_000)),
		}},
		Relay: Relay{URL: "http://127.0.0.1:9187/", status: st},
	}
	if alter != nil {
		alter(&r.Postgres, st)
	}
	r.judge(&Config{Slot: "s", Address: "db:5432/app"})
	return r
}

// without returns a report in which one side does not respond.
func without(t *testing.T, relay, postgres string, alter func(p *Postgres, st *admin.Status)) *Report {
	t.Helper()
	r := sides(t, alter)
	if relay != "" {
		r.Relay.status, r.Relay.Error = nil, relay
	}
	if postgres != "" {
		r.Postgres = Postgres{Address: "db:5432/app", Error: postgres, ExitCode: 10}
	}
	r.judge(&Config{Slot: "s", Address: "db:5432/app"})
	return r
}

// nextStart returns a report without a relay, whose next start would find next.
func nextStart(t *testing.T, alter func(*Postgres, *admin.Status), next NextStart) *Report {
	t.Helper()
	r := without(t, "refused", "", alter)
	r.NextStart = &next
	r.judge(&Config{Slot: "s", Address: "db:5432/app", Relay: &relay.Config{Name: "orders", Positions: position.Place{Topic: "positions"}}})
	return r
}

// waiting has the relay wait after an error.
func waiting(text string, exit int) func(*Postgres, *admin.Status) {
	return func(_ *Postgres, st *admin.Status) {
		st.Ready, st.State, st.Reason = false, "waiting", "waiting: "+text
		_ = json.Unmarshal([]byte(fmt.Sprintf(`{"failures": [{"text": %q, "exit_code": %d, "advice": "mend it"}]}`, text, exit)), st)
	}
}

// If it is not known whether a relay has run, the advice on a missing slot begins with the slot, and the reason is there.
func TestMissingSlotWithoutTheBroker(t *testing.T) {
	r := without(t, "refused", "", func(p *Postgres, _ *admin.Status) { p.Slot = nil })
	r.unread = "no Kafka broker can be reached at k:9092"
	r.judge(&Config{Slot: "s", Address: "db:5432/app"})
	if !strings.HasPrefix(r.Advice, "If a relay has used it, "+catalog.InstructRecover) || !strings.Contains(r.Advice, catalog.InstructSetup) || !strings.HasSuffix(r.Why, "not known: no Kafka broker can be reached at k:9092.") {
		t.Errorf("%+v", r.Verdict)
	}
	r = without(t, "refused", "", func(p *Postgres, _ *admin.Status) { p.Slot.Active = false })
	r.unread = "no Kafka broker can be reached at k:9092"
	r.judge(&Config{Slot: "s", Address: "db:5432/app"})
	if strings.Contains(r.Advice, "Nothing is lost") || !strings.HasSuffix(r.Why, "has stopped is not known: no Kafka broker can be reached at k:9092.") {
		t.Errorf("it may be another slot: %+v", r.Verdict)
	}
}

// onStandby returns a report of a standby server that has a copy of the slot, without a relay. With one that reads from the primary, the
// verdict must be the same.
func onStandby(t *testing.T, alter func(*Slot)) *Report {
	t.Helper()
	r := sides(t, func(p *Postgres, _ *admin.Status) {
		p.Slot.Synced, p.Slot.Active, p.Slot.ActivePID = true, false, 0
		alter(p.Slot)
	})
	beside := *r
	beside.judge(&Config{Slot: "s", Address: "db:5432/app"})
	r.Relay = Relay{}
	r.judge(&Config{Slot: "s", Address: "db:5432/app"})
	if beside.Verdict != r.Verdict || beside.Healthy != r.Healthy {
		t.Errorf("beside a relay: %+v, want %+v", beside.Verdict, r.Verdict)
	}
	return r
}

func TestVerdict(t *testing.T) {
	alone := sides(t, nil)
	alone.Relay = Relay{}
	alone.judge(&Config{})
	foreign := sides(t, func(p *Postgres, _ *admin.Status) { p.Slot.foreign = "WAL sender 4711" })
	foreign.Relay = Relay{}
	foreign.judge(&Config{})
	type alter = func(p *Postgres, st *admin.Status)
	inactive := func(p *Postgres, _ *admin.Status) { p.Slot.Active, p.Slot.ActivePID = false, 0 }
	dropped := func(p *Postgres, _ *admin.Status) { p.Slot = nil }
	fenced := func(ago time.Duration) alter {
		return func(_ *Postgres, st *admin.Status) {
			st.At = time.Now()
			_ = json.Unmarshal(fmt.Appendf(nil, `{"failures": [{"text": "superseded: id x", "exit_code": 21, "times": 4, "at": %q, "advice": "stop it"}, {"exit_code": 10}]}`,
				st.At.Add(-ago).Format(time.RFC3339)), st)
		}
	}
	silent := func(active bool) *Report {
		r := without(t, "http://127.0.0.1:9187/ accepts the connection but does not respond", "", func(p *Postgres, _ *admin.Status) { p.Slot.Active = active })
		r.Relay.silent = true
		r.judge(&Config{})
		if strings.Contains(r.Advice, "--admin") || !strings.HasPrefix(r.Advice, "Restart this relay") {
			t.Errorf("advice on a frozen relay: %q", r.Advice)
		}
		return r
	}
	for name, test := range map[string]struct {
		report  *Report
		level   admin.Level
		title   string
		why     string
		healthy bool
	}{
		"well":           {sides(t, nil), admin.Good, "Healthy", "Committed rows reach Kafka in 1.1 ms", true},
		"idle":           {sides(t, func(_ *Postgres, st *admin.Status) { st.Rates.Records, st.InFlight.Records = 0, 0 }), admin.Good, "Healthy", "There are no new rows", true},
		"postgres alone": {alone, admin.Good, "The slot is active", "WAL sender 4711", true},
		"behind":         {sides(t, func(_ *Postgres, st *admin.Status) { st.Lag.Seconds = 300 }), admin.Warn, "Catching up", "5 min behind", true},
		"reconnects":     {sides(t, func(_ *Postgres, st *admin.Status) { st.Sink.Stalled, st.Sink.StallReason = 0.02, "EOF" }), admin.Good, "Healthy", "", true},
		"slow":           {sides(t, func(_ *Postgres, st *admin.Status) { st.Sink.Stalled, st.Sink.StallReason = 4, "no leader" }), admin.Warn, "Kafka does not acknowledge records", "For 4 s: no leader", false},
		"topic missing": {sides(t, func(_ *Postgres, st *admin.Status) {
			st.Sink.Stalled, st.Sink.StallReason, st.Sink.Missing, st.Sink.StallAdvice = 4, "no topic", "outbox.event.x", "create it"
		}), admin.Bad, "Destination outbox.event.x takes no records", "have waited for 4 s: no topic.", false},
		"just after an outage": {sides(t, func(_ *Postgres, st *admin.Status) { st.Latency.CommitToAckP50, st.Lag.Seconds = 21, 0.2 }), admin.Good, "Healthy", "has caught up. The rows of the last 10 s had waited for 21 s", true},
		"a slow broker":        {sides(t, func(_ *Postgres, st *admin.Status) { st.Latency.CommitToAckP50, st.Lag.Seconds = 3, 3 }), admin.Good, "Healthy", "reach Kafka in 3 s", true},
		"after an outage":      {sides(t, func(_ *Postgres, st *admin.Status) { st.Latency.CommitToAckP50 = 660 }), admin.Good, "Healthy", "has caught up. The rows of the last 10 s had waited for 11 min", true},
		"denied": {sides(t, func(_ *Postgres, st *admin.Status) {
			st.Sink.Stalled, st.Sink.StallReason, st.Sink.StallAdvice = 4, "TOPIC_AUTHORIZATION_FAILED", "Grant it."
		}), admin.Warn, "Kafka does not acknowledge records", "For 4 s: TOPIC_AUTHORIZATION_FAILED", false},
		"stalled": {sides(t, func(_ *Postgres, st *admin.Status) {
			st.Ready, st.Sink.Stalled, st.Sink.StallReason = false, 40, "broker 1 is down"
		}), admin.Bad, "Kafka does not acknowledge records", "For 40 s: broker 1 is down", false},
		"frozen":      {sides(t, func(_ *Postgres, st *admin.Status) { st.InFlight.Since, st.Rates.Records = 3, 0 }), admin.Warn, "Waiting for acknowledgements", "Kafka has acknowledged nothing for 3 s. Records in flight: 12.", true},
		"just frozen": {sides(t, func(_ *Postgres, st *admin.Status) { st.InFlight.Since, st.Rates.Records = 1, 0 }), admin.Good, "Healthy", "Records on the way to Kafka: 12", true},
		"starting":    {sides(t, func(_ *Postgres, st *admin.Status) { st.Ready, st.State, st.Reason = false, "starting", "starting" }), admin.Warn, "Starting", "connects to Postgres and Kafka", false},
		"standby":     {sides(t, func(_ *Postgres, st *admin.Status) { st.State, st.Role = "waiting", "standby" }), admin.Warn, "Standby", "takes over", true},
		"standby of another program": {sides(t, func(p *Postgres, st *admin.Status) {
			st.State, st.Role, p.Slot.foreign = "waiting", "standby", `WAL sender 4711, application "pg_recvlogical"`
		}), admin.Warn, "Another program streams from the slot", `"pg_recvlogical", does not look like a relay`, true},
		"another program alone": {foreign, admin.Warn, "Another program streams from the slot", "are not delivered", true},
		"standby, Kafka gone": {sides(t, func(_ *Postgres, st *admin.Status) {
			st.State, st.Role, st.Ready, st.Sink.Stalled, st.Sink.StallReason = "waiting", "standby", false, 40, "broker 1 is down"
		}), admin.Bad, "Kafka does not acknowledge records", "broker 1 is down", false},
		"own sender kept": {sides(t, waiting("slot in use", 12)), admin.Bad, "Waiting for Postgres", "slot in use", false},
		"waiting":         {sides(t, waiting("connection refused", 10)), admin.Bad, "Waiting for Postgres", "connection refused", false},
		"fenced":          {sides(t, waiting("superseded by a newer owner", 21)), admin.Bad, "The relay has lost its identity at the broker", "superseded by a newer owner", false},
		"fenced just now": {sides(t, fenced(time.Minute)), admin.Warn, "The relay has lost its identity at the broker", "was fenced 4 times since", true},
		"fenced long ago": {sides(t, fenced(16*time.Minute)), admin.Good, "Healthy", "", true},
		"stopped":         {sides(t, func(_ *Postgres, st *admin.Status) { st.Ready, st.State, st.Reason = false, "stopped", "stopped" }), admin.Bad, "The relay has stopped", "stopped", false},
		"lost":            {sides(t, func(p *Postgres, _ *admin.Status) { p.Slot.WALStatus = "lost" }), admin.Bad, "The slot is lost", "removed WAL", false},
		"unreserved":      {sides(t, func(p *Postgres, _ *admin.Status) { p.Slot.WALStatus = "unreserved" }), admin.Bad, "The slot is about to be lost", "may remove WAL", false},
		"no room":         {sides(t, func(p *Postgres, _ *admin.Status) { p.Slot.Safe = new(int64) }), admin.Bad, "The slot is about to be lost", "may remove WAL", false},
		"filling":         {sides(t, func(p *Postgres, _ *admin.Status) { p.Slot.TimeToFull, p.Slot.Retained = new(1200.0), *p.Slot.Safe/4 }), admin.Bad, "The slot is about to be lost", "in 20 min at this rate", false},
		"half full, no relay": {without(t, "refused", "", func(p *Postgres, st *admin.Status) {
			inactive(p, st)
			p.Slot.Retained, p.Slot.Safe = 45_000_000, new(int64(10_000_000))
		}), admin.Bad, "No relay is running", "after 9.5 MB more WAL", false},
		"half full, frozen": {sides(t, func(p *Postgres, st *admin.Status) {
			p.Slot.Retained, p.Slot.Safe = 45_000_000, new(int64(10_000_000))
			st.InFlight.Since, st.Rates.Records = 3, 0
		}), admin.Warn, "Waiting for acknowledgements", "after 9.5 MB more WAL", true},
		"filling, slowly":                    {sides(t, func(p *Postgres, _ *admin.Status) { p.Slot.TimeToFull = new(86400.0) }), admin.Good, "Healthy", "", true},
		"no slot":                            {sides(t, func(p *Postgres, _ *admin.Status) { p.Slot = nil }), admin.Bad, "The slot does not exist", "There is no slot s", false},
		"left on a standby":                  {sides(t, func(p *Postgres, _ *admin.Status) { p.Slot.Orphaned = true }), admin.Bad, "The slot is left on a standby", "when it was the primary", false},
		"blocks a standby":                   {sides(t, func(p *Postgres, _ *admin.Status) { p.Slot.Blocked = []string{"old:5432"} }), admin.Warn, "A standby cannot synchronize the slot", "The standby at old:5432 has a slot", true},
		"standby missing":                    {sides(t, func(p *Postgres, _ *admin.Status) { p.Slot.Missing = []string{"sb1", "sb2"} }), admin.Bad, "Postgres waits for a standby", "streams from sb1, sb2", false},
		"standby missing, as the relay says": {sides(t, func(_ *Postgres, st *admin.Status) { st.Slot.Standbys, st.Ready = []string{"sb1"}, false }), admin.Bad, "Postgres waits for a standby", "streams from sb1", false},
		"standby missing, without a relay":   {nextStart(t, func(p *Postgres, st *admin.Status) { p.Slot.Missing, p.Slot.Active = []string{"sb1"}, false }, NextStart{}), admin.Bad, "There is no position record", "not delivered", false},
		"standby missing, and the broker": {sides(t, func(p *Postgres, st *admin.Status) {
			p.Slot.Missing, st.Slot.Standbys, st.Ready, st.Sink.Stalled = []string{"sb1"}, []string{"sb1"}, false, 12
		}), admin.Bad, "Kafka does not acknowledge records", "For 12 s", false},
		"copy":              {onStandby(t, func(*Slot) {}), admin.Good, "The copy of the slot is ready", "If it is promoted, a relay continues", true},
		"copy, temporary":   {onStandby(t, func(s *Slot) { s.temporary, s.Active = true, true }), admin.Bad, "The copy of the slot is not ready", "has not completed it", false},
		"copy, invalidated": {onStandby(t, func(s *Slot) { s.Invalidation, s.WALStatus = "wal_removed", "lost" }), admin.Bad, "The copy of the slot is not ready", "invalidated (wal_removed)", false},
		"position file, at the start": {sides(t, func(_ *Postgres, st *admin.Status) {
			st.State, st.Ready, st.Reason = "starting", false, "starting"
			st.Sink.Stalled, st.Sink.StallReason, st.Sink.Unsaved = 4, "no space left on device", true
		}), admin.Bad, "The position file cannot be written", "no space left", false},
		"blocks, no slot": {sides(t, func(p *Postgres, st *admin.Status) {
			inactive(p, st)
			p.Slot.Blocked = []string{"old:5432"}
		}), admin.Warn, "No relay reads the slot", "lost its connection", false},
		"elsewhere": {sides(t, func(p *Postgres, st *admin.Status) {
			inactive(p, st)
			p.SystemID, st.Source.SystemID = "7001", "7002"
		}), admin.Bad, "The relay reads from another server", "identifier 7002. The server at db:5432/app has 7001", false},
		"session just lost": {sides(t, inactive), admin.Warn, "No relay reads the slot", "lost its connection", false},
		"session lost": {sides(t, func(p *Postgres, st *admin.Status) {
			inactive(p, st)
			waiting("terminating connection", 10)(p, st)
			p.SystemID, st.Source.SystemID = "7001", "7001"
		}), admin.Bad, "Waiting for Postgres", "terminating connection", false},
		"session and Kafka lost": {sides(t, func(p *Postgres, st *admin.Status) {
			waiting("terminating connection", 10)(p, st)
			st.Sink.Stalled, st.Sink.StallReason = 40, "broker 1 does not respond"
		}), admin.Bad, "Waiting for Postgres", "terminating connection. Kafka does not acknowledge records either: broker 1 does not respond", false},
		"positions not read": {sides(t, func(p *Postgres, st *admin.Status) {
			waiting("the position store does not respond", 20)(p, st)
			st.Sink.Stalled, st.Sink.StallReason = 40, "position topic p: refused"
		}), admin.Bad, "Waiting for Kafka", "the position store does not respond", false},
		"two reasons": {sides(t, func(p *Postgres, st *admin.Status) {
			waiting("connection refused", 10)(p, st)
			p.Slot.WALStatus = "lost"
		}), admin.Bad, "The slot is lost", "Waiting for Postgres: connection refused", false},
		"relay silent":            {without(t, "refused", "", nil), admin.Warn, "The relay does not respond", "WAL sender 4711 streams from the slot", false},
		"relay frozen":            {silent(true), admin.Warn, "The relay does not respond", "is frozen, or its machine is overloaded. WAL sender 4711 streams from the slot, for this relay or another one", false},
		"relay frozen, slot free": {silent(false), admin.Bad, "The relay does not respond", "No relay streams from the slot; 48 B of WAL are not delivered", false},
		"another program holds the slot": {without(t, "refused", "", func(p *Postgres, _ *admin.Status) {
			p.Slot.foreign = "WAL sender 4711"
		}), admin.Warn, "Another program streams from the slot", "are not delivered", false},
		"relay gone":              {without(t, "refused", "", inactive), admin.Bad, "No relay is running", "Refused", false},
		"postgres silent":         {without(t, "", "unreachable", nil), admin.Warn, "Cannot connect to Postgres from here", "The relay reports: Healthy", false},
		"postgres silent, filled": {without(t, "", "unreachable", func(_ *Postgres, st *admin.Status) { st.Slot.WALStatus = "unreserved" }), admin.Bad, "The slot is about to be lost", "", false},
		"never run":               {nextStart(t, inactive, NextStart{}), admin.Bad, "There is no position record", "Slot s is confirmed up to 0/2FD0, and positions has no position record of the name orders", false},
		"never run, no slot":      {nextStart(t, dropped, NextStart{}), admin.Warn, "No relay has run yet", "There is no slot s", false},
		"never run, slot missing": {nextStart(t, dropped, NextStart{Error: "slot s does not exist; for a relay that has never run … otherwise …", ExitCode: 11, Advice: "find out why the slot is gone"}), admin.Bad, "No relay has run yet", "There is no slot s on the server at db:5432/app.", false},
		"never run, not set up":   {nextStart(t, dropped, NextStart{Error: "publication p does not exist", ExitCode: 13, Advice: "create it"}), admin.Bad, "No relay has run yet", "The next start fails: publication p", false},
		"stopped by a row": {
			nextStart(t, inactive, NextStart{Recorded: &Recorded{Stopped: &checkpoint.Stop{ExitCode: 14, Reason: "a row:\n  cannot be a record", Advice: "Correct it."}}}),
			admin.Bad, "The relay has stopped with exit code 14", ": a row: cannot be a record. Refused.", false,
		},
		"will continue":  {nextStart(t, inactive, NextStart{Recorded: &Recorded{}}), admin.Bad, "No relay is running", "of WAL are not delivered", false},
		"slot ahead":     {nextStart(t, inactive, NextStart{Recorded: &Recorded{}, Error: "slot s is at 0/9", ExitCode: 15, Advice: "outbox-cdc recover"}), admin.Bad, "The next start fails with exit code 15", "Slot s is at 0/9. Refused.", false},
		"slot dropped":   {nextStart(t, dropped, NextStart{Recorded: &Recorded{EndLSN: "0/7"}}), admin.Bad, "The slot does not exist", "A relay recorded position 0/7", false},
		"another server": {nextStart(t, dropped, NextStart{Recorded: &Recorded{EndLSN: "0/7"}, Error: "the record is of system 7", ExitCode: 15, Advice: "correct source.dsn"}), admin.Bad, "The slot does not exist", "There is no slot s on the server at db:5432/app. The record is of system 7.", false},
		"both silent":    {without(t, "refused", "unreachable", nil), admin.Bad, "Cannot connect to Postgres, and no relay responds", "unreachable. Refused", false},
	} {
		r := test.report
		if r.Level != test.level || r.Title != test.title || !strings.Contains(r.Why, test.why) || r.Healthy != test.healthy {
			t.Errorf("%s: %s %q: %q, healthy %t", name, r.Level, r.Title, r.Why, r.Healthy)
		}
		if strings.Count(r.Why, "There is no slot") > 1 {
			t.Errorf("%s: twice: %q", name, r.Why)
		}
		if st := r.Relay.status; st != nil && r.Title == "Kafka does not acknowledge records" &&
			(!strings.HasPrefix(r.Advice, st.Sink.StallAdvice) || strings.Contains(r.Advice, "Check the broker") != (st.Sink.StallAdvice == "")) {
			t.Errorf("%s: %q does not have the advice of the broker's error", name, r.Advice)
		}
		if next := r.NextStart; next != nil && next.Error != "" {
			want := sentence(next.Advice)
			if next.Recorded == nil && next.ExitCode == exit.SlotLost {
				want = "create the slot: " + catalog.InstructSetup
			}
			if !strings.Contains(r.Advice, want) {
				t.Errorf("%s: %q does not have the advice of the next start", name, r.Advice)
			}
		}
		if r.Level == admin.Bad && r.Advice == "" && name != "stopped" && name != "both silent" {
			t.Errorf("%s: there is no advice", name)
		}
	}
}

// If no relay runs, a slot that is about to be lost needs one first. If the relay runs, it has to catch up.
func TestSlotAboutToBeLost(t *testing.T) {
	full := func(active bool) func(*Postgres, *admin.Status) {
		return func(p *Postgres, _ *admin.Status) { p.Slot.Active, p.Slot.WALStatus = active, "unreserved" }
	}
	for name, tc := range map[string]struct {
		report *Report
		advice string // its beginning
		why    string
	}{
		"no relay":     {without(t, "refused", "", full(false)), startAdvice + retained + " Let the relay catch up, or give it more room: ALTER SYSTEM", "No relay is running."},
		"never run":    {nextStart(t, full(false), NextStart{}), "Start it: outbox-cdc run.", "There is no position record"},
		"a relay runs": {sides(t, full(true)), "Let the relay catch up", ""},
	} {
		if r := tc.report; r.Title != "The slot is about to be lost" || !strings.HasPrefix(r.Advice, tc.advice) || !strings.Contains(r.Why, tc.why) {
			t.Errorf("%s: %+v", name, r.Verdict)
		}
	}
}

// What a first start does about rows from before the slot is in the advice.
func TestFirstStartWithAnInitialCopy(t *testing.T) {
	inactive := func(p *Postgres, _ *admin.Status) { p.Slot.Active, p.Slot.ActivePID = false, 0 }
	dropped := func(p *Postgres, _ *admin.Status) { p.Slot = nil }
	for _, tc := range []struct {
		alter  func(*Postgres, *admin.Status)
		copies bool
		advice string
	}{
		{dropped, true, "It creates the slot. It first sends the rows that are in the tables"},
		{dropped, false, "Rows committed before are not delivered. To send them too, set source.initial_copy"},
		{inactive, true, "It sends no rows from before, although source.initial_copy is set"},
		{inactive, false, "It continues at the position of the slot"},
	} {
		r := nextStart(t, tc.alter, NextStart{})
		r.judge(&Config{Slot: "s", Address: "db:5432/app", Relay: &relay.Config{InitialCopy: tc.copies}})
		if !strings.Contains(r.Advice, tc.advice) {
			t.Errorf("%+v: %q", tc, r.Advice)
		}
	}
	announced := nextStart(t, dropped, NextStart{first: true, Recorded: &Recorded{EndLSN: "0/0"}})
	if announced.Title != "The first start has not created the slot" || !strings.HasPrefix(announced.Advice, "Start it: outbox-cdc run.") {
		t.Errorf("%+v", announced.Verdict)
	}
	failed := nextStart(t, dropped, NextStart{first: true, Recorded: &Recorded{EndLSN: "0/0", Stopped: &checkpoint.Stop{ExitCode: exit.Source, Reason: "no free slot", Advice: "raise it"}}})
	if !strings.Contains(failed.Why, "exit code 10: no free slot") || failed.Advice != "Raise it." {
		t.Errorf("%+v", failed.Verdict)
	}
}

// Rows of an unfinished copy are not in the WAL, so nobody may delete them.
func TestUnfinishedCopy(t *testing.T) {
	inactive := func(p *Postgres, _ *admin.Status) { p.Slot.Active, p.Slot.ActivePID = false, 0 }
	stopped := &checkpoint.Stop{ExitCode: exit.BadRecord, Reason: "a bad row", Advice: "mend it"}
	for _, recorded := range []Recorded{{Unfinished: "initial copy"}, {Unfinished: "refill"}, {Unfinished: "refill", Stopped: stopped}} {
		r := nextStart(t, inactive, NextStart{Recorded: &recorded})
		says := " The " + recorded.Unfinished + " is not finished. Its rows are in the table, not in the WAL: delete none before it is."
		if !strings.HasSuffix(r.Why, says) || strings.Contains(r.Advice, "Nothing is lost") {
			t.Errorf("%+v: %+v", recorded, r.Verdict)
		}
	}
}

// The instruction after the loss of a slot fits the table.
func TestLostSlotInstruction(t *testing.T) {
	dropped := func(p *Postgres, _ *admin.Status) { p.Slot = nil }
	lost := func(p *Postgres, _ *admin.Status) {
		p.Slot.Active, p.Slot.ActivePID, p.Slot.WALStatus = false, 0, "lost"
	}
	for name, alter := range map[string]func(*Postgres, *admin.Status){"dropped": dropped, "lost": lost} {
		for _, want := range []string{catalog.InstructRecover, catalog.InstructByHand} {
			r := nextStart(t, alter, NextStart{Recorded: &Recorded{EndLSN: "0/7"}, recover: want})
			if !strings.Contains(r.Advice, want) || strings.Contains(r.Advice, catalog.InstructRecover) != (want == catalog.InstructRecover) {
				t.Errorf("%s: %q, want %q", name, r.Advice, want)
			}
		}
		r := nextStart(t, alter, NextStart{Recorded: &Recorded{EndLSN: "0/7"}, Error: "slot s is gone; no delivered row", refused: "no delivered row", recover: "if only prune deletes rows, " + catalog.InstructUnpruned})
		if r.Advice != "If only prune deletes rows, "+catalog.InstructUnpruned+"." || !strings.HasSuffix(r.Why, ". No delivered row.") {
			t.Errorf("%s, after which recover refuses: %+v", name, r.Verdict)
		}
	}
}

// A relay that refills by itself needs no recover: the advice is about the error that prevents the refill, or to start the relay.
func TestLostSlotWithRefill(t *testing.T) {
	cfg := &Config{Slot: "s", Address: "db:5432/app", Relay: &relay.Config{RefillOnLoss: true}}
	stop := &checkpoint.Stop{ExitCode: 10, Reason: "permission denied for table outbox", Advice: "grant the role what the error names"}
	for name, alter := range map[string]func(*Postgres, *admin.Status){
		"dropped": func(p *Postgres, _ *admin.Status) { p.Slot = nil },
		"lost": func(p *Postgres, _ *admin.Status) {
			p.Slot.Active, p.Slot.ActivePID, p.Slot.WALStatus = false, 0, "lost"
		},
	} {
		stopped := nextStart(t, alter, NextStart{Recorded: &Recorded{EndLSN: "0/7", Stopped: stop}})
		killed := nextStart(t, alter, NextStart{Recorded: &Recorded{EndLSN: "0/7"}})
		waits := sides(t, func(p *Postgres, st *admin.Status) {
			alter(p, st)
			waiting("permission denied for table outbox", 10)(p, st)
		})
		for report, want := range map[*Report]string{stopped: "Grant the role what the error names.", waits: "mend it", killed: "source.on_slot_loss is refill"} {
			report.judge(cfg)
			if !strings.Contains(report.Advice, want) || strings.Contains(report.Advice, "recover") || strings.Contains(report.Why, "permission denied") != (report != killed) {
				t.Errorf("%s: %+v, want %q", name, report.Verdict, want)
			}
		}
	}
}

// If a relay has stopped with an exit code, a restart may not be enough. The advice names the exit code.
func TestAdviceNamesTheExitCode(t *testing.T) {
	gone := without(t, "refused", "", func(p *Postgres, _ *admin.Status) { p.Slot.Active, p.Slot.ActivePID = false, 0 })
	stopped := sides(t, func(_ *Postgres, st *admin.Status) {
		st.Ready, st.State, st.Reason = false, "stopped", "stopped"
		if err := json.Unmarshal([]byte(`{"failures": [{"text": "transaction 0/1, row 0: too large", "exit_code": 14, "advice": "Correct the cause.", "section": "docs/runbook.md#exit-14"}]}`), st); err != nil {
			t.Fatal(err)
		}
	})
	if !strings.Contains(gone.Advice, "docs/runbook.md#exit-codes") {
		t.Errorf("without a relay: %q", gone.Advice)
	}
	if !strings.Contains(stopped.Advice, "docs/runbook.md#exit-14") || !strings.Contains(stopped.Why, "row 0") {
		t.Errorf("stopped: %+v", stopped.Verdict)
	}
}

// A login that Postgres or a pooler refuses has a next step, as in run.
func TestAdviceOnALogin(t *testing.T) {
	for section, err := range map[string]error{
		"docs/access.md#postgres": fmt.Errorf("%w: password authentication failed", replication.ErrAccess),
		"docs/clouds.md#poolers":  fmt.Errorf("%w: %w", replication.ErrConfig, &pgconn.PgError{Code: "08P01", Message: "unsupported startup parameter: row_security"}),
	} {
		if got := adviceOn(err); !strings.Contains(got, section) {
			t.Errorf("advice: %q, want %s", got, section)
		}
	}
}

func TestLines(t *testing.T) {
	got := strings.Join(View{Width: 80}.Lines(sides(t, nil)), "\n")
	want := `orders                                                 outbox-cdc 1.4.0, up 26 h
db:5432/app → kafka-1:9092, kafka-2:9092

● Healthy
  Committed rows reach Kafka in 1.1 ms.

Postgres          → Decoder           → In flight         → Kafka               
48 B lag            1,204 rows/s        12 records          1,204 records/s     
WAL ends at         1 MB/s of WAL       4 kB                244 kB/s            
0/3000              at 0/3000           ██░░░░░░ 25 %       ack p99 3 ms        

Lag                       200 ms                                                
Consumer-visible latency  p50 1.1 ms, p99 4.2 ms                                
Records per second        1,204                                                 

Slot s
  State           reserved, active, WAL sender 4711
  Confirmed LSN   0/2FD0, 48 B behind the end of the WAL
  Retained WAL    32 MB, from 0/1000
  Limit           ░░░░░░░░░░ 10 GB left
  Time to limit   –

Destination                                    records/s       records      size
outbox.event.order                                 1,200    31,900,000    5.9 GB
outbox.event.customer                                4.4     9,180,000      1 GB

Last errors
None since the start.`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// While a record of an older transaction waits, for example for a missing topic, no later transaction has a latency.
func TestLinesBehindAnOlderRecord(t *testing.T) {
	nan := json.RawMessage(`{"latency": {"commit_to_ack_p50": null, "commit_to_ack_p99": null}}`)
	got := strings.Join(View{Width: 80}.Lines(sides(t, func(_ *Postgres, st *admin.Status) {
		if err := json.Unmarshal(nan, st); err != nil {
			t.Fatal(err)
		}
	})), "\n")
	if want := "Consumer-visible latency  oldest not acknowledged"; !strings.Contains(got, want) {
		t.Errorf("there is no %q in\n%s", want, got)
	}
}

// A standby has read nothing, so it knows neither a lag nor a position.
func TestLinesOfAStandby(t *testing.T) {
	got := strings.Join(View{Width: 80}.Lines(sides(t, func(_ *Postgres, st *admin.Status) {
		st.Role, st.State = "standby", "waiting"
		st.Source.Received, st.Source.ServerEnd = "0/0", "0/0"
	})), "\n")
	for _, want := range []string{"at –", "Lag                       –  "} {
		if !strings.Contains(got, want) {
			t.Errorf("there is no %q in\n%s", want, got)
		}
	}
	if strings.Contains(got, "0/0 ") {
		t.Errorf("it shows a position:\n%s", got)
	}
}

// The slot's lines name what Postgres has spilled to disk, and the state of a copy on a standby.
func TestLinesOfTheSlot(t *testing.T) {
	got := strings.Join(View{Width: 100}.Lines(sides(t, func(p *Postgres, st *admin.Status) {
		st.Source.Neighbours = []string{"public.hb", "public.archive"}
		p.Slot.Decoding = Decoding{SpilledTransactions: 3, SpilledBytes: 120_000_000}
		p.Slot.Synced, p.Slot.SyncSkipReason = true, "wal_not_flushed"
	})), "\n")
	for _, want := range []string{
		"Spilled to disk 114 MB of 3 transactions larger than logical_decoding_work_mem",
		"Skipped tables  public.hb, public.archive: published, but not in outbox.tables",
		"Copy            of the primary's slot; last synchronization: skipped, wal_not_flushed",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("there is no %q in\n%s", want, got)
		}
	}
}

// No line is wider and no block is higher than the available space. Even the smallest size shows the problem and
// the advice.
func TestLinesFit(t *testing.T) {
	long := strings.Repeat("source unreachable: connect to the server at ", 5) + strings.Repeat("x", 120)
	for name, r := range map[string]*Report{
		"well":     sides(t, nil),
		"no relay": without(t, long, "", nil),
		"failing": sides(t, func(p *Postgres, st *admin.Status) {
			st.Name, st.Source.Address = strings.Repeat("long", 40), strings.Repeat("host", 60)
			st.Ready, st.State = false, "waiting"
			if err := json.Unmarshal([]byte(`{"failures": [{"text": "`+long+`", "times": 3, "section": "docs/access.md#postgres", "advice": "mend it"}], "sink": {"broker": "Kafka", "last_error": "no leader"}, "totals": {"dead_letters": 4}}`), st); err != nil {
				t.Fatal(err)
			}
			p.Oldest = &Transaction{GID: strings.Repeat("g", 90), Age: 3600}
		}),
		"many topics": sides(t, func(_ *Postgres, st *admin.Status) {
			for range 7 {
				st.Topics = append(st.Topics, st.Topics...)
			}
		}),
	} {
		for _, width := range []int{24, 47, 75, 76, 99, 250} {
			for _, height := range []int{6, 15, 24, 40, 0} {
				lines := View{Width: width, Height: height}.Lines(r)
				if height > 0 && len(lines) > height {
					t.Errorf("%s: %d lines of %d", name, len(lines), height)
				}
				for _, line := range lines {
					if n := utf8.RuneCountInString(line); n > width && (height > 0 || !command.MatchString(line)) {
						t.Errorf("%s: %d characters of %d: %q", name, n, width, line)
					}
				}
				if !strings.Contains(strings.Join(lines, "\n"), r.Title[:7]) {
					t.Errorf("%s at %d × %d does not say %q", name, width, height, r.Title)
				}
			}
		}
	}
	lines := strings.Join(View{Width: 80, Height: 24}.Lines(sides(t, func(_ *Postgres, st *admin.Status) {
		st.Topics = append(st.Topics, st.Topics...)
		st.Topics = append(st.Topics, st.Topics...)
	})), "\n")
	for _, want := range []string{"Slot s", "outbox.event.order", "and 7 more", "Last errors"} {
		if !strings.Contains(lines, want) {
			t.Errorf("of many topics in 24 lines there is no %q:\n%s", want, lines)
		}
	}
}

// A chart shows the maximum of each interval, over the available time.
func TestCharts(t *testing.T) {
	h := new(admin.History)
	var points []string
	for i := range 40 {
		lag := 0
		if i == 20 {
			lag = 8
		}
		points = append(points, fmt.Sprintf("[%d, %d]", i, lag))
	}
	data := `{"columns": ["at", "lag_seconds"], "points": [` + strings.Join(points, ",") + "]}"
	if err := json.Unmarshal([]byte(data), h); err != nil {
		t.Fatal(err)
	}
	line, since := View{History: h}.draw("lag_seconds", 30)
	if want := strings.Repeat(" ", 10) + "▁▁▁▁▁▁▁▁▁▁█▁▁▁▁▁▁▁▁▁"; line != want || since != "1 min" {
		t.Errorf("%q %q, want %q", line, since, want)
	}
	if line, since := (View{History: h}).draw("else", 4); line != "    " || since != "" {
		t.Errorf("of nothing: %q %q", line, since)
	}
}

// A lost slot has one instruction, and no limit that is still to be reached.
func TestLostSlot(t *testing.T) {
	r := sides(t, func(p *Postgres, _ *admin.Status) {
		p.Slot.WALStatus, p.Slot.Invalidation, p.Slot.Safe = "lost", "wal_removed", nil
	})
	text := strings.Join(View{Width: 100}.Lines(r), "\n")
	for _, want := range []string{"outbox-cdc recover", "lost wal_removed, active", "none any more: the slot is invalidated"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
	for _, other := range []string{"setup", "replay", "the disk is full"} {
		if strings.Contains(text, other) {
			t.Errorf("%q is in:\n%s", other, text)
		}
	}
}

// If the user of status may not use the position file, the report says so: a relay of that user would exit.
func TestUnreadFile(t *testing.T) {
	a := &Asker{cfg: Config{Relay: new(relay.Config)}, nextAt: time.Now(), unread: fmt.Errorf("%w: the directory /p does not let user 7 in", position.ErrFile)}
	r := without(t, "refused", "", func(p *Postgres, _ *admin.Status) { p.Slot.Active, p.Slot.ActivePID = false, 0 })
	r.NextStart = a.nextStart(t.Context())
	r.judge(&Config{Slot: "s"})
	if r.Title != "The next start fails with exit code 20" || !strings.Contains(r.Why, "does not let user 7 in") || !strings.Contains(r.Advice, "docs/access.md#position-file") {
		t.Errorf("%+v", r.Verdict)
	}
}

// The time limit of this command is not why the position record cannot be read.
func TestUnreachableBrokerIsNamed(t *testing.T) {
	cause := fmt.Errorf("%w at k:9092: %w (last cause: refused)", sink.ErrUnreachable, context.DeadlineExceeded)
	if got := oneLine(cause); got != cause.Error() {
		t.Errorf("oneLine: %s", got)
	}
}
