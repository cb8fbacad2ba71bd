package kafka

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/sinktest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/bubble"
)

// A succession is a sequence of owners of one relay in a lab.
type succession struct {
	*lab
	journal *sinktest.Journal
	store   *positionStore
}

func newSuccession(l *lab) *succession {
	j := sinktest.NewJournal()
	return &succession{lab: l, journal: j, store: l.positions(l.net.DialContext, j)}
}

// next starts the next owner.
func (s *succession) next() *rig {
	s.Helper()
	return s.nextWith(func(*sink.WriterConfig) {})
}

func (s *succession) nextWith(change func(*sink.WriterConfig)) *rig {
	s.Helper()
	cfg := sink.WriterConfig{Owner: own(s, s.store), EventHeaders: []string{"id", "parking"}, RowHeaders: []string{"place"}, ContestedSince: row(0, 0, true).Timestamp}
	change(&cfg)
	return startRig(s, s.client(Config{}, s.journal.Logger()), s.journal, cfg)
}

// row returns the record of row n in topic t. Its name is n.
func row(partition int32, n int, contested bool) sink.Record {
	return sink.Record{
		Topic: "t", Partition: partition, Value: []byte(strconv.Itoa(n)), Contested: contested,
		Timestamp: time.Now().Truncate(24 * time.Hour).Add(time.Duration(n) * time.Millisecond),
		Headers:   []sink.Header{{Key: "id", Value: []byte(strconv.Itoa(n))}},
	}
}

// sendRows sends the rows from first to before end to topic t, round its partitions.
func (r *rig) sendRows(partitions, first, end int, contested bool) {
	r.tb.Helper()
	for n := first; n < end; n++ {
		r.send(row(int32(n%partitions), n, contested))
	}
}

// wantRows checks that topic t has the rows from 0 to before end once, and in order in each partition.
func (s *succession) wantRows(partitions, end int) {
	s.Helper()
	log := s.readRecords("t", end)
	for p := range partitions {
		var want []string
		for n := p; n < end; n += partitions {
			want = append(want, strconv.Itoa(n))
		}
		if got := values(log, int32(p)); !slices.Equal(got, want) {
			s.Errorf("partition %d holds %q, want %q\n%s", p, got, want, s.journal)
		}
	}
}

// TestStoredRowsAreNotSentAgain: an owner sends the rows again that its predecessor may have sent, and later ones. Each is
// stored once, and acknowledged.
func TestStoredRowsAreNotSentAgain(t *testing.T) {
	inLab(t, 3, func(l *lab) {
		s := newSuccession(l)
		first := s.next()
		first.sendRows(4, 0, 100, false)
		first.drain()
		second := s.next()
		second.sendRows(4, 50, 120, true)
		second.sendRows(4, 120, 130, false)
		second.drain()
		third := s.next() // the tail has batches of two owners, and markers
		third.sendRows(4, 90, 140, true)
		third.drain()
		s.wantRows(4, 140)
		if log := s.journal.String(); strings.Contains(log, "duplicated") {
			l.Errorf("log:\n%s", log)
		}
	}, kfake.SeedTopics(4, "t"), kfake.SeedTopics(1, "positions"))
}

// TestRowsWithoutKey: they are in the partitions in which the next owner looks for them, and in several.
func TestRowsWithoutKey(t *testing.T) {
	inLab(t, 2, func(l *lab) {
		s := newSuccession(l)
		send := func(r *rig, first, end int, contested bool) {
			for n := first; n < end; n++ {
				rec := row(sink.AnyPartition, n, contested)
				rec.Position = sink.Position{CommitLSN: uint64(n) << 18}
				r.send(rec)
			}
		}
		first := s.next()
		send(first, 0, 50, false)
		first.AwaitAcked(50)
		send(first, 50, 60, false)
		first.drain()
		second := s.next()
		send(second, 20, 80, true)
		send(second, 80, 90, false)
		second.drain()
		seen, partitions := map[string]int{}, map[int32]int{}
		for _, rec := range l.readRecords("t", 90) {
			seen[string(rec.Value)]++
			partitions[rec.Partition]++
		}
		if len(seen) != 90 || len(partitions) != 4 || partitions[0] > 30 {
			l.Errorf("%d rows in partitions %v\n%s", len(seen), partitions, s.journal)
		}
	}, kfake.SeedTopics(4, "t"), kfake.SeedTopics(1, "positions"))
}

