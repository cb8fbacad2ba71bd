package relay

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
)

// A confirmed transaction is measured from its commit, and its snapshot goes to the recorder.
func TestConfirmedTransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type measured struct {
			took  time.Duration
			trace string
		}
		var got []measured
		r, err := New(Config{
			Route:     encode.Config{Columns: encode.DefaultColumns(), Topic: "${route}"},
			Delivered: func(took time.Duration, trace string) { got = append(got, measured{took, trace}) },
		}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		committed := time.Now()
		time.Sleep(time.Second)
		r.confirmed(checkpoint.Transaction{CommitTime: committed})
		r.confirmed(checkpoint.Transaction{CommitTime: committed, TraceID: [16]byte{0: 0x4b, 15: 0x36}})
		r.confirmed(checkpoint.Transaction{CommitTime: time.Now().Add(time.Hour)}) // of a server whose clock is ahead
		r.confirmed(checkpoint.Transaction{})                                      // its commit time is unknown
		want := []measured{{time.Second, ""}, {time.Second, "4b000000000000000000000000000036"}, {0, ""}}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(measured{})); diff != "" {
			t.Errorf("measured (-want +got):\n%s", diff)
		}
		snapshot := checkpoint.Snapshot{EndLSN: 200, Text: "7:9:8"}
		r.confirmed(checkpoint.Transaction{Snapshot: snapshot})
		r.confirmed(checkpoint.Transaction{CommitTime: committed})
		if got := r.recorder.snapshot.Load(); got == nil || *got != snapshot {
			t.Errorf("the recorder has %v", got)
		}
	})
}
