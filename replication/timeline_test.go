package replication

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgproto3"
)

// These are history files as Postgres 15 to 18 write them.
const (
	historyOf2 = "1\t0/3054320\tno recovery target specified\n"
	historyOf4 = "1\t0/3054320\tno recovery target specified\n\n2\t1/0A000000\tbefore 2026-03-01 12:00:00+00\n\n3\t1/0A000000\tat restore point \"x\"\n"
)

func TestParseHistory(t *testing.T) {
	for name, tc := range map[string]struct {
		timeline int32
		content  string
		want     History
		start    string
	}{
		"one promotion":    {2, historyOf2, History{1: 0x3054320}, "0/3054320"},
		"three promotions": {4, historyOf4, History{1: 0x3054320, 2: 0x1_0A00_0000, 3: 0x1_0A00_0000}, "1/A000000"},
		"a gap in the ids": {9, "3\t0/8\tx\n", History{3: 8}, "0/8"},
		"no reason":        {2, "1\t0/8", History{1: 8}, "0/8"},
		"comments":         {2, "# mine\n\n" + historyOf2 + "#\n", History{1: 0x3054320}, "0/3054320"},
	} {
		t.Run(name, func(t *testing.T) {
			h, err := parseHistory(tc.content, tc.timeline)
			if diff := cmp.Diff(tc.want, h); err != nil || diff != "" {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
			if got := h.start().String(); got != tc.start {
				t.Errorf("the timeline starts at %s, want %s", got, tc.start)
			}
		})
	}
}

func TestParseHistoryRejects(t *testing.T) {
	for name, tc := range map[string]struct{ content, want string }{
		"nothing":            {"", "has no ancestor"},
		"comments only":      {"# 1\t0/8\n", "has no ancestor"},
		"text":               {"no history here\n", "without timeline and position"},
		"spaces":             {"1 0/8 x\n", "without timeline and position"},
		"a leading space":    {" 1\t0/8\tx\n", "without timeline and position"},
		"lower case":         {"1\t0/ab\tx\n", "without timeline and position"},
		"no slash":           {"1\t8\tx\n", "without timeline and position"},
		"too long a half":    {"1\t0/123456789\tx\n", "without timeline and position"},
		"a negative id":      {"-1\t0/8\tx\n", "without timeline and position"},
		"a cut position":     {"1\t0/", "without timeline and position"},
		"text behind it":     {"1\t0/8x\n", "without timeline and position"},
		"a second bad line":  {historyOf2 + "x", "without timeline and position"},
		"timeline 0":         {"0\t0/8\tx\n", "comes after 0"},
		"itself":             {"4\t0/8\tx\n", "cannot be an ancestor"},
		"a later one":        {"5\t0/8\tx\n", "cannot be an ancestor"},
		"a huge one":         {"4294967295\t0/8\tx\n", "out of range"},
		"twice the same":     {"1\t0/8\tx\n1\t0/10\tx\n", "timeline 1 comes after 1"},
		"newest first":       {"2\t0/10\tx\n1\t0/8\tx\n", "timeline 1 comes after 2"},
		"positions fall":     {"1\t0/10\tx\n2\t0/8\tx\n", "left at 0/8"},
		"no position at all": {"1\t0/0\tx\n", "left at 0/0"},
	} {
		t.Run(name, func(t *testing.T) {
			if h, err := parseHistory(tc.content, 4); h != nil || err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, %v, want an error with %q", h, err, tc.want)
			}
		})
	}
}

// In a history that parseHistory accepts, every ancestor is older than the timeline, and forks increase.
func FuzzParseHistory(f *testing.F) {
	f.Add(historyOf2, int32(2))
	f.Add(historyOf4, int32(4))
	f.Add("1\t0/10\tx\n2\t0/8\tx\n", int32(3))
	f.Fuzz(func(t *testing.T, content string, timeline int32) {
		h, err := parseHistory(content, timeline)
		if (err == nil) != (len(h) > 0) {
			t.Fatalf("%v, %v", h, err)
		}
		for ancestor, fork := range h {
			if ancestor < 1 || ancestor >= timeline || fork == 0 || fork > h.start() {
				t.Errorf("timeline %d left at %s", ancestor, fork)
			}
			for later, at := range h {
				if later > ancestor && at < fork {
					t.Errorf("timeline %d left at %s, %d at %s", ancestor, fork, later, at)
				}
			}
		}
	})
}

// Open does not request the history of timeline 1, which has none.
func TestOpenReadsTheHistory(t *testing.T) {
	missing := &pgproto3.ErrorResponse{Severity: "ERROR", Code: undefinedFile, Message: `could not open file "pg_wal/00000003.history"`}
	for name, tc := range map[string]struct {
		change func(*server)
		want   History
		start  string
	}{
		"the first timeline": {func(s *server) { s.timeline = "1" }, nil, "0/0"},
		"the third":          {func(*server) {}, History{1: 0x20, 2: 0x1000}, "0/1000"},
		"without the file":   {func(s *server) { s.refuseHistory = missing }, nil, "0/0"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSession(t)
				tc.change(s.server)
				s.open(0).run()
				if diff := cmp.Diff(tc.want, s.stream.History()); diff != "" {
					t.Errorf("history (-want +got):\n%s", diff)
				}
				if got := s.stream.System().TimelineStart.String(); got != tc.start {
					t.Errorf("the timeline starts at %s, want %s", got, tc.start)
				}
			})
		})
	}
}

func TestOpenRefusesABadHistory(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*server)
		want   string
		is     error
	}{
		"text":        {func(s *server) { s.history = "1\t0/" }, "without timeline and position", nil},
		"no right":    {func(s *server) { s.refuseHistory = &pgproto3.ErrorResponse{Code: "42501", Message: "no"} }, "read the history of timeline 3", ErrAccess},
		"not for now": {func(s *server) { s.refuseHistory = &pgproto3.ErrorResponse{Code: "57P01", Message: "no"} }, "read the history of timeline 3", ErrUnreachable},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSession(t)
				tc.change(s.server)
				go s.server.serve()
				stream, err := Open(t.Context(), s.cfg, discard())
				if stream != nil || err == nil || !strings.Contains(err.Error(), tc.want) || tc.is != nil && !errors.Is(err, tc.is) {
					t.Errorf("Open = %v, %v", stream, err)
				}
				s.server.Net.Close()
				<-s.server.gone
			})
		})
	}
}