// TestRowsBehindForeignBatches: other producers write to the same partition.
func TestRowsBehindForeignBatches(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		s := newSuccession(l)
		first := s.next()
		for n := range 40 {
			first.send(row(0, n, false))
			first.AwaitAcked(n + 1)
		}
		foreign := l.rig(Config{})
		for n := range 300 {
			foreign.send(row(0, n, false)) // with the names of our rows
			foreign.AwaitAcked(n + 1)
		}
		second := s.next()
		second.sendRows(1, 20, 50, true)
		second.drain()
		got := values(l.readRecords("t", 350), 0)[340:]
		if want := strings.Fields("40 41 42 43 44 45 46 47 48 49"); !slices.Equal(got, want) {
			l.Errorf("after the foreign records: %q, want %q", got, want)
		}
	}, kfake.SeedTopics(1, "t", "positions"))
}

// TestRowsWithTheSameID: the id of a row need not be unique. A row is not taken for an earlier one with its id, and of rows that are
// alike, as many are recognised as are stored.
func TestRowsWithTheSameID(t *testing.T) {
	for name, opts := range map[string][]kfake.Opt{"time of creation": nil, "time of appending": {kfake.BrokerConfigs(map[string]string{"log.message.timestamp.type": "LogAppendTime"})}} {
		t.Run(name, func(t *testing.T) {
			inLab(t, 1, func(l *lab) {
				s := newSuccession(l)
				same := func(value string, contested bool) sink.Record {
					r := row(0, 7, contested)
					r.Value = []byte(value)
					return r
				}
				first := s.next()
				for _, v := range []string{"a", "b", "b"} {
					first.send(same(v, false))
				}
				first.drain()
				second := s.next()
				for _, v := range []string{"b", "b", "b", "c", "a", "a"} {
					second.send(same(v, true))
				}
				second.drain()
				if got := values(l.readRecords("t", 6), 0); !slices.Equal(got, []string{"a", "b", "b", "b", "c", "a"}) {
					l.Errorf("log holds %q", got)
				}
			}, append(opts, kfake.SeedTopics(1, "t", "positions"))...)
		})
	}
}

// TestRowsAreRecognisedWithoutTheirTimestamp: the timestamp of a row that is sent again may be another one if the row has its place
// in the stream, if it was read from a table, or if the broker has rejected its timestamp.
func TestRowsAreRecognisedWithoutTheirTimestamp(t *testing.T) {
	for name, change := range map[string]func(r *sink.Record, attempt int){
		"placed": func(r *sink.Record, attempt int) {
			r.Headers = append(r.Headers, sink.Header{Key: "place", Value: r.Value})
			r.Timestamp = r.Timestamp.Add(-time.Duration(attempt) * time.Minute)
		},
		"placed, sent later": func(r *sink.Record, attempt int) {
			r.Headers = append(r.Headers, sink.Header{Key: "place", Value: r.Value})
			r.Timestamp = r.Timestamp.Add(time.Duration(attempt) * time.Minute)
		},
		"copied": func(r *sink.Record, attempt int) {
			r.Copied, r.Timestamp = attempt > 0, r.Timestamp.Add(time.Duration(attempt)*time.Minute)
			r.Headers = append(r.Headers, sink.Header{Key: "place", Value: []byte{byte(attempt)}})
		},
		"restamped": func(r *sink.Record, attempt int) {
			r.Timestamp = r.Timestamp.Add(48 * time.Hour)
			if attempt == 0 {
				r.Restamp(time.Now())
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			inLab(t, 1, func(l *lab) {
				s := newSuccession(l)
				for attempt, end := range []int{40, 60} {
					r := s.next()
					for n := attempt * 20; n < end; n++ {
						rec := row(int32(n%2), n, true)
						change(&rec, attempt)
						r.send(rec)
						if n%5 == 0 { // several batches
							r.AwaitAcked(n - attempt*20)
						}
					}
					r.drain()
				}
				s.wantRows(2, 60)
			}, kfake.SeedTopics(2, "t"), kfake.SeedTopics(1, "positions"))
		})
	}
}

