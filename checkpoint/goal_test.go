package checkpoint

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
)

// A goalSource sends transactions of random size, again and again from the first unconfirmed one.
type goalSource struct {
	*testing.T

	rng     *rand.Rand
	tracker *Tracker
	rows    []int // of each transaction
	commits int   // transactions read by the current session
	read    int   // rows read of the next transaction
	unacked []Seq
}

func (s *goalSource) commitLSN() pglogrepl.LSN { return pglogrepl.LSN(100 * (s.commits + 1)) }

// step reads one message.
func (s *goalSource) step() {
	s.Helper()
	if s.commits == len(s.rows) {
		s.rows = append(s.rows, s.rng.IntN(700)) // some have several marks
	}
	switch {
	case s.read == 0 && !s.tracker.isOpen:
		if err := s.tracker.Begin(s.commitLSN(), time.Time{}); err != nil {
			s.Fatal(err)
		}
	case s.read < s.rows[s.commits]:
		seq, err := s.tracker.Next(fmt.Append(nil, s.commits, "/", s.read))
		if err != nil {
			s.Fatal(err)
		}
		s.read++
		if seq != 0 {
			s.unacked = append(s.unacked, seq)
		}
	default:
		if err := s.tracker.Commit(s.commitLSN() + 50); err != nil {
			s.Fatal(err)
		}
		s.commits, s.read = s.commits+1, 0
		if s.rng.IntN(2) == 0 {
			s.tracker.Keepalive(s.commitLSN() - 20)
		}
	}
}

// restart reads again from the first unconfirmed transaction on, in another session or in another process.
func (s *goalSource) restart(confirmed pglogrepl.LSN) {
	s.commits, s.read = 0, 0
	for s.commitLSN() < confirmed {
		s.commits++
	}
}

// TestGoalIsReached: when every record is acknowledged, Confirmed and Prefix return what Goal has returned. Goal names
// every record, so that another process that continues there reads none of them as new.
func TestGoalIsReached(t *testing.T) {
	for seed := range uint64(50) {
		s := &goalSource{T: t, rng: rand.New(rand.NewPCG(seed, 1)), tracker: New(0, nil)}
		sent := 0
		for range 30 {
			for range s.rng.IntN(900) {
				s.step()
			}
			confirmed, open := s.tracker.Goal()
			sent += len(s.unacked)
			if err := s.tracker.Ack(s.unacked...); err != nil {
				t.Fatal(err)
			}
			s.unacked = nil
			if c, p := s.tracker.Confirmed(), s.tracker.Prefix(); c != confirmed || p != open {
				t.Fatalf("seed %d: the goal was %s and %+v, reached are %s and %+v", seed, confirmed, open, c, p)
			}
			rows := int(open.Rows)
			for i, n := range s.rows {
				if pglogrepl.LSN(100*(i+1)) < confirmed {
					rows += n
				}
			}
			if rows != sent {
				t.Fatalf("seed %d: the position covers %d rows, %d were sent", seed, rows, sent)
			}
			switch s.rng.IntN(3) {
			case 0: // another session
				s.tracker.Reread()
				s.restart(confirmed)
			case 1: // another process
				s.tracker = New(confirmed, nil)
				s.tracker.Resume(open)
				s.restart(confirmed)
			}
		}
	}
}

// TestGoalWhileRowsAreReadAgain: a session that has not reached the newest record yet must not use its own checksum.
func TestGoalWhileRowsAreReadAgain(t *testing.T) {
	s := &goalSource{T: t, rng: rand.New(rand.NewPCG(1, 1)), tracker: New(0, nil), rows: []int{10}}
	for range 6 {
		s.step()
	}
	_, want := s.tracker.Goal()
	s.tracker.Reread()
	s.restart(0)
	for range 3 {
		s.step()
	}
	if _, got := s.tracker.Goal(); got != want || got.Rows != 5 {
		t.Errorf("Goal is %+v, want %+v with 5 rows", got, want)
	}
}
