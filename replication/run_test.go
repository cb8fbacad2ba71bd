package replication

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/outbox-cdc/outbox-cdc/test/kit/bubble"
)

func TestMessagesArriveInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t).open(0).run()
		var all []byte
		for _, m := range [][]byte{
			walData(0x10, "B"), walData(0x11, "I1"), keepalive(0x12, false), walData(0x13, "I2"),
			encode(&pgproto3.ParameterStatus{Name: "TimeZone", Value: "UTC"}), commit(0x14, 0x18), keepalive(0x20, true),
		} {
			all = append(all, m...)
		}
		go s.server.send(all)
		want := []string{
			"0/10 B", "0/11 I1", "keepalive 0/12 false", "0/13 I2",
			"0/14 C\x00\x00\x00\x00\x00\x00\x00\x00\x14\x00\x00\x00\x00\x00\x00\x00\x18" + strings.Repeat("\x00", 8), "keepalive 0/20 true",
		}
		if diff := cmp.Diff(want, s.receive()); diff != "" {
			t.Errorf("batch (-want +got):\n%s", diff)
		}
	})
}

// When a read ends at its deadline, which happens at every status update, the received part of a message must not
// be lost.
func TestMessageInPieces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t).open(0).run()
		began := time.Now()
		message := walData(0x10, "Ihello")
		go func() {
			for _, b := range message {
				bubble.Sleep(1500 * time.Millisecond)
				s.server.send([]byte{b})
			}
		}()
		if diff := cmp.Diff([]string{"0/10 Ihello"}, s.receive()); diff != "" {
			t.Errorf("batch (-want +got):\n%s", diff)
		}
		if got, want := bubble.Since(began), time.Duration(len(message))*1500*time.Millisecond; got != want {
			t.Errorf("after %s, want %s", got, want)
		}
		for i, r := range s.server.reports() {
			if want := updateAt(i); r.at != want {
				t.Fatalf("status update %d after %s, want %s", i, r.at, want)
			}
		}
	})
}

func TestBatchesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t).open(0).run()
		const n = 3 * batchMessages
		var small []byte
		for i := range n {
			small = append(small, walData(0, fmt.Sprintf("I%d", i))...)
		}
		row := walData(0, "I"+strings.Repeat("x", 10_000))
		go func() {
			s.server.send(small)
			for range 100 {
				s.server.send(row)
			}
		}()
		got := 0
		for got < n+100 {
			b := <-s.out
			if len(b.Messages) > batchMessages {
				t.Errorf("batch of %d messages", len(b.Messages))
			}
			for _, m := range b.Messages {
				data := string(m.(*WALData).Data)
				if want := fmt.Sprintf("I%d", got); got < n && data != want {
					t.Fatalf("message %d is %q, want %q", got, data, want)
				}
				if got >= n && len(data) != 10_001 {
					t.Fatalf("message %d has %d bytes", got, len(data))
				}
				got++
			}
			b.Release()
		}
	})
}

func TestLargeMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t).open(0).run()
		go func() {
			s.server.send(append(walData(1, "I1"), walData(2, strings.Repeat("x", 3*arenaSize))...))
			s.server.send(append(walData(3, strings.Repeat("y", 2*arenaSize)), walData(4, "I4")...))
		}()
		first := <-s.out
		large := <-s.out
		if n := len(large.Messages); n != 1 {
			t.Fatalf("%d messages with the large one", n)
		}
		data := large.Messages[0].(*WALData).Data
		synctest.Wait()
		select {
		case <-s.out:
			t.Fatal("a second large message is in memory")
		default:
		}
		if strings.Trim(string(data), "x") != "" || len(data) != 3*arenaSize {
			t.Errorf("large message of %d bytes is damaged", len(data))
		}
		first.Release()
		large.Release()
		second := <-s.out
		if data := second.Messages[0].(*WALData).Data; strings.Trim(string(data), "y") != "" || len(data) != 2*arenaSize {
			t.Errorf("second large message of %d bytes is damaged", len(data))
		}
		second.Release()
		if diff := cmp.Diff([]string{"0/4 I4"}, s.receive()); diff != "" {
			t.Errorf("after it (-want +got):\n%s", diff)
		}
	})
}

func TestMessageBeyondTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t)
		s.cfg.MaxMessageBytes = 1000
		s.open(0).run()
		// The server sends only the beginning of the second message.
		go s.server.send(append(walData(1, strings.Repeat("x", 1000)), walData(2, strings.Repeat("x", 1001))[:headerSize+walHeaderSize+100]...))
		if n := len(s.receive()); n != 1 {
			t.Errorf("%d messages before it", n)
		}
		last := s.receive()
		if len(last) != 1 || !strings.Contains(last[0], "at 0/2 has 1001 bytes") || !strings.Contains(last[0], "1000 bytes") {
			t.Errorf("received: %q", last)
		}
		s.server.reports()
		bubble.Sleep(5 * time.Second) // meanwhile the rows before it are delivered
		if n := len(s.server.reports()); n < 5 {
			t.Errorf("%d status updates in 5 s", n)
		}
		stop := errors.New("stop")
		s.cancel(stop)
		if err := <-s.ended; !errors.Is(err, stop) {
			t.Errorf("Run: %v", err)
		}
	})
}

// updateAt returns the time of the i-th status update in an undisturbed session. The first intervals are short, so
// that a session of less than a second confirms something. Then there is one update per second.
func updateAt(i int) time.Duration {
	early := []time.Duration{0, 200 * time.Millisecond, 600 * time.Millisecond}
	if i < len(early) {
		return early[i]
	}
	return 1400*time.Millisecond + time.Duration(i-len(early))*time.Second
}

func TestReportsPositions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t).open(0).run()
		go s.server.send(append(commit(0x20, 0x28), keepalive(0x30, false)...))
		s.receive()
		bubble.Sleep(1500 * time.Millisecond)
		s.confirmed.Store(0x28)
		bubble.Sleep(time.Second)
		s.confirmed.Store(0x30)
		bubble.Sleep(time.Second)
		synctest.Wait()
		want := []status{
			{at: updateAt(0)},
			{at: updateAt(1)},
			{at: updateAt(2)},
			{at: updateAt(3)},
			{at: updateAt(4), lsn: 0x28},
			{at: updateAt(5), lsn: 0x30},
		}
		if diff := cmp.Diff(want, s.server.reports(), cmp.AllowUnexported(status{})); diff != "" {
			t.Errorf("reported (-want +got):\n%s", diff)
		}
	})
}

func TestStatusIntervalSuitsTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t)
		s.server.settings[senderTimeout] = "600"
		s.open(0).run()
		bubble.Sleep(400 * time.Millisecond)
		synctest.Wait()
		if got := len(s.server.reports()); got != 5 { // every 100 ms
			t.Errorf("%d status updates in 400 ms, want 5", got)
		}
	})
}

// Confirming a position too early loses rows. So the stream confirms only positions that it has read, and never a
// lower position than before.
func TestReportsOnlyWhatIsRead(t *testing.T) {
	for name, tc := range map[string]struct {
		sent      []byte
		confirmed uint64
		reported  pglogrepl.LSN
		broken    bool
	}{
		"what was read":         {confirmed: 0x10, reported: 0x10},
		"beyond it":             {confirmed: 0x11, reported: 0x10},
		"back":                  {confirmed: 0x0F, reported: 0x10, broken: true},
		"commit end":            {sent: commit(0x20, 0x28), confirmed: 0x28, reported: 0x28},
		"beyond the commit end": {sent: commit(0x20, 0x28), confirmed: 0x29, reported: 0x28},
		"keepalive":             {sent: keepalive(0x30, false), confirmed: 0x30, reported: 0x30},
		"beyond the keepalive":  {sent: keepalive(0x30, false), confirmed: 0x31, reported: 0x30},
		"position of a row":     {sent: walData(0x40, "I"), confirmed: 0x40, reported: 0x10},
		"position of a commit":  {sent: walData(0x40, "C"), confirmed: 0x40, reported: 0x10}, // too short for an end LSN
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSession(t).open(0x10).run()
				for _, sent := range [][]byte{keepalive(0x10, false), tc.sent} {
					if sent != nil {
						go s.server.send(sent)
						s.receive()
					}
				}
				bubble.Sleep(time.Second)
				s.confirmed.Store(tc.confirmed)
				bubble.Sleep(time.Second)
				synctest.Wait()
				reports := s.server.reports()
				if last := reports[len(reports)-1].lsn; last != tc.reported {
					t.Errorf("reported %s, want %s", last, tc.reported)
				}
				if !tc.broken {
					return
				}
				if err := <-s.ended; err == nil || !strings.Contains(err.Error(), "broken invariant") {
					t.Errorf("Run: %v", err)
				}
			})
		})
	}
}

func TestRepliesPromptlyButNotInAStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t).open(0).run()
		defer s.drain()()
		bubble.Sleep(500 * time.Millisecond)
		for i := range 26 { // one request every 10 ms, from 510 ms to 760 ms
			bubble.Sleep(10 * time.Millisecond)
			s.server.send(keepalive(0x10+pgLSN(i), false), keepalive(0x10+pgLSN(i), true))
		}
		bubble.Sleep(1340 * time.Millisecond)
		s.cancel(nil)
		<-s.ended
		var at []time.Duration
		for _, r := range s.server.reports() {
			at = append(at, r.at)
		}
		ms := time.Millisecond
		want := []time.Duration{0, updateAt(1), 510 * ms, 610 * ms, 710 * ms, 810 * ms, 1810 * ms}
		if diff := cmp.Diff(want, at); diff != "" {
			t.Errorf("status updates (-want +got):\n%s", diff)
		}
	})
}

func TestBackPressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t)
		s.open(0).run()
		sent := make(chan int)
		go func() {
			for i := range 1000 {
				s.server.send(walData(0, fmt.Sprintf("I%d %s", i, strings.Repeat("x", 50_000))))
				select {
				case sent <- i:
				default:
				}
			}
		}()
		bubble.Sleep(5 * time.Minute)
		synctest.Wait()
		reports := s.server.reports()
		for i, r := range reports {
			if want := updateAt(i); r.at != want || r.asked {
				t.Fatalf("status update %d: %v, want at %s without a request for a reply", i, r, want)
			}
		}
		if len(reports) != 302 {
			t.Errorf("%d status updates in 5 minutes", len(reports))
		}
		for got := 0; got < 1000; {
			for _, m := range s.receive() {
				if !strings.HasPrefix(m, fmt.Sprintf("0/0 I%d ", got)) {
					t.Fatalf("message %d is %.20q", got, m)
				}
				got++
			}
		}
	})
}

// When the stream has ended, Run waits only briefly for somebody to receive its last batch.
func TestEndDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t).open(0).run()
		began := time.Now()
		s.server.send(slices.Concat(walData(1, "I"), encode(&pgproto3.ErrorResponse{Severity: "FATAL", Code: "57P01", Message: "no"})))
		if err := <-s.ended; !errors.Is(err, ErrUnreachable) {
			t.Errorf("Run: %v", err)
		}
		if took := bubble.Since(began); took > time.Second {
			t.Errorf("after %s", took)
		}
	})
}

func TestPoolBoundsWhatIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t)
		s.open(0).run()
		for i := range poolSize {
			s.server.send(walData(pgLSN(i), "I"))
			<-s.out // never released
		}
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			s.server.send(walData(0x10, "I"))
		}()
		bubble.Sleep(10 * time.Second)
		synctest.Wait()
		select {
		case <-sent:
			t.Error("read without a batch to read into")
		default:
		}
		if got := len(s.server.reports()); got != 12 {
			t.Errorf("%d status updates in 10 s", got)
		}
	})
}

func TestSilence(t *testing.T) {
	for timeout, tc := range map[string]struct {
		limit time.Duration
		ask   time.Duration // after this time the stream requests a reply
	}{
		"60000": {time.Minute, 10 * time.Second},
		"0":     {30 * time.Second, 5 * time.Second},
		"3000":  {10 * time.Second, 500 * time.Millisecond},
	} {
		t.Run(timeout, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSession(t)
				s.server.settings[senderTimeout] = timeout
				s.open(0).run()
				bubble.Sleep(4 * time.Second)
				go s.server.send(keepalive(0x10, false))
				s.receive()
				began := time.Now()
				err := <-s.ended
				if !errors.Is(err, ErrUnreachable) {
					t.Errorf("Run: %v", err)
				}
				// The stream checks the limit at each status update.
				if d := bubble.Since(began); d < tc.limit || d >= tc.limit+time.Second {
					t.Errorf("after %s, want %s", d, tc.limit)
				}
				for _, r := range s.server.reports() {
					silent := r.at
					if r.at > 4*time.Second {
						silent -= 4 * time.Second
					}
					if want := silent >= tc.ask; r.asked != want {
						t.Errorf("after %s: reply requested: %t", r.at, r.asked)
					}
				}
			})
		})
	}
}

func TestServerThatAnswersIsNotSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t).open(0).run()
		defer s.drain()()
		asked := 0
		for began := time.Now(); bubble.Since(began) < time.Hour; {
			if r := <-s.server.statuses; r.asked {
				asked++
				s.server.send(keepalive(0x10, false))
			}
		}
		if asked != 360 { // every ten seconds
			t.Errorf("requested %d replies in an hour", asked)
		}
		s.cancel(nil)
		<-s.ended
	})
}

func TestRunEndsWithItsContext(t *testing.T) {
	stop := errors.New("stop")
	for name, blocked := range map[string]bool{"reading": false, "blocked": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSession(t).open(0).run()
				if blocked {
					s.server.send(walData(1, "I"))
				}
				synctest.Wait()
				began := time.Now()
				s.cancel(stop)
				if err := <-s.ended; !errors.Is(err, stop) {
					t.Errorf("Run: %v", err)
				}
				if d := bubble.Since(began); d != 0 {
					t.Errorf("after %s", d)
				}
				if err := s.stream.Close(t.Context(), 0); err != nil {
					t.Errorf("Close: %v", err)
				}
			})
		})
	}
}

func TestEndOfStream(t *testing.T) {
	refusal := func(severity, code, message, where string) []byte {
		return encode(&pgproto3.ErrorResponse{Severity: severity, Code: code, Message: message, Where: where})
	}
	for name, tc := range map[string]struct {
		sent []byte // nil: the server closes the connection
		want error
		text string
	}{
		"closed":                {want: ErrUnreachable},
		"terminated":            {sent: refusal("FATAL", "57P01", "terminating connection due to administrator command", ""), want: ErrUnreachable},
		"crash":                 {sent: refusal("FATAL", "57P02", "", ""), want: ErrUnreachable},
		"canceled":              {sent: refusal("ERROR", "57014", "", ""), want: ErrUnreachable},
		"connection":            {sent: refusal("FATAL", "08006", "", ""), want: ErrUnreachable},
		"database dropped":      {sent: refusal("FATAL", "57P04", "", ""), want: ErrAccess},
		"out of memory":         {sent: refusal("ERROR", "53200", "", ""), want: ErrBusy},
		"publication":           {sent: refusal("ERROR", "42704", `publication "pub" does not exist`, "slot \"slot\"\nassociated LSN 0/15608A8"), want: ErrPublication, text: "associated LSN 0/15608A8"},
		"column lists":          {sent: refusal("ERROR", "0A000", "", ""), want: ErrPublication},
		"no transaction":        {sent: refusal("ERROR", "XX000", "invalid memory alloc request size 1258291203", ""), text: "1258291203"},
		"no transaction either": {sent: refusal("ERROR", "54000", "", ""), text: "54000"},
		"damaged WAL": {
			sent: refusal("ERROR", "XX000", "could not find record while sending logically-decoded data: invalid magic number 0000 in log segment 000000010000000000000002, offset 0", ""),
			text: "invalid magic number",
		},
		"WAL removed":            {sent: refusal("ERROR", "58P01", "requested WAL segment 000000010000000000000002 has already been removed", ""), want: ErrWALRemoved},
		"server may not read":    {sent: refusal("ERROR", "42501", `could not open file "pg_replslot/slot/xid-750-lsn-0-2000000.spill": Permission denied`, ""), text: "one of its own files"},
		"role may not":           {sent: refusal("ERROR", "42501", "permission denied for function filter", ""), want: ErrAccess},
		"copy done":              {sent: encode(&pgproto3.CopyDone{}), want: ErrServerStopping},
		"command complete":       {sent: encode(&pgproto3.CommandComplete{CommandTag: []byte("COPY 0")}), want: ErrServerStopping},
		"skipped publication":    {sent: encode(&pgproto3.NoticeResponse{Severity: "WARNING", Code: "55000", Message: `skipped loading publication "pub"`}), want: ErrPublication},
		"unknown message":        {sent: encode(&pgproto3.EmptyQueryResponse{}), text: `'I'`},
		"unknown copy data":      {sent: copyData([]byte("q")), text: `'q'`},
		"short wal data":         {sent: copyData(make([]byte, 24)), text: "24 bytes"},
		"short keepalive":        {sent: copyData([]byte("k1234")), text: `'k'`},
		"empty copy data":        {sent: copyData(nil), text: "empty"},
		"impossible length":      {sent: []byte{'d', 0, 0, 0, 3}, text: "length"},
		"negative length":        {sent: []byte{'d', 0xFF, 0xFF, 0xFF, 0xFF}, text: "length"},
		"unknown internal error": {sent: refusal("ERROR", "58P01", "gone", ""), text: "58P01"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSession(t).open(0).run()
				go func() {
					// The stream still returns the messages before the end.
					s.server.send(append(walData(1, "I"), tc.sent...))
					if tc.sent == nil {
						s.server.Net.Close()
					}
				}()
				if n := len(s.receive()); n != 1 {
					t.Errorf("%d messages before the end", n)
				}
				err := <-s.ended
				if err == nil || tc.want != nil && !errors.Is(err, tc.want) || !strings.Contains(err.Error(), tc.text) {
					t.Errorf("Run: %v, want %v and %q", err, tc.want, tc.text)
				}
				for _, id := range identities {
					if errors.Is(err, id) && !errors.Is(tc.want, id) {
						t.Errorf("Run: %v, which is also %q", err, id)
					}
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_ = s.stream.Close(ctx, 0)
			})
		})
	}
}

