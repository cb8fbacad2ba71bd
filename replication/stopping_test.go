package replication

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/outbox-cdc/outbox-cdc/test/kit/bubble"
)

func pgLSN(n int) pglogrepl.LSN { return pglogrepl.LSN(n) }

// stop simulates a shutdown of the server. It requests a reply again after each reply, until
// walEnd is confirmed, and then ends the stream.
func (s *server) stop(walEnd pglogrepl.LSN) {
	s.send(keepalive(walEnd, true))
	for {
		select {
		case r := <-s.statuses:
			if r.lsn == walEnd {
				s.send(encode(&pgproto3.CommandComplete{CommandTag: []byte("COPY 0")}))
				s.Net.Close()
				return
			}
			s.send(keepalive(walEnd, true))
		case <-s.copyDone:
			return
		case <-s.gone:
			return
		}
	}
}

// A client with unconfirmed positions does not delay the shutdown of the server.
func TestServerStops(t *testing.T) {
	ms := time.Millisecond
	for name, tc := range map[string]struct {
		confirmAfter time.Duration // 0: never
		says         string
	}{
		"nothing is confirmed": {says: "it waits for the confirmation of 0/40, and 0/0 is confirmed"},
		"confirmed at once":    {confirmAfter: 1 * ms, says: "after everything was confirmed"},
		"confirmed too late":   {confirmAfter: time.Second, says: "it waits for the confirmation of 0/40, and 0/0 is confirmed"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSession(t).open(0).run()
				defer s.drain()()
				bubble.Sleep(10500 * ms)
				s.server.reports()
				began := time.Now()
				go s.server.stop(0x40)
				if tc.confirmAfter > 0 {
					time.AfterFunc(tc.confirmAfter, func() { s.confirmed.Store(0x40) })
				}
				err := <-s.ended
				if !errors.Is(err, ErrServerStopping) || !strings.Contains(err.Error(), tc.says) {
					t.Errorf("Run: %v, want %q", err, tc.says)
				}
				if d := bubble.Since(began); d != minStatusGap {
					t.Errorf("after %s, want %s", d, minStatusGap)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_ = s.stream.Close(ctx, pglogrepl.LSN(s.confirmed.Load()))
			})
		})
	}
}

// If a server still sends data, or has not received a status update for long, it is not shutting down, however
// often it requests a reply.
func TestServerThatAsksOftenDoesNotStop(t *testing.T) {
	ask := keepalive(0x10, true)
	for name, tc := range map[string]struct {
		send  [][]byte // sent repeatedly
		every time.Duration
	}{
		"data between":      {[][]byte{ask, ask, walData(1, "I")}, 150 * time.Millisecond},
		"foreign messages":  {[][]byte{ask, ask, walData(1, "M\x01\x00\x00\x00\x00\x00\x00\x00\x01foreign\x00")}, 150 * time.Millisecond},
		"other keepalives":  {[][]byte{ask, ask, keepalive(0x18, false)}, 150 * time.Millisecond},
		"not heard from us": {[][]byte{ask}, 30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSession(t)
				s.cfg.StatusInterval = 20 * time.Second
				s.open(0).run()
				defer s.drain()()
				for range 50 {
					for _, message := range tc.send {
						bubble.Sleep(tc.every)
						s.server.send(message)
					}
				}
				s.cancel(nil)
				if err := <-s.ended; !errors.Is(err, context.Canceled) {
					t.Errorf("Run: %v", err)
				}
			})
		})
	}
}
