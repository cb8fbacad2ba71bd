package redisstreams

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/sinktest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/redistest"
)

// room is the distance between the ids of two rows of a transaction.
const room = 1 << indexBits

// A resent row is dropped if the stream has it, and appended at the end in every other case.
func TestResends(t *testing.T) {
	server := redistest.Start(t, redistest.Config{})
	admin := server.Admin()
	row := func(n int, lsn uint64, index int) sink.Record { return event("", n, lsn, index) }
	loose := func(n int) sink.Record { return event("", n, 0, 0) }
	foreign := func(id string) func(t *testing.T, stream string) {
		return func(t *testing.T, stream string) {
			t.Helper()
			if err := admin.XAdd(sinktest.Context(t), &redis.XAddArgs{Stream: stream, ID: id, Values: []any{"payload", "foreign"}}).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	trim := func(n int64) func(t *testing.T, stream string) {
		return func(t *testing.T, stream string) {
			t.Helper()
			if err := admin.XTrimMaxLen(sinktest.Context(t), stream, n).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	nothing := func(*testing.T, string) {}
	for name, tc := range map[string]struct {
		first   []sink.Record
		between func(t *testing.T, stream string)
		second  []sink.Record
		want    string // payloads
		ids     string // empty: not checked
	}{
		"a transaction is sent twice": {
			[]sink.Record{row(1, 100, 0), row(2, 100, 1), row(3, 200, 0)},
			nothing,
			[]sink.Record{row(1, 100, 0), row(2, 100, 1), row(3, 200, 0), row(4, 200, 1)},
			"1 2 3 4", fmt.Sprintf("100-0 100-%d 200-0 200-%d", room, room),
		},
		"rows without a position are never dropped": {
			[]sink.Record{loose(1), loose(2)}, nothing, []sink.Record{loose(1), loose(2)}, "1 2 1 2", "0-1 0-2 0-3 0-4",
		},
		"rows without a position amid a transaction": {
			[]sink.Record{row(1, 100, 0), loose(8), loose(9), row(2, 100, 1), loose(10)},
			nothing,
			[]sink.Record{row(1, 100, 0), row(2, 100, 1), row(3, 100, 2)},
			"1 8 9 2 10 3", fmt.Sprintf("100-0 100-1 100-2 100-%d 100-%d 100-%d", room, room+1, 2*room),
		},
		"the entries were trimmed": {
			[]sink.Record{row(1, 100, 0), row(2, 200, 0), row(3, 300, 0)},
			trim(1),
			[]sink.Record{row(1, 100, 0), row(2, 200, 0), row(3, 300, 0), row(4, 400, 0)},
			"3 1 2 4", "300-0 300-1 300-2 400-0",
		},
		"another row has the same position": {
			[]sink.Record{row(1, 100, 0), row(2, 200, 0)},
			nothing,
			[]sink.Record{row(3, 100, 0), row(4, 200, 0), row(5, 300, 0)},
			"1 2 3 4 5", "100-0 200-0 200-1 200-2 300-0",
		},
		"LSNs have started over": {
			[]sink.Record{row(1, 100, 0), row(2, 200, 0)},
			nothing,
			[]sink.Record{row(3, 7, 0), row(4, 8, 0), row(5, 300, 0)},
			"1 2 3 4 5", "100-0 200-0 200-1 200-2 300-0",
		},
		"a row below the last id was never stored": {
			[]sink.Record{row(1, 100, 0), row(3, 300, 0)}, nothing, []sink.Record{row(1, 100, 0), row(2, 200, 0), row(3, 300, 0)}, "1 3 2", "",
		},
		"another writer uses the time": {
			[]sink.Record{row(1, 100, 0)},
			foreign("1700000000000-0"),
			[]sink.Record{row(1, 100, 0), row(2, 200, 0), row(3, 200, 1)},
			"1 foreign 2 3", "100-0 1700000000000-0 1700000000000-1 1700000000000-2",
		},
		"the second part of the last id is the highest": {
			[]sink.Record{row(1, 100, 0)},
			foreign("199-18446744073709551615"),
			[]sink.Record{loose(2), row(3, 200, 1)},
			"1 foreign 2 3", fmt.Sprintf("100-0 199-18446744073709551615 200-0 200-%d", room),
		},
		"the last id is beyond the numbers of Lua": {
			nil, foreign("9999999999999999999-9999999999999999999"),
			[]sink.Record{loose(1), loose(2)},
			"foreign 1 2", "9999999999999999999-9999999999999999999 9999999999999999999-10000000000000000000 9999999999999999999-10000000000000000001",
		},
		"all entries were deleted": {
			[]sink.Record{row(1, 100, 0)}, trim(0), []sink.Record{row(1, 100, 0), loose(2)}, "1 2", "100-1 100-2",
		},
	} {
		t.Run(name, func(t *testing.T) {
			stream := redistest.UniqueName(t)
			s := openSink(t, Config{Addrs: []string{server.Addr()}, CreateStreams: true})
			in := func(records []sink.Record) []sink.Record {
				records = slices.Clone(records)
				for i := range records {
					records[i].Topic = stream
				}
				return records
			}
			if len(tc.first) > 0 {
				send(t, s, in(tc.first)...)
			}
			tc.between(t, stream)
			send(t, s, in(tc.second)...)
			if got := strings.Join(payloads(t, admin, stream), " "); got != tc.want {
				t.Errorf("the stream has %s, want %s", got, tc.want)
			}
			if got := strings.Join(ids(t, admin, stream), " "); tc.ids != "" && got != tc.ids {
				t.Errorf("the ids are %s, want %s", got, tc.ids)
			}
		})
	}
}

// A row without an event id is dropped only if the entry is equal.
func TestResendsWithoutEventID(t *testing.T) {
	server := redistest.Start(t, redistest.Config{})
	s := openSink(t, Config{Addrs: []string{server.Addr()}, CreateStreams: true})
	stream := redistest.UniqueName(t)
	row := func(n int) sink.Record {
		r := event(stream, n, 100, 0)
		r.Headers = nil
		return r
	}
	send(t, s, row(1))
	send(t, s, row(1))
	send(t, s, row(2))
	if got := payloads(t, server.Admin(), stream); !slices.Equal(got, []string{"1", "2"}) {
		t.Errorf("the stream has %s", got)
	}
}

// More rows than fit follow a row of a transaction: one of them has the id of the next row, which is appended nevertheless.
func TestRoomIsUsedUp(t *testing.T) {
	server := redistest.Start(t, redistest.Config{})
	s := openSink(t, Config{Addrs: []string{server.Addr()}, CreateStreams: true})
	stream := redistest.UniqueName(t)
	send(t, s, event(stream, 1, 100, 0))
	if err := server.Admin().Do(sinktest.Context(t), "xsetid", stream, "100-"+strconv.Itoa(room-2)).Err(); err != nil {
		t.Fatal(err)
	}
	send(t, s, event(stream, 7, 0, 0), event(stream, 8, 0, 0), event(stream, 9, 0, 0), event(stream, 2, 100, 1), event(stream, 3, 100, 2))
	if got := payloads(t, server.Admin(), stream); !slices.Equal(got, []string{"1", "7", "8", "9", "2", "3"}) {
		t.Errorf("the stream has %s", got)
	}
}

// A session recognizes also rows without a position, and rows that have got another id, after a connection was lost.
func TestResendsOfASession(t *testing.T) {
	subject := newSubject(redistest.Start(t, redistest.Config{}), Config{CreateStreams: true})
	admin := subject.server.Admin()
	s := openSink(t, subject.Broker(1000).(Config))
	for name, lsn := range map[string]uint64{"no position": 0, "LSNs have started over": 50} {
		t.Run(name, func(t *testing.T) {
			stream := redistest.UniqueName(t)
			send(t, s, event(stream, 1000, 100, 0))
			w := sinktest.StartSession(t, s, sinktest.NewJournal(), sink.WriterConfig{})
			n := 0
			sendSome := func(count int) {
				for range count {
					n++
					r := event(stream, n, lsn, n)
					if lsn == 0 {
						r.Position = sink.Position{}
					}
					if err := w.Writer.Send(sinktest.Context(t), &r); err != nil {
						t.Fatal(err)
					}
				}
			}
			sendSome(5)
			w.AwaitAcked(5)
			lose := subject.Faults()[1]
			for range 3 {
				met, heal := lose.Begin(t)
				sendSome(20)
				w.Writer.Flush()
				<-met
				sendSome(5)
				heal()
				w.AwaitAcked(n)
			}
			w.Drain(n)
			want := []string{"1000"}
			for i := range n {
				want = append(want, strconv.Itoa(i+1))
			}
			if got := payloads(t, admin, stream); !slices.Equal(got, want) {
				t.Errorf("the stream has %s, want %s", got, want)
			}
		})
	}
}
