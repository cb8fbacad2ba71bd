package replication

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgproto3"
)

func pgLSN(n int) pglogrepl.LSN { return pglogrepl.LSN(n) }

// stop makes the server want to shut down: it asks again whenever it has got a reply, until
// everything up to walEnd is confirmed, and then ends the stream.
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

func TestServerStops(t *testing.T) {
	ms := time.Millisecond
	for name, tc := range map[string]struct {
		confirmAfter time.Duration // 0: never
		want         time.Duration
	}{
		"nothing is confirmed": {want: 100*ms + 5*time.Second},
		"confirmed at once":    {confirmAfter: 1 * ms, want: 100 * ms},
		"confirmed in time":    {confirmAfter: 3050 * ms, want: 3100 * ms},
		"confirmed too late":   {confirmAfter: time.Minute, want: 100*ms + 5*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSession(t).open(0).run()
				defer s.drain()()
				time.Sleep(10500 * ms)
				s.server.reports()
				began := time.Now()
				go s.server.stop(0x40)
				if tc.confirmAfter > 0 {
					time.AfterFunc(tc.confirmAfter, func() { s.confirmed.Store(0x40) })
				}
				err := <-s.ended
				if !errors.Is(err, ErrServerStopping) {
					t.Errorf("Run: %v", err)
				}
				if d := time.Since(began); d != tc.want {
					t.Errorf("after %s, want %s", d, tc.want)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_ = s.stream.Close(ctx, pglogrepl.LSN(s.confirmed.Load()))
			})
		})
	}
}

// A server that only checks whether we live asks after half of its timeout.
func TestServerThatAsksNowAndThenDoesNotStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(t)
		s.cfg.StatusInterval = 20 * time.Second
		s.open(0).run()
		defer s.drain()()
		for range 50 {
			time.Sleep(30 * time.Second)
			s.server.send(keepalive(0x10, true))
		}
		s.cancel(nil)
		if err := <-s.ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
	})
}

func TestStopping(t *testing.T) {
	ask := func(lsn pglogrepl.LSN) Keepalive { return Keepalive{WALEnd: lsn, replyRequested: true} }
	s := stopping{prompt: 15 * time.Second}
	const moment, long = 100 * time.Millisecond, 30 * time.Second
	now := time.Unix(1000, 0)
	for i, step := range []struct {
		keepalive  Keepalive     // zero: data
		request    time.Duration // since the last one
		reply      time.Duration // since our last status update
		recognised bool
	}{
		{keepalive: ask(1), request: moment, reply: moment},
		{keepalive: ask(1), request: moment, reply: moment},
		{keepalive: ask(2), request: moment, reply: moment}, // it still sends
		{keepalive: ask(2), request: moment, reply: moment},
		{}, // and still
		{keepalive: ask(2), request: moment, reply: moment},
		{keepalive: ask(2), request: moment, reply: moment},
		{keepalive: ask(2), request: moment, reply: long}, // it had not heard from us
		{keepalive: ask(2), request: moment, reply: moment},
		{keepalive: ask(2), request: moment, reply: moment},
		{keepalive: ask(2), request: long, reply: moment},
		{keepalive: Keepalive{WALEnd: 2}}, // says nothing
		{keepalive: ask(2), request: moment, reply: moment},
		{keepalive: ask(2), request: moment, reply: moment, recognised: true},
	} {
		if step.keepalive == (Keepalive{}) {
			s.data()
			continue
		}
		now = now.Add(step.request)
		if got := s.keepalive(step.keepalive, now, now.Add(-step.reply)); got != step.recognised {
			t.Errorf("step %d: %t", i, got)
		}
	}
}

// secondDial returns a dial function that works once and fails with err after that.
func secondDial(dial func(context.Context, string, string) (net.Conn, error), err error) func(context.Context, string, string) (net.Conn, error) {
	used := false
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		if used {
			return nil, err
		}
		used = true
		return dial(ctx, network, addr)
	}
}

// While nothing is read the server's wish does not arrive, so it is asked.
func TestServerStopsWhileNothingIsRead(t *testing.T) {
	for name, tc := range map[string]struct {
		code string // what another connection gets; empty: it is accepted
		want error
	}{
		"stopping": {code: "57P03", want: ErrServerStopping},
		"full":     {code: "53300", want: context.Canceled},
		"running":  {want: context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSession(t)
				first, probes := s.cfg.Conn.DialFunc, 0
				s.cfg.Conn.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
					if s.server.Startup == nil {
						return first(ctx, network, addr)
					}
					probes++
					client, remote := net.Pipe()
					go newServer(t, remote).answerProbe(tc.code)
					return client, nil
				}
				s.open(0).run()
				s.server.send(walData(1, "I")) // and nobody takes it
				time.AfterFunc(30*time.Second, func() { s.cancel(nil) })
				began := time.Now()
				err := <-s.ended
				if !errors.Is(err, tc.want) {
					t.Errorf("Run: %v, want %v", err, tc.want)
				}
				if d := time.Since(began); errors.Is(err, ErrServerStopping) && d != probeInterval+5*time.Second {
					t.Errorf("after %s", d)
				}
				if probes == 0 {
					t.Error("not asked")
				}
			})
		})
	}
}

// answerProbe plays a server that is asked for a session.
func (s *server) answerProbe(code string) {
	defer s.Net.Close()
	startup, err := s.ReceiveStartupMessage()
	if err != nil {
		return
	}
	if params := startup.(*pgproto3.StartupMessage).Parameters; params["replication"] != "" {
		s.tb.Errorf("the probe takes a walsender: %v", params)
	}
	if code != "" {
		s.send(encode(&pgproto3.ErrorResponse{Severity: "FATAL", Code: code, Message: "no"}))
		return
	}
	s.Send(&pgproto3.AuthenticationOk{})
	s.SendReady()
	_, _ = s.Receive() // Terminate
}