// TestRowsBehindARecordThatIsTooLarge: rows are recognised that follow a record which is rejected when it is the first of its
// partition, and so is its substitute.
func TestRowsBehindARecordThatIsTooLarge(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		s := newSuccession(l)
		if _, err := l.admin().AlterTopicConfigs(l.Context(), alterLimit("1500"), "t"); err != nil {
			l.Fatal(err)
		}
		instead := func(r *sink.Record, _ *sink.RecordError) *sink.Record {
			r.Topic, r.Value = "dead", []byte("letter")
			return r
		}
		for _, end := range []int{20, 30} {
			r := s.nextWith(func(cfg *sink.WriterConfig) { cfg.Substitute = instead })
			for n := range end {
				rec := row(0, n, true)
				if n%7 == 3 {
					rec.Value = make([]byte, 2000)
				}
				r.send(rec)
			}
			r.drain()
		}
		want := strings.Fields("0 1 2 4 5 6 7 8 9 11 12 13 14 15 16 18 19 20 21 22 23 25 26 27 28 29")
		if got := values(l.readRecords("t", len(want)), 0); !slices.Equal(got, want) {
			l.Errorf("log holds %q, want %q", got, want)
		}
		if got := values(l.readRecords("dead", 4), 0); len(got) != 4 {
			l.Errorf("%d dead letters", len(got))
		}
	}, kfake.SeedTopics(1, "t", "dead", "positions"))
}

// TestDeadLettersOfRowsThatAreRejectedLate: the substitute of a row may get to its partition behind those of much later rows, contested
// or not. It is recognised all the same.
func TestDeadLettersOfRowsThatAreRejectedLate(t *testing.T) {
	const deadLetters, newest, fresh, last = 40, 5000, 5001, 5010
	type send = func(topic string, contested bool, rows ...int)
	for name, tc := range map[string]struct {
		play func(*lab, *rig, send) (release func())
		want []int // behind those of the first owner
	}{
		"a contested one": {func(_ *lab, second *rig, send send) func() {
			send("dead", true, newest)
			second.AwaitAcked(1)
			return func() {}
		}, []int{last}},
		"a new one": {func(_ *lab, second *rig, send send) func() {
			send("missing", true, newest)
			send("dead", false, fresh)
			second.AwaitAcked(1)
			return func() {}
		}, []int{fresh, last}},
		"a new one in the same batch": {func(l *lab, second *rig, send send) func() {
			send("missing", true, newest)
			send("dead", false, fresh)
			second.AwaitAcked(1)
			release := l.hangBroker(kmsg.Produce)
			send("dead", false, fresh+1)
			second.producer.Flush()
			bubble.Sleep(time.Millisecond)
			send("dead", false, fresh+2) // it waits for the one before
			return release
		}, []int{fresh, fresh + 1, fresh + 2, last}},
	} {
		t.Run(name, func(t *testing.T) {
			inLab(t, 1, func(l *lab) {
				s := newSuccession(l)
				var late atomic.Bool
				var rejected atomic.Int64
				next := func() (*rig, send) {
					rejected.Store(0)
					r := s.nextWith(func(cfg *sink.WriterConfig) {
						cfg.ContestedSince = time.Time{}
						cfg.GiveUp = func(sink.Missing) bool { return !late.Load() }
						cfg.Substitute = func(r *sink.Record, _ *sink.RecordError) *sink.Record {
							rejected.Add(1)
							r.Topic = "dead"
							return r
						}
					})
					return r, func(topic string, contested bool, rows ...int) {
						for _, n := range rows {
							rec := row(0, n, contested)
							rec.Topic = topic
							r.send(rec)
						}
					}
				}
				var want []string
				first, send := next()
				for n := range deadLetters { // in as many batches, more than the first steps back reach
					send("missing", false, n)
					first.AwaitAcked(n + 1)
					want = append(want, strconv.Itoa(n))
				}
				send("missing", false, newest)
				want = append(want, strconv.Itoa(newest))
				first.drain()
				late.Store(true)
				second, send := next()
				for n := range deadLetters {
					send("missing", true, n)
				}
				release := tc.play(l, second, send)
				late.Store(false)
				second.Await("the dead letters", func() bool { return rejected.Load() >= deadLetters })
				release()
				second.drain()
				third, send := next()
				send("dead", false, last)
				third.drain()
				for _, n := range tc.want {
					want = append(want, strconv.Itoa(n))
				}
				if got := values(l.readRecords("dead", len(want)), 0); !slices.Equal(got, want) {
					l.Errorf("dead letters %q, want %q", got, want)
				}
			}, kfake.SeedTopics(1, "dead", "positions"))
		})
	}
}

