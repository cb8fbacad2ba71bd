package redisstreams

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/lane"
	"github.com/outbox-cdc/outbox-cdc/sink/sinktest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/redistest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// Every row of the table is met by the text of a server.
func TestResponses(t *testing.T) {
	texts := []struct {
		text  string
		class error
	}{
		{"OOM command not allowed when used memory > 'maxmemory'.", nil},
		{"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.", nil},
		{"NOREPLICAS Not enough good replicas to write.", nil},
		{"TRYAGAIN Multiple keys request during rehashing of slot", nil},
		{"NOCONFIRM NOPERM this user has no permissions to run the 'xsetid' command", nil},
		{"WAIT", nil},
		{"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.", nil},
		{"READONLY You can't write against a read only replica.", errUnreachable},
		{"-READONLY You can't write against a read only replica.", errUnreachable},
		{"LOADING Redis is loading the dataset in memory", errUnreachable},
		{"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.", errUnreachable},
		{"CLUSTERDOWN Hash slot not served", errUnreachable},
		{"UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)", errUnreachable},
		{"ERR max number of clients reached", errUnreachable},
		{"MOVED 3999 127.0.0.1:6381", errMoved},
		{"ASK 3999 127.0.0.1:6381", errMoved},
		{"CROSSSLOT Keys in request don't hash to the same slot", errFatal},
		{"NOAUTH Authentication required.", errAccess},
		{"WRONGPASS invalid username-password pair or user is disabled.", errAccess},
		{"ERR invalid password", errAccess},
		{"ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?", errAccess},
		{"NOPERM this user has no permissions to access one of the keys used as arguments", errUnusable},
		{"NOPERM No permissions to access a key", errUnusable},
		{"NOPERM this user has no permissions to run the 'evalsha' command", errAccess},
		{"ERR The user executing the script can't access at least one of the keys mentioned in the command arguments", errUnusable},
		{"ERR The user executing the script can't run this command or subcommand", errAccess},
		{"ERR ACL failure in script: User relay has no permissions to run the 'xadd' command", errAccess},
		{"DENIED Redis is running in protected mode because protected mode is enabled and no password is set for the default user.", errAccess},
		{"NOSTREAM", errMissing},
		{"WRONGTYPE Operation against a key holding the wrong kind of value", errUnusable},
		{"ERR The stream has exhausted the last possible ID, unable to add more items", errUnusable},
		{"ERR Elements are too large to be stored in the stream", errRejected},
		{"ERR string exceeds maximum allowed size (proto-max-bulk-len)", errRejected},
		{"ERR Protocol error: invalid bulk length", errRejected},
		{"ERR unknown command 'EVALSHA', with args beginning with: 's3cret' ", errFatal},
		{"ERR This Redis command is not allowed from script", errFatal},
		{"ERR syntax error", errFatal},
		{"ERR DB index is out of range", errFatal},
		{"ERR SELECT is not allowed in cluster mode", errFatal},
		{"ERR something new, with args beginning with: 's3cret'", nil},
	}
	met := make(map[response]bool)
	for _, tc := range texts {
		row := explain(tc.text)
		met[row] = true
		err := serverError(tc.text)
		if !errors.Is(row.class, tc.class) || strings.Contains(err.Error(), "s3cret") || err.Error() == "" {
			t.Errorf("%s: class %v, want %v: %v", tc.text, row.class, tc.class, err)
		}
		if named := strings.HasSuffix(err.Error(), "a command that the relay needs: xadd"); named != strings.Contains(tc.text, "'xadd'") {
			t.Errorf("%s: %v", tc.text, err)
		}
		_, isRecord := errors.AsType[*sink.RecordError](err)
		for name, pair := range map[string][2]bool{
			"ErrConnection": {errors.Is(err, lane.ErrConnection), errors.Is(tc.class, errUnreachable)},
			"ErrAccess":     {errors.Is(err, sink.ErrAccess), errors.Is(tc.class, errAccess)},
			"ErrMissing":    {errors.Is(err, sink.ErrMissing), errors.Is(tc.class, sink.ErrMissing)},
			"ErrFatal":      {errors.Is(err, sink.ErrFatal), errors.Is(tc.class, errFatal)},
			"RecordError":   {isRecord, errors.Is(tc.class, errRejected)},
		} {
			if pair[0] != pair[1] {
				t.Errorf("%s: %s is %v", tc.text, name, pair[0])
			}
		}
	}
	for _, row := range responses() {
		if !met[row] {
			t.Errorf("no text meets the row %s %q", row.code, row.contains)
		}
	}
}

