package e2e

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2/stream"

	"github.com/outbox-cdc/outbox-cdc/test/kit/faultproxy"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
	"github.com/outbox-cdc/outbox-cdc/test/kit/walsender"
)

// Connections are cut at any byte, again and again under load, in the middle of rows, of
// answers and of what the relay says itself. Half a message does no harm, and what the relay
// has not read to its end comes again once: nothing is repeated.
func TestCutAnywhere(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it cuts connections at random places")
	seed := rig.EnvInt(t, "OUTBOX_TEST_SEED", int(time.Now().UnixNano()))
	t.Logf("OUTBOX_TEST_SEED=%d", seed)
	rng := rand.New(rand.NewPCG(uint64(seed), 0))
	r := rig.New(t)
	link := r.Through(t, "", `{"type": "reset_peer", "toxicity": 0}`) // only sets SO_LINGER: a cut is a reset
	process := r.Run(t)
	rig.UnderLoad(t, r, func() {
		cuts := 12
		if need.Full() {
			cuts = 40
		}
		for range rig.EnvInt(t, "OUTBOX_TEST_CUTS", cuts) {
			if rng.IntN(4) > 0 {
				rig.Cut(link, stream.Downstream, rng.Int64N(30_000))
			} else {
				rig.Cut(link, stream.Upstream, rng.Int64N(3000))
			}
		}
		r.Progress(t)
	})
	r.Arrived(t)
	process.Terminate(t)
	r.Settle(t, 0)
	t.Logf("%d sessions", process.Times("msg=streaming"))
}

// A transaction that takes longer than any session is delivered, if each session gets further than the
// previous one. A session reads the transaction from its beginning and skips what was sent, so there
// are no duplicates.
func TestSessionsShorterThanATransaction(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it waits for many sessions")
	const (
		rows    = 20_000
		further = 1 << 20 // how many bytes more than the previous one a session reads
	)
	r, _ := rig.NewOwn(t) // other tests that create a slot would wait for the transaction
	link := r.Through(t, "")
	process := r.Run(t)
	cut := link.CutAfter(stream.Downstream, further)
	r.Load.Giant(t.Context(), t, rows)
	cuts := 0
	wait.For(t, "the transaction to arrive", func() bool {
		select {
		case <-cut:
			cuts++
			cut = link.CutAfter(stream.Downstream, int64(cuts+1)*further)
		default:
		}
		return r.Collector.Count() >= rows
	})
	if cuts < 3 {
		t.Errorf("it took %d sessions", cuts+1)
	}
	process.Terminate(t)
	r.Settle(t, 0)
	t.Logf("%d connections lost", cuts)
}

// A connection that dies without a word is noticed by its silence; and when a network that
// swallowed new ones too, or a server that took them and then said nothing, is right again,
// the relay is back as soon as it has given up its last attempt.
func TestSilentSource(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it waits until connections count as dead")
	const (
		silence = 10 * time.Second // the least that counts as silence
		attempt = 5 * time.Second  // to connect, or to begin a session
	)
	srv := pgtest.Start(t, pgserver.Config{}) // a slot is not made while the transaction of another test is open
	attempts := func(t *testing.T, link *faultproxy.Proxy, process *rig.Process) {
		t.Helper()
		process.Logged(t, "waiting for the source")
		before := link.Accepted()
		wait.For(t, "attempts to connect", func() bool { return link.Accepted() >= before+2 })
	}
	for name, tc := range map[string]struct {
		fault  func(t *testing.T, link *faultproxy.Proxy, process *rig.Process, server string) // returns when all is right again
		within time.Duration
	}{
		"one connection dies": {func(_ *testing.T, link *faultproxy.Proxy, _ *rig.Process, _ string) { link.Partition(); link.Heal() }, silence + rig.Slack},
		"the network swallows everything": {func(t *testing.T, link *faultproxy.Proxy, process *rig.Process, _ string) {
			t.Helper()
			link.Partition()
			attempts(t, link, process)
			link.Heal()
		}, attempt + rig.Slack},
		"the server says nothing": {func(t *testing.T, link *faultproxy.Proxy, process *rig.Process, server string) {
			t.Helper()
			link.Redirect(mute(t))
			attempts(t, link, process)
			link.Redirect(server)
		}, attempt + rig.Slack},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rig.NewOn(t, rig.DatabaseOn(t, srv), kafkatest.Broker(t))
			link := r.Through(t, fmt.Sprint("startup_timeout: ", attempt))
			process := r.Run(t)
			var took time.Duration
			rig.UnderLoad(t, r, func() {
				r.Progress(t)
				tc.fault(t, link, process, r.DB.Server.Addr())
				took = r.Recover(t)
			})
			if took > tc.within {
				t.Errorf("it took %v, it may take %v", took, tc.within)
			}
			r.Arrived(t)
			process.Terminate(t)
			r.Settle(t, 0)
			if name == "the network swallows everything" { // otherwise the catalog shows who has the slot
				process.Logged(t, "the server sent nothing for 4") // half of source.lease
			}
		})
	}
}