// TestCopiedRowsWithTheSameID: of copied rows that are alike, as many are recognised as are stored. One with another value, or
// without an id, is not recognised, nor is a dead letter of another parking: a release would not find it.
func TestCopiedRowsWithTheSameID(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		s := newSuccession(l)
		send := func(r *rig, values string, copied bool) {
			for n, v := range strings.Fields(values) {
				rec := row(0, 7, true)
				rec.Value, rec.Copied = []byte(v), copied
				rec.Timestamp = rec.Timestamp.Add(time.Duration(n) * time.Second)
				switch v {
				case "none":
					rec.Headers = []sink.Header{{Key: "place", Value: []byte("1")}}
				case "parked":
					rec.Headers = append(rec.Headers, sink.Header{Key: "parking", Value: strconv.AppendBool(nil, copied)})
				}
				r.send(rec)
			}
			r.drain()
		}
		send(s.next(), "a b b none parked", false)
		send(s.next(), "b b b c a a none parked", true)
		if got, want := values(l.readRecords("t", 10), 0), strings.Fields("a b b none parked b c a none parked"); !slices.Equal(got, want) {
			l.Errorf("log holds %q, want %q", got, want)
		}
	}, kfake.SeedTopics(1, "t", "positions"))
}

// TestRowsDuringAcknowledgement: rows that are sent while the sender acknowledges stored ones are recognised too.
func TestRowsDuringAcknowledgement(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		s := newSuccession(l)
		first := s.next()
		first.sendRows(1, 0, 60, false)
		first.drain()
		second := s.next()
		p := second.producer
		synctest.Wait() // Run has set done
		p.doneMu.Lock()
		report, reported := p.done, make(chan struct{})
		p.done = func(seqs []uint64, err error) {
			select {
			case <-reported:
			default:
				second.sendRows(1, 30, 65, true)
				p.Flush()
				close(reported)
			}
			report(seqs, err)
		}
		p.doneMu.Unlock()
		second.sendRows(1, 20, 30, true)
		p.Flush()
		<-reported
		second.drain()
		s.wantRows(1, 65)
	}, kfake.SeedTopics(1, "t", "positions"))
}