// What a server rejects for now is written when it accepts it.
func TestServerResponses(t *testing.T) {
	server := redistest.Start(t, redistest.Config{Users: map[string]string{"relay": ">s3cret ~* +@all"}})
	admin := server.Admin()
	do := func(t *testing.T, args ...any) {
		t.Helper()
		if err := admin.Do(sinktest.Context(t), args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	for name, tc := range map[string]struct {
		begin, end func(t *testing.T, stream string)
		want       string
	}{
		"another type": {
			func(t *testing.T, stream string) { do(t, "set", stream, "x") }, func(t *testing.T, stream string) { do(t, "del", stream) }, "WRONGTYPE",
		},
		"memory": {
			func(t *testing.T, _ string) { do(t, "config", "set", "maxmemory", "1") }, func(t *testing.T, _ string) { do(t, "config", "set", "maxmemory", "0") }, "OOM",
		},
		"a replica": {
			func(t *testing.T, _ string) { do(t, "replicaof", "127.0.0.1", "1") }, func(t *testing.T, _ string) { do(t, "replicaof", "no", "one") }, "READONLY",
		},
		"replicas": {
			func(t *testing.T, _ string) { do(t, "config", "set", "min-replicas-to-write", "1") },
			func(t *testing.T, _ string) { do(t, "config", "set", "min-replicas-to-write", "0") }, "NOREPLICAS",
		},
		"a key": {
			func(t *testing.T, _ string) { do(t, "acl", "setuser", "relay", "resetkeys", "~other") },
			func(t *testing.T, _ string) { do(t, "acl", "setuser", "relay", "~*") }, "NOPERM",
		},
		"a command": {
			func(t *testing.T, _ string) { do(t, "acl", "setuser", "relay", "-evalsha") },
			func(t *testing.T, _ string) { do(t, "acl", "setuser", "relay", "+evalsha") }, "NOPERM",
		},
		"a command of the script": {
			func(t *testing.T, _ string) { do(t, "acl", "setuser", "relay", "-xadd") },
			func(t *testing.T, _ string) { do(t, "acl", "setuser", "relay", "+xadd") }, "no access to Redis: ERR: the user may not run a command that the relay needs",
		},
		"the password": {
			func(t *testing.T, _ string) {
				do(t, "acl", "setuser", "relay", "resetpass", ">other")
				do(t, "client", "kill", "user", "relay")
			},
			func(t *testing.T, _ string) { do(t, "acl", "setuser", "relay", "resetpass", ">s3cret") }, "WRONGPASS",
		},
		"the highest id": {
			func(t *testing.T, stream string) {
				do(t, "xadd", stream, "18446744073709551615-18446744073709551615", "a", "b")
			},
			func(t *testing.T, stream string) { do(t, "del", stream) }, "highest possible id",
		},
	} {
		t.Run(name, func(t *testing.T) {
			stream := redistest.UniqueName(t)
			s := openSink(t, Config{Addrs: []string{server.Addr()}, CreateStreams: true, Credentials: relayLogin})
			j := sinktest.NewJournal()
			w := sinktest.StartSession(t, s, j, sink.WriterConfig{})
			tc.begin(t, stream)
			for n := range 3 {
				r := event(stream, n+1, 100, n)
				if err := w.Writer.Send(sinktest.Context(t), &r); err != nil {
					t.Fatal(err)
				}
			}
			w.Writer.Flush()
			w.Await("the error", func() bool { return strings.Contains(s.Stat().LastError+s.Stat().StallReason, tc.want) })
			if w.Acked() > 0 {
				t.Errorf("%d records are acknowledged", w.Acked())
			}
			tc.end(t, stream)
			w.Drain(3)
			if got := payloads(t, admin, stream); !slices.Equal(got, []string{"1", "2", "3"}) {
				t.Errorf("the stream has %s", got)
			}
			if text := j.String() + s.Stat().LastError; strings.Contains(text, "s3cret") {
				t.Errorf("a message shows the password: %s", text)
			}
		})
	}
}

func relayLogin(context.Context) (user, password string, err error) { return "relay", "s3cret", nil }

// A stream that may not be created is waited for, or given up.
func TestMissingStream(t *testing.T) {
	server := redistest.Start(t, redistest.Config{})
	s := openSink(t, Config{Addrs: []string{server.Addr()}})
	stream := redistest.UniqueName(t)
	w := sinktest.StartSession(t, s, sinktest.NewJournal(), sink.WriterConfig{})
	r := event(stream, 1, 100, 0)
	if err := w.Writer.Send(sinktest.Context(t), &r); err != nil {
		t.Fatal(err)
	}
	w.Writer.Flush()
	w.Await("a stall", func() bool {
		st := s.Stat()
		return st.StallMissing == stream && strings.Contains(st.StallAdvice, "create_streams")
	})
	createStream(t, server.Admin(), stream)
	w.Drain(1)

	given := sinktest.StartSession(t, s, sinktest.NewJournal(), sink.WriterConfig{GiveUp: func(sink.Missing) bool { return true }})
	r = event(redistest.UniqueName(t), 1, 200, 0)
	if err := given.Writer.Send(sinktest.Context(t), &r); err != nil {
		t.Fatal(err)
	}
	given.Writer.Flush()
	if _, ok := errors.AsType[*sink.RecordError](given.Wait()); !ok {
		t.Errorf("Run: %v", given.Wait())
	}
}

// The first contact fails at once if a retry does not help, and waits for a server that cannot be reached.
func TestOpen(t *testing.T) {
	server := redistest.Start(t, redistest.Config{Users: map[string]string{"relay": ">s3cret ~* +@all", "poor": ">s3cret ~* +ping"}})
	secured := redistest.Start(t, redistest.Config{TLS: true})
	login := func(user, password string) func(context.Context) (string, string, error) {
		return func(context.Context) (string, string, error) { return user, password, nil }
	}
	for name, tc := range map[string]struct {
		cfg   Config
		class error
		text  string
	}{
		"wrong password":       {Config{Addrs: []string{server.Addr()}, Credentials: login("relay", "wr0ng")}, sink.ErrAccess, "WRONGPASS"},
		"no right for scripts": {Config{Addrs: []string{server.Addr()}, Credentials: login("poor", "s3cret")}, sink.ErrAccess, "NOPERM"},
		"no such database":     {Config{Addrs: []string{server.Addr()}, Database: 99}, sink.ErrFatal, "database"},
		"no server":            {Config{Addrs: []string{"127.0.0.1:1"}}, sink.ErrUnreachable, "refused"},
		"no Sentinel":          {Config{Addrs: []string{"127.0.0.1:1"}, Sentinel: &Sentinel{Primary: "p"}}, sink.ErrUnreachable, ""},
		"no cluster":           {Config{Addrs: []string{"127.0.0.1:1"}, Cluster: true}, sink.ErrUnreachable, ""},
		"not a cluster":        {Config{Addrs: []string{server.Addr()}, Cluster: true}, sink.ErrUnreachable, ""},
		"TLS is expected":      {Config{Addrs: []string{secured.Addr()}}, sink.ErrUnreachable, ""},
		"no address":           {Config{}, nil, "Addrs"},
	} {
		t.Run(name, func(t *testing.T) {
			limit := 700 * time.Millisecond
			if errors.Is(tc.class, sink.ErrAccess) {
				limit = wait.Patience() // Open does not wait so long
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			s, err := tc.cfg.Open(ctx, sinktest.NewJournal().Logger())
			if err == nil {
				_ = s.Close()
				t.Fatal("Open succeeds")
			}
			if tc.class != nil && !errors.Is(err, tc.class) || !strings.Contains(err.Error(), tc.text) || strings.Contains(err.Error(), "wr0ng") {
				t.Errorf("Open: %v", err)
			}
			if errors.Is(tc.class, sink.ErrAccess) && ctx.Err() != nil {
				t.Errorf("Open took more than %s", limit)
			}
		})
	}
}

// Credentials and certificates are asked for each connection.
func TestRotation(t *testing.T) {
	server := redistest.Start(t, redistest.Config{TLS: true})
	if err := server.Admin().Do(sinktest.Context(t), "acl", "setuser", "relay", "on", ">one", "~*", "+@all").Err(); err != nil {
		t.Fatal(err)
	}
	password := make(chan string, 1)
	password <- "one"
	cfg := securedConfig(server, func(context.Context) (string, string, error) {
		current := <-password
		password <- current
		return "relay", current, nil
	})
	s := openSink(t, cfg)
	stream := redistest.UniqueName(t)
	send(t, s, event(stream, 1, 100, 0))
	for _, args := range [][]any{{"acl", "setuser", "relay", "resetpass", ">two"}, {"client", "kill", "user", "relay"}} {
		if err := server.Admin().Do(sinktest.Context(t), args...).Err(); err != nil && !errors.Is(err, redis.Nil) {
			t.Fatal(err)
		}
	}
	<-password
	password <- "two"
	send(t, s, event(stream, 2, 200, 0))
	if got := payloads(t, server.Admin(), stream); !slices.Equal(got, []string{"1", "2"}) {
		t.Errorf("the stream has %s", got)
	}
}
