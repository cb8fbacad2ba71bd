package soak

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
)

// A Sampler observes a slot and its relays at regular intervals.
type Sampler struct {
	DSN      string // without a proxy
	Slot     string
	PIDs     func() []int // of the relays
	Interval time.Duration
	Each     func(Sample)
}

// A Sample is one observation of a Sampler. If the server or the process does not
// run, its values are zero.
type Sample struct {
	At        time.Time
	Confirmed pglogrepl.LSN // confirmed_flush_lsn
	Active    bool          // a relay holds the slot
	Retained  int64         // bytes of retained WAL, since restart_lsn
	Resident  int64         // bytes of memory of the largest process
}

// Run samples until ctx is done. It calls Each from the caller's goroutine.
func (s *Sampler) Run(ctx context.Context) {
	var conn *pgx.Conn
	defer func() {
		if conn != nil {
			_ = conn.Close(context.WithoutCancel(ctx))
		}
	}()
	tick := time.NewTicker(s.Interval)
	defer tick.Stop()
	for {
		sample := Sample{At: time.Now()}
		for _, pid := range s.PIDs() {
			sample.Resident = max(sample.Resident, resident(pid))
		}
		if conn == nil || conn.IsClosed() {
			conn, _ = pgx.Connect(ctx, s.DSN) // after an error, retry at the next tick
		}
		if conn != nil {
			s.slot(ctx, conn, &sample)
		}
		s.Each(sample)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (s *Sampler) slot(ctx context.Context, conn *pgx.Conn, sample *Sample) {
	var confirmed string
	err := conn.QueryRow(ctx, `
		SELECT coalesce(confirmed_flush_lsn, '0/0')::text, coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn), 0)::bigint, active
		FROM pg_replication_slots WHERE slot_name = $1`, s.Slot).Scan(&confirmed, &sample.Retained, &sample.Active)
	if err != nil {
		_ = conn.Close(ctx)
		return
	}
	sample.Confirmed, _ = pglogrepl.ParseLSN(confirmed)
}

// A holding checks that a slot is not free for longer than limit. It ignores the time when the server is
// down, because no relay can hold the slot then.
type holding struct {
	limit   time.Duration
	since   time.Time     // time of the first sample with a free slot; zero: a relay holds it
	longest time.Duration // the longest time that the slot was free
}

// sample reports whether the slot has just been free for too long.
func (h *holding) sample(now Sample) (broken bool) {
	switch {
	case now.Confirmed == 0 || now.Active:
		h.since = time.Time{}
		return false
	case h.since.IsZero():
		h.since = now.At
	}
	free := now.At.Sub(h.since)
	broken = free > h.limit && h.longest <= h.limit
	h.longest = max(h.longest, free)
	return broken
}

// resident returns the resident memory of a process, or 0 if there is no such process.
// https://man7.org/linux/man-pages/man5/proc_pid_statm.5.html
func resident(pid int) int64 {
	statm, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	fields := bytes.Fields(statm)
	if err != nil || len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(string(fields[1]), 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}