// TestLostProducerState: a broker has forgotten the producer, and may have stored the batch that it rejects. The producer takes
// the next epoch, and finds out.
func TestLostProducerState(t *testing.T) {
	for name, stored := range map[string]bool{"stored": true, "not stored": false} {
		t.Run(name, func(t *testing.T) {
			inLab(t, 2, func(l *lab) {
				s := newSuccession(l)
				r := s.next()
				r.sendRows(2, 0, 10, false)
				r.AwaitAcked(10)
				fault := kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.OutOfOrderSequenceNumber}
				if stored {
					fault.Err = kerr.RequestTimedOut
				}
				l.fake.Fault(fault)
				if stored {
					l.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.UnknownProducerID})
				}
				r.sendRows(2, 10, 20, false)
				r.drain()
				s.wantRows(2, 20)
				if log := s.journal.String(); strings.Contains(log, "duplicated") || r.client.Stat().DuplicatesPossible != 0 {
					l.Errorf("log:\n%s", log)
				}
			}, kfake.SeedTopics(2, "t"), kfake.SeedTopics(1, "positions"))
		})
	}
}

// TestOwnerIsShutOut: the coordinator or a marker says that there is a newer owner.
func TestOwnerIsShutOut(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		s := newSuccession(l)
		first := s.next()
		own(s, s.store)
		first.sendRows(2, 0, 4, true)
		if err := first.closeSend(); !errors.Is(err, sink.ErrSuperseded) {
			l.Errorf("Run: %v", err)
		}
	}, kfake.SeedTopics(2, "t"), kfake.SeedTopics(1, "positions"))
}

// TestResumptionIsRetried: every request of a resumption fails once with an error that may pass. No row is lost or stored twice.
func TestResumptionIsRetried(t *testing.T) {
	for _, fault := range []struct {
		key kmsg.Key
		err *kerr.Error
	}{
		{kmsg.FindCoordinator, kerr.CoordinatorNotAvailable},
		{kmsg.AddPartitionsToTxn, kerr.ConcurrentTransactions},
		{kmsg.AddPartitionsToTxn, kerr.NotCoordinator},
		{kmsg.AddPartitionsToTxn, kerr.CoordinatorLoadInProgress},
		{kmsg.AddPartitionsToTxn, kerr.UnknownTopicOrPartition},
		{kmsg.EndTxn, kerr.CoordinatorNotAvailable},
		{kmsg.EndTxn, kerr.NotCoordinator},
		{kmsg.ListOffsets, kerr.NotLeaderForPartition},
		{kmsg.Fetch, kerr.NotLeaderForPartition},
		{kmsg.Fetch, kerr.LeaderNotAvailable},
	} {
		t.Run(fmt.Sprint(fault.key.Name(), " ", fault.err.Message), func(t *testing.T) {
			inLab(t, 2, func(l *lab) {
				s := newSuccession(l)
				first := s.next()
				first.sendRows(3, 0, 30, false)
				first.drain()
				second := s.next()
				s.store.owner.ownership.disconnect() // from the coordinator
				injected := l.fake.Fault(kfake.Fault{Keys: []kmsg.Key{fault.key}, Err: fault.err})
				second.sendRows(3, 0, 40, true)
				second.drain()
				if injected.Hits() == 0 {
					l.Error("the fault was not met")
				}
				s.wantRows(3, 40)
			}, kfake.SeedTopics(3, "t"), kfake.SeedTopics(1, "positions"))
		})
	}
}

// TestSlowMarkers: a busy broker takes long for the markers of an earlier transaction. The owner waits, and sends no row again.
func TestSlowMarkers(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		s := newSuccession(l)
		first := s.next()
		first.sendRows(1, 0, 30, false)
		first.drain()
		second := s.next()
		busy := l.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.AddPartitionsToTxn}, Err: kerr.ConcurrentTransactions, Count: -1})
		time.AfterFunc(20*time.Second, busy.Remove)
		second.sendRows(1, 0, 40, true)
		second.drain()
		s.wantRows(1, 40)
	}, kfake.SeedTopics(1, "t"), kfake.SeedTopics(1, "positions"))
}

