package checkpoint_test

import (
	"fmt"
	"time"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
)

// The broker acknowledges the record of the second transaction first. Nothing is
// confirmed before the record of the first one is acknowledged too.
func ExampleTracker() {
	tracker := checkpoint.New(0x100, nil)

	tracker.Begin(0x200, time.Time{})
	first := tracker.Next()
	tracker.Commit(0x230)

	tracker.Begin(0x230, time.Time{})
	second := tracker.Next()
	tracker.Commit(0x260)

	tracker.Keepalive(0x280)

	for _, seq := range []checkpoint.Seq{second, first} {
		if err := tracker.Ack(seq); err != nil {
			fmt.Println(err)
		}
		fmt.Println(tracker.Confirmed())
	}
	// Output:
	// 0/100
	// 0/280
}