var identities = []error{
	ErrUnreachable, ErrAccess, ErrSlotMissing, ErrSlotInUse, ErrBusy,
	ErrPublication, ErrRow, ErrServerStopping, ErrConfig, ErrSlotLost, ErrWALRemoved,
}

func TestOtherNoticesAreNoEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t).open(0).run()
		go s.server.send(append(encode(&pgproto3.NoticeResponse{Severity: "WARNING", Code: "01000", Message: "secret"}), walData(1, "I")...))
		if diff := cmp.Diff([]string{"0/1 I"}, s.receive()); diff != "" {
			t.Errorf("batch (-want +got):\n%s", diff)
		}
	})
}

// A primary that waits for a standby repeats a warning with the SQLSTATE of a missing publication. The stream does
// not end, and logs the warning once a minute.
func TestStandbyIsAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t)
		var log strings.Builder
		s.open(0)
		s.stream.log = slog.New(slog.NewTextHandler(&log, nil))
		s.run()
		for range 150 {
			s.server.send(encode(&pgproto3.NoticeResponse{
				Severity: "WARNING", Code: notInPrerequisiteState, Routine: standbyRoutine,
				Message: `replication slot "standby1" specified in parameter "synchronized_standby_slots" does not have active_pid`,
			}))
			bubble.Sleep(time.Second)
		}
		go s.server.send(walData(1, "I"))
		if diff := cmp.Diff([]string{"0/1 I"}, s.receive()); diff != "" {
			t.Errorf("batch (-want +got):\n%s", diff)
		}
		if n := strings.Count(log.String(), "Postgres waits for a standby"); n != 3 || !strings.Contains(log.String(), "standby1") {
			t.Errorf("logged %d times:\n%s", n, log.String())
		}
	})
}

func TestReleaseTwice(t *testing.T) {
	(&Batch{}).Release() // not created by a Stream
	p := newPool()
	b := <-p.free
	b.Release()
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	b.Release()
}

// After a batch is released, it does not keep its large message in memory.
func TestLargeMessagesAreGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t).open(0).run()
		for n := range poolSize {
			go s.server.send(walData(pglogrepl.LSN(n+1), strings.Repeat("x", 2*arenaSize)))
			b := <-s.out
			held := weak.Make(&b.Messages[0].(*WALData).Data[0])
			b.Release()
			synctest.Wait()
			runtime.GC()
			if held.Value() != nil {
				t.Errorf("large message %d is still in memory", n+1)
			}
		}
	})
}
