package admin

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// A Status is the response of /status. Sizes are in bytes, durations in seconds, positions in Postgres' notation; null is
// a value that is unknown or does not apply.
type Status struct {
	Name    string    `json:"name"`
	Version string    `json:"version"`
	Commit  string    `json:"commit,omitempty"`
	Docs    string    `json:"docs"`   // address of the folder with its documentation
	At      time.Time `json:"at"`     // time of the sample
	Uptime  number    `json:"uptime"` // of the process

	Role   string    `json:"role,omitempty"` // active, standby; empty: neither
	State  string    `json:"state"`          // starting, waiting, streaming, stopped
	Since  time.Time `json:"since"`          // when State began
	Ready  bool      `json:"ready"`          // as /readyz
	Reason string    `json:"reason,omitempty"`

	Source   source     `json:"source"`
	Slot     slot       `json:"slot"`
	Verdict  Verdict    `json:"verdict"` // on the relay and its slot
	Refill   *refill    `json:"refill"`  // null: no refill of a lost slot is running
	Lag      lag        `json:"lag"`
	InFlight inFlight   `json:"in_flight"`
	Rates    rates      `json:"rates"`   // over the last 10 s
	Latency  waits      `json:"latency"` // over the last 10 s
	Totals   totals     `json:"totals"`
	Sink     sinkStatus `json:"sink"`
	Topics   []topic    `json:"topics"`
	Parked   parked     `json:"parked"`
	Failures []failure  `json:"failures"` // the latest ones, newest first

	Configuration bool `json:"configuration"` // /config returns it

	Point   point    `json:"point"` // the latest one of /history
	Columns []string `json:"columns"`
}

type source struct {
	Address     string `json:"address"`
	SystemID    string `json:"system_id,omitempty"` // system identifier of the cluster; empty: not known yet
	Publication string `json:"publication"`

	Neighbours []string `json:"neighbours,omitempty"` // published tables that are not in outbox.tables
	Received   string   `json:"received"`             // position read
	Confirmed  string   `json:"confirmed"`            // confirmed to Postgres
	ServerEnd  string   `json:"server_end"`           // end of the WAL, as far as it is known
}

type slot struct {
	Name        string     `json:"name"`
	ReadAt      *time.Time `json:"read_at"` // of the catalog
	WALStatus   string     `json:"wal_status"`
	Retained    int64      `json:"retained_bytes"`
	Safe        *int64     `json:"safe_bytes"`   // null: no limit
	Limit       string     `json:"limit"`        // in words, with or without a limit
	TimeToFull  *number    `json:"time_to_full"` // null: it does not grow
	Risk        string     `json:"risk"`         // ok, warning, critical, lost
	Endangered  bool       `json:"endangered"`   // critical or lost
	Instruction string     `json:"advice,omitempty"`
	Standbys    []string   `json:"missing_standbys,omitempty"` // that Postgres waits for, and sends nothing meanwhile
}

type refill struct {
	Since time.Time `json:"since"` // when it began, or continued after an interruption
	Rows  uint64    `json:"rows"`  // sent
	Total uint64    `json:"total"` // to be sent
}

type lag struct {
	Bytes   int64  `json:"bytes"`
	Seconds number `json:"seconds"`
}

type inFlight struct {
	Records int    `json:"records"`
	Bytes   int    `json:"bytes"`
	Full    number `json:"full"`  // used part of the window, up to 1
	Since   number `json:"since"` // seconds since the last acknowledgement, 0 without records
}

type rates struct {
	Records number `json:"records"`
	Bytes   number `json:"bytes"`
	Rows    number `json:"rows"`
	Log     number `json:"log"` // bytes of WAL read
}

type waits struct {
	CommitToAckP50 number `json:"commit_to_ack_p50"`
	CommitToAckP99 number `json:"commit_to_ack_p99"`
	AckP50         number `json:"ack_p50"`
	AckP99         number `json:"ack_p99"`
}

type totals struct {
	Sessions     uint64 `json:"sessions"`
	Transactions uint64 `json:"transactions"`
	Rows         uint64 `json:"rows"`
	Records      int64  `json:"records"` // acknowledged
	Bytes        int64  `json:"bytes"`
	DeadLetters  uint64 `json:"dead_letters"`
	Renewals     int64  `json:"duplicates_possible"`
	Retries      int64  `json:"retries"`
}