// TestRecordsDuringAnotherTakeOver: while the coordinator ends the transaction that fences one partition, records go to another. A broker
// may reject these, because it does not tell the partitions of a producer apart. They are sent again.
func TestRecordsDuringAnotherTakeOver(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		s := newSuccession(l)
		own(l, s.store)
		r := s.next()
		r.sendRows(2, 0, 1, true)
		r.producer.Flush()
		r.AwaitAcked(1)
		loads := l.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.EndTxn}, Err: kerr.CoordinatorLoadInProgress, Count: -1})
		r.sendRows(2, 1, 2, true)
		r.producer.Flush()
		bubble.Sleep(time.Second)
		r.sendRows(2, 2, 3, true)
		r.producer.Flush()
		bubble.Sleep(time.Second)
		loads.Remove()
		r.drain()
		s.wantRows(2, 3)
	}, kfake.SeedTopics(2, "t"), kfake.SeedTopics(1, "positions"))
}

// TestRightsThatAResumptionLacks: without Read on a topic, an owner cannot know what is stored there. It says so once, and
// sends the rows.
func TestRightsThatAResumptionLacks(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		s := newSuccession(l)
		first := s.next()
		first.sendRows(1, 0, 10, false)
		first.drain()
		second := s.next()
		l.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Err: kerr.TopicAuthorizationFailed, Count: 1})
		second.sendRows(1, 5, 15, true)
		second.drain()
		want := strings.Fields("0 1 2 3 4 5 6 7 8 9 5 6 7 8 9 10 11 12 13 14")
		if got := values(l.readRecords("t", 20), 0); !slices.Equal(got, want) {
			l.Errorf("log holds %q", got)
		}
		log := s.journal.String()
		if !strings.Contains(log, "records of an earlier relay may be duplicated") || !strings.Contains(log, "TOPIC_AUTHORIZATION_FAILED") || second.client.Stat().DuplicatesPossible != 1 {
			l.Errorf("log:\n%s", log)
		}
	}, kfake.SeedTopics(1, "t", "positions"))
}

// TestResumptionDuringAStop: an owner stops while its records wait for a coordinator that does not answer.
func TestResumptionDuringAStop(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		s := newSuccession(l)
		own(l, s.store)
		r := s.next()
		release := l.hangBroker(kmsg.AddPartitionsToTxn)
		defer release()
		r.sendRows(1, 0, 3, true)
		r.producer.CloseSend()
		synctest.Wait()
		cause := errors.New("stopped")
		r.Stop(cause)
		if e, ok := errors.AsType[*sink.UndeliveredError](r.Wait()); !ok || e.Records != 3 || e.Sent != 0 {
			l.Errorf("Run: %v", r.Wait())
		}
	}, kfake.SeedTopics(1, "t", "positions"))
}

// TestLateMarker: records that are read while the marker is not there yet are counted once.
func TestLateMarker(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		s := newSuccession(l)
		first := s.next()
		first.sendRows(1, 0, 5, false)
		first.drain()
		c := s.client(Config{}, s.journal.Logger())
		o, names := own(l, s.store).ownership, newNamer(&sink.WriterConfig{EventHeaders: []string{"id", "parking"}})
		if err := c.cluster.refresh(l.Context(), []string{"t"}); err != nil {
			l.Fatal(err)
		}
		leader, err := c.connector.connect(l.Context(), c.cluster.address(c.cluster.topic("t").leaders[0].node), controlTimeout)
		if err != nil {
			l.Fatal(err)
		}
		defer leader.Close()
		at := topicPartition{"t", 0}
		tail := &tailReader{link: leader, part: at, owner: o.newest, ids: o.ids, names: &names, coordinator: &o.coordinator}
		read := make(chan error, 1)
		go func() { read <- tail.readToMarker(0, time.Now().Add(stuckAfter)) }()
		bubble.Sleep(time.Second)
		if _, err := o.coordinator.addPartitions(l.Context(), o.newest, []topicPartition{at}); err != nil {
			l.Fatal(err)
		}
		if err := o.coordinator.abortTransaction(l.Context(), o.newest); err != nil {
			l.Fatal(err)
		}
		if err := <-read; err != nil || len(tail.found.names) != 5 {
			l.Errorf("%d names, %v", len(tail.found.names), err)
		}
	}, kfake.SeedTopics(1, "t", "positions"))
}