// A firewall forgets a connection and resets it on the relay's side only, so that the server still holds
// the slot for it. The relay terminates that WAL sender and streams again, before the server notices.
func TestHalfOpenConnection(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "TestSlotInUse runs always")
	r := rig.New(t)
	firewall := newForgetful(t, r.DB.Server.Addr())
	dsn := strings.Replace(r.DB.DSN, r.DB.Server.Addr(), firewall.addr, 1)
	r.Config = rig.WriteConfig(t, dsn, r.Kafka.Addrs[0], r.Slot, r.Topic, "")
	process := r.Run(t, "--set", "source.wait_for_slot=false", "--set", "source.lease=1h") // the server does not notice by itself
	rig.UnderLoad(t, r, func() {
		r.Progress(t)
		firewall.forget()
		r.Progress(t)
	})
	r.Arrived(t)
	process.Logged(t, "the WAL sender of the lost connection still held the slot")
	process.Terminate(t)
	r.Settle(t, 0)
}

// A forgetful firewall forwards connections.
type forgetful struct {
	addr string

	mu      sync.Mutex
	clients []net.Conn
}

func newForgetful(t *testing.T, server string) *forgetful {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	rig.Must(t, err)
	f := &forgetful{addr: l.Addr().String()}
	ctx, end := context.WithCancel(context.Background())
	t.Cleanup(func() { end(); l.Close() })
	go func() { // ends with l
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			conn, err := new(net.Dialer).DialContext(ctx, "tcp", server)
			if err != nil {
				client.Close()
				continue
			}
			context.AfterFunc(ctx, func() { conn.Close(); client.Close() })
			f.mu.Lock()
			f.clients = append(f.clients, client)
			f.mu.Unlock()
			go io.Copy(conn, client)
			go func() {
				io.Copy(client, conn)
				client.Close()
			}()
		}
	}()
	return f
}

// forget closes all connections on the clients' side.
func (f *forgetful) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.clients {
		c.Close()
	}
	f.clients = nil
}

// mute starts a server that takes every session and answers nothing in it.
func mute(t *testing.T) (addr string) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	rig.Must(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				if walsender.New(conn).Accept() == nil {
					io.Copy(io.Discard, conn)
				}
			}()
		}
	}()
	return l.Addr().String()
}

// Over a thin and unsteady link the relay goes at the link's pace: the session is not lost,
// nothing piles up in its memory.
func TestSlowLink(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "a slow link")
	const timeout = 4 * time.Second // half of it without data, on a busy machine, would end the session
	srv := pgtest.Start(t, pgserver.Config{Settings: map[string]string{"wal_sender_timeout": fmt.Sprint(timeout.Milliseconds())}})
	r := rig.NewOn(t, rig.DatabaseOn(t, srv), kafkatest.Broker(t))
	r.Through(t, "",
		`{"type": "bandwidth", "stream": "upstream", "attributes": {"rate": 1000}}`, // kB/s
		`{"type": "bandwidth", "stream": "downstream", "attributes": {"rate": 1000}}`,
		`{"type": "latency", "stream": "upstream", "attributes": {"latency": 12, "jitter": 8}}`, // ms
		`{"type": "latency", "stream": "downstream", "attributes": {"latency": 12, "jitter": 8}}`)
	process := r.Run(t)
	began := time.Now()
	r.Load.Run(t.Context(), t, rig.EnvInt(t, "OUTBOX_TEST_SLOW_ROWS", 15_000))
	r.Arrived(t)
	took := time.Since(began) //nolint:forbidigo // at night only
	t.Logf("%d events in %v", r.Load.Total(), took.Round(time.Millisecond))
	if took < timeout {
		t.Error("the link was not slow")
	}
	process.Flat(t)
	process.Terminate(t)
	r.Settle(t, 0)
	if n := process.Times("msg=streaming"); n != 1 {
		t.Errorf("%d sessions, want one:\n%s", n, process.Stderr)
	}
}

// All of the relay's connections are ended by the administrator again and again, each time a
// moment after it is back: nothing is lost, nothing repeated.
func TestTerminateBackends(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "it terminates many sessions")
	r := rig.New(t)
	process := r.Run(t)
	sessions := rig.EnvInt(t, "OUTBOX_TEST_TERMINATIONS", 10)
	ended := 0
	rig.UnderLoad(t, r, func() {
		conn := r.Connect(t)
		for i := range sessions {
			process.LoggedTimes(t, "msg=streaming", i+1)
			<-time.After(200 * time.Millisecond)
			ended += rig.Ask[int](t, conn, `SELECT count(CASE WHEN pg_terminate_backend(pid) THEN 1 END)
				FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'outbox-cdc%'`)
		}
		r.Progress(t)
	})
	r.Arrived(t)
	process.Terminate(t)
	r.Settle(t, 0)
	t.Logf("%d connections ended, %d sessions", ended, process.Times("msg=streaming"))
}

// The walsender is killed by the kernel: the whole server crashes and recovers, the relay
// outlives it and repeats nothing.
func TestWalsenderKilled(t *testing.T) {
	t.Parallel()
	need.FullRun(t, "the whole server crashes and recovers; the server of package twin crashes in any run")
	srv := pgtest.Start(t, pgserver.Config{})
	r := rig.NewOn(t, rig.DatabaseOn(t, srv), kafkatest.Broker(t))
	process := r.Run(t)
	rig.UnderLoad(t, r, func() {
		for range rig.Cycles(t) {
			r.Progress(t)
			conn := r.Connect(t)
			rig.Must(t, syscall.Kill(rig.Ask[int](t, conn, `SELECT active_pid FROM pg_replication_slots WHERE slot_name = $1`, r.Slot), syscall.SIGKILL))
			wait.For(t, "the server to crash", func() bool { return conn.Ping(context.Background()) != nil })
			r.Recover(t)
		}
	})
	r.Arrived(t)
	process.Terminate(t)
	r.Settle(t, 0)
}