type sinkStatus struct {
	Broker       string     `json:"broker"`  // the kind: Kafka, …
	Brokers      []string   `json:"brokers"` // their addresses
	Stalled      number     `json:"stalled"`
	StallReason  string     `json:"stall_reason,omitempty"`
	Missing      string     `json:"missing,omitempty"` // that the stall waits for
	StallAdvice  string     `json:"stall_advice,omitempty"`
	Unsaved      bool       `json:"unsaved,omitempty"`       // the stall is that of the position file
	WindowAdvice string     `json:"window_advice,omitempty"` // how to deliver faster
	LastError    string     `json:"last_error,omitempty"`    // was retried
	LastErrorAt  *time.Time `json:"last_error_at"`
}

type topic struct {
	Name    string `json:"name"`
	Records int64  `json:"records"`
	Bytes   int64  `json:"bytes"`
	Rate    number `json:"rate"` // records a second
}

// parked are the parked keys. A key itself is not shown: dead-letter list shows it.
type parked struct {
	Number int         `json:"number"`
	Oldest number      `json:"oldest"` // seconds since the first one was parked
	Keys   []ParkedKey `json:"keys"`   // the longest parked ones
}

// A ParkedKey is a parked key in a [Status].
type ParkedKey struct {
	ID      string    `json:"id"`
	Topic   string    `json:"topic"`
	Since   time.Time `json:"since"`
	Records int       `json:"records"` // dead letters, as far as they were counted
	Row     string    `json:"row"`     // that cannot be delivered
	Reason  string    `json:"reason"`
	Fix     string    `json:"fix"` // how to release it

	Truncated bool `json:"truncated,omitempty"` // the dead letter of the row lacks the payload
}

type failure struct {
	Since    time.Time `json:"since"`
	At       time.Time `json:"at"`
	Times    int       `json:"times"`
	Text     string    `json:"text"`
	ExitCode int       `json:"exit_code"`
	Advice   string    `json:"advice,omitempty"`
	Section  string    `json:"section,omitempty"` // of the documentation
}

// status returns the current state; nil before the first sample.
func (s *Server) status(now time.Time) *Status {
	last := s.last.Load()
	if last == nil {
		return nil
	}
	from, answered, delivery := s.history.window()
	st := &last.stat
	role, reason := s.readiness(now)
	risk := st.Slot.Risk(last.at)
	out := &Status{
		Name: s.cfg.Name, Version: s.cfg.Version, Commit: s.cfg.Commit, Docs: s.cfg.Docs, At: last.at, Uptime: number(now.Sub(s.began).Seconds()),
		Role: string(role), State: string(st.State), Since: st.Since, Ready: reason == "", Reason: reason,
		Source: source{
			Address: s.cfg.Source, SystemID: st.Slot.SystemID, Publication: s.cfg.Publication, Neighbours: st.Neighbours,
			Received: st.Received.String(), Confirmed: st.Confirmed.String(), ServerEnd: last.serverEnd().String(),
		},
		Slot:     s.slot(last, risk),
		Lag:      lag{last.lagBytes(), last.lag()},
		InFlight: inFlight{st.Sink.InFlightRecords, st.Sink.InFlightBytes, full(&st.Sink), number(last.unacknowledged().Seconds())},
		Rates: rates{
			Records: number(perSecond(from, last, last.records-from.records)), Bytes: number(perSecond(from, last, last.bytes-from.bytes)),
			Rows: number(perSecond(from, last, int64(st.Rows-from.stat.Rows))), Log: number(perSecond(from, last, int64(st.WALBytes-from.stat.WALBytes))),
		},
		Latency: waits{
			orNone(delivery.quantile(0.5)), orNone(delivery.quantile(0.99)),
			orNone(answered.quantile(0.5)), orNone(answered.quantile(0.99)),
		},
		Totals: totals{
			Sessions: st.Sessions, Transactions: st.Transactions, Rows: st.Rows, Records: last.records, Bytes: last.bytes,
			DeadLetters: st.DeadLetters, Renewals: st.Sink.DuplicatesPossible, Retries: st.Sink.Retries,
		},
		Sink: sinkStatus{
			Broker: s.cfg.Broker, Brokers: s.cfg.Brokers, Stalled: number(last.stalled().Seconds()), StallReason: st.Sink.StallReason,
			Missing: st.Sink.StallMissing, StallAdvice: st.Sink.StallAdvice, Unsaved: st.Unsaved, WindowAdvice: st.Sink.WindowAdvice,
			LastError: st.Sink.LastError, LastErrorAt: timeOrNull(st.Sink.LastErrorAt),
		},
		Topics:   topics(from, last),
		Parked:   parkedKeys(last),
		Failures: failures(last),
		Columns:  columns(),

		Configuration: s.cfg.Configuration != "",
	}
	if r := st.Refill; r != nil {
		out.Refill = &refill{r.Since, r.Rows, r.Total}
	}
	if p := s.history.last(1); len(p) > 0 {
		out.Point = p[0]
	}
	out.Verdict = out.judge(risk)
	s.fill(out)
	return out
}

