package catalog

import (
	"strings"
	"testing"
	"time"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// Judge returns how close a slot is to being invalidated, and what to do. Status, page, check, metrics and log all
// use it.
func TestJudge(t *testing.T) {
	const gb = 1 << 30
	safe := func(n int64) *int64 { return &n }
	in := noon.Add
	for name, tc := range map[string]struct {
		reserve Reserve
		danger  Danger
		level   string
		says    string
	}{
		"no limit":             {Reserve{WALStatus: "reserved", Retained: 5 * gb}, Calm, "ok", ""},
		"plenty":               {Reserve{WALStatus: "reserved", Retained: gb, Safe: safe(9 * gb), LimitAt: in(24 * time.Hour)}, Calm, "ok", ""},
		"beyond max_wal_size":  {Reserve{WALStatus: "extended", Retained: 5 * gb}, Extended, "warning", "There is no limit"},
		"extended, with limit": {Reserve{WALStatus: "extended", Retained: gb, Safe: safe(9 * gb)}, Extended, "warning", "the disk fills"},
		"less than half":       {Reserve{WALStatus: "extended", Retained: 6 * gb, Safe: safe(4 * gb), LimitAt: in(2 * time.Hour)}, Half, "warning", "after 4 GB more WAL, in 2 h at this rate"},
		"within the hour":      {Reserve{WALStatus: "reserved", Retained: gb, Safe: safe(9 * gb), LimitAt: in(20 * time.Minute)}, Soon, "critical", "after 9 GB more WAL, in 20 min at this rate"},
		"hardly used":          {Reserve{WALStatus: "reserved", Retained: gb, Safe: safe(30 * gb), LimitAt: in(20 * time.Minute)}, Calm, "ok", ""},
		"limit has passed":     {Reserve{WALStatus: "extended", Retained: gb, Safe: safe(9 * gb), LimitAt: in(-time.Minute)}, Soon, "critical", "in 1 s at this rate"},
		"less than a tenth":    {Reserve{WALStatus: "extended", Retained: 91 * gb, Safe: safe(9 * gb)}, Tenth, "critical", "after 9 GB more WAL."},
		"no room":              {Reserve{WALStatus: "extended", Retained: gb, Safe: safe(-1)}, Unreserved, "critical", "next checkpoint"},
		"unreserved":           {Reserve{WALStatus: "unreserved", Retained: gb}, Unreserved, "critical", "next checkpoint"},
		"idle for long":        {Reserve{WALStatus: "reserved", IdleAt: in(30 * time.Minute)}, Soon, "critical", "idle_replication_slot_timeout ends in 30 min"},
		"idle since now":       {Reserve{WALStatus: "reserved", IdleAt: in(24 * time.Hour)}, Calm, "ok", ""},
		"lost":                 {Reserve{WALStatus: "lost"}, Lost, "lost", "has removed WAL that was not relayed yet."},
		"invalidated":          {Reserve{WALStatus: "lost", Invalidation: "idle_timeout", IdleAt: in(-time.Hour)}, Lost, "lost", "(idle_timeout)"},
		"without its limit":    {Reserve{WALStatus: "reserved", LimitAt: in(time.Minute)}, Calm, "ok", ""},
	} {
		got := tc.reserve.Judge(noon)
		if got.Danger != tc.danger || got.Level().String() != tc.level || !strings.Contains(got.Why, tc.says) {
			t.Errorf("%s: danger %d, %s, %q", name, got.Danger, got.Level(), got.Why)
		}
		if (got.Danger == Calm) != (got.Title == "") || (got.Danger == Calm) != (got.Advice == "") {
			t.Errorf("%s: title %q, advice %q", name, got.Title, got.Advice)
		}
	}
}

// A lost slot is for recover, unless the relay refills the gap itself: recover would wait for the same broker.
func TestAdviceOnALostSlot(t *testing.T) {
	for refills, want := range map[bool]string{false: InstructRecover, true: "Let a relay run"} {
		if got := (Reserve{WALStatus: "lost", Refills: refills}).Judge(noon).Advice; !strings.Contains(got, want) {
			t.Errorf("refills %t: %q", refills, got)
		}
	}
}

// Postgres invalidates a slot that has been inactive for idle_replication_slot_timeout.
func TestReserveOfAnIdleSlot(t *testing.T) {
	c := &State{IdleSlotTimeout: time.Hour, Slot: &Slot{InactiveSince: noon}}
	if got := c.Reserve(time.Time{}).IdleAt; !got.Equal(noon.Add(time.Hour)) {
		t.Errorf("inactive: %s", got)
	}
	c.Slot.Active = true
	if got := c.Reserve(time.Time{}).IdleAt; !got.IsZero() {
		t.Errorf("active: %s", got)
	}
}

// If the WAL that the slot may still retain shrinks, Trend predicts when none is left. There is no prediction for a
// slot that recovers or has no limit.
func TestTrend(t *testing.T) {
	shrinking := func(perSecond int64, looks int) (last, limit time.Time) {
		var trend Trend
		for i := range looks {
			last = noon.Add(time.Duration(i) * time.Second)
			limit = trend.Note(last, new(1_000_000-perSecond*int64(i)))
		}
		return last, limit
	}
	last, limit := shrinking(1000, 200)
	if got, want := limit.Sub(last), 801*time.Second; got != want {
		t.Errorf("full in %s, want %s", got, want)
	}
	r := Reserve{Safe: new(int64(801_000)), LimitAt: limit}
	if got, want := r.Judge(last.Add(9*time.Second)).TimeToLimit, 792*time.Second; got != want { // until the next look
		t.Errorf("full in %s, want %s", got, want)
	}
	for name, perSecond := range map[string]int64{"it recovers": -1000, "it stays": 0} {
		if _, limit := shrinking(perSecond, 200); !limit.IsZero() {
			t.Errorf("%s: full at %s", name, limit)
		}
	}
	var short Trend
	short.Note(noon, new(int64(1000)))
	if limit := short.Note(noon.Add(leastTrend-1), new(int64(900))); !limit.IsZero() {
		t.Errorf("too few looks: full at %s", limit)
	}
	var trend Trend
	if limit := trend.Note(noon, nil); !limit.IsZero() {
		t.Errorf("without a limit: full at %s", limit)
	}
}

// Trend uses the lower of the rates of the last minute and of the last five minutes. The safe size moves in a
// sawtooth, so it must have shrunk over both.
func TestTrendOfTwoWindows(t *testing.T) {
	for name, tc := range map[string]struct {
		safe []int64 // one value every ten seconds
		want time.Duration
	}{
		"even":                      {[]int64{900, 800, 700}, 70 * time.Second},
		"slower towards the end":    {[]int64{900, 600, 595, 590, 585, 580, 575, 400}, 2 * time.Minute},
		"faster towards the end":    {[]int64{1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 900, 800, 700}, 257 * time.Second},
		"one tooth of a steady saw": {[]int64{900, 800, 700, 600, 500, 400, 900, 800, 700, 600, 500, 400, 900, 800, 700}, 0},
		"recovered a minute ago":    {[]int64{100, 900, 899, 898, 897, 896, 895, 894, 893}, 0},
	} {
		var trend Trend
		var last, limit time.Time
		for i, safe := range tc.safe {
			last = noon.Add(time.Duration(i) * 10 * time.Second)
			limit = trend.Note(last, &safe)
		}
		var got time.Duration
		if !limit.IsZero() {
			got = limit.Sub(last).Round(time.Second)
		}
		if got != tc.want {
			t.Errorf("%s: full in %s, want %s", name, got, tc.want)
		}
	}
}
