package outbox_test

import (
	"fmt"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/outbox"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

// BenchmarkWrite measures Write with n events, in one transaction.
func BenchmarkWrite(b *testing.B) {
	for _, n := range []int{1, 2, 10, 100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			conn := database(b, pgtest.Server(b)).Conn(b)
			events := make([]outbox.Event, n)
			for i := range events {
				events[i] = event(func(e *outbox.Event) { e.Payload = []byte(`{"order": "0192-77", "cents": 4200, "items": [1, 2, 3]}`) })
			}
			tx, err := conn.Begin(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if err := outbox.Write(b.Context(), tx, events...); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/event")
			if err := tx.Rollback(b.Context()); err != nil {
				b.Fatal(err)
			}
		})
	}
}