// full returns the used part of the window, without protocol overhead.
func full(st *sink.Stat) number {
	if st.WindowRecords == 0 || st.WindowBytes == 0 {
		return 0 // the sink has not connected yet
	}
	return number(min(1, max(float64(st.InFlightRecords)/float64(st.WindowRecords), float64(st.InFlightBytes)/float64(st.WindowBytes))))
}

func (s *Server) slot(last *sample, risk catalog.Risk) slot {
	st := &last.stat.Slot
	out := slot{
		Name: s.cfg.Slot, ReadAt: timeOrNull(st.ReadAt), WALStatus: st.WALStatus, Retained: st.RetainedBytes, Safe: st.SafeBytes,
		Limit: risk.Limit, Risk: risk.Level().String(), Endangered: risk.Level() >= catalog.LevelCritical, Instruction: risk.Advice,
		Standbys: st.Standbys,
	}
	if risk.TimeToLimit > 0 {
		out.TimeToFull = new(number(risk.TimeToLimit.Seconds()))
	}
	return out
}

func topics(from, last *sample) []topic {
	out := make([]topic, 0, len(last.stat.Sink.Topics))
	for _, name := range slices.Sorted(maps.Keys(last.stat.Sink.Topics)) {
		t := last.stat.Sink.Topics[name]
		rate := perSecond(from, last, t.Records-from.stat.Sink.Topics[name].Records)
		out = append(out, topic{Name: name, Records: t.Records, Bytes: t.Bytes, Rate: number(rate)})
	}
	slices.SortStableFunc(out, func(a, b topic) int { return cmp.Compare(b.Records, a.Records) })
	return out
}

// shownKeys is how many parked keys a Status has.
const shownKeys = 20

func parkedKeys(last *sample) parked {
	out := parked{Number: len(last.stat.Parked), Oldest: number(last.parkedFor().Seconds()), Keys: make([]ParkedKey, 0, shownKeys)}
	for _, p := range last.stat.Parked[:min(shownKeys, len(last.stat.Parked))] {
		out.Keys = append(out.Keys, ParkedKey{
			ID: p.ShortID(), Topic: p.Topic, Since: p.Since, Records: p.Records, Row: p.Bad.String(), Reason: p.Reason,
			Fix: p.Instruction(), Truncated: p.Truncated,
		})
	}
	return out
}

func failures(last *sample) []failure {
	out := make([]failure, 0, len(last.stat.Failures))
	for _, f := range slices.Backward(last.stat.Failures) {
		out = append(out, failure{
			Since: f.First, At: f.Last, Times: f.Times, Text: f.Text, ExitCode: f.ExitCode, Advice: f.Advice, Section: f.Section,
		})
	}
	return out
}

// fill completes the texts that have instructions.
func (s *Server) fill(out *Status) {
	terms := catalog.Terms{Slot: s.cfg.Slot, Publication: s.cfg.Publication, Arguments: s.cfg.Arguments}
	texts := []*string{&out.Verdict.Why, &out.Verdict.Advice, &out.Slot.Instruction}
	for i := range out.Failures {
		texts = append(texts, &out.Failures[i].Text, &out.Failures[i].Advice)
	}
	for i := range out.Parked.Keys {
		texts = append(texts, &out.Parked.Keys[i].Fix)
	}
	for _, text := range texts {
		*text = terms.Fill(*text)
	}
}

func timeOrNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
