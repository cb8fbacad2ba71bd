package checkpoint_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
)

// Two transactions with one record each are in flight. The broker acknowledges the second record first. The Tracker
// confirms nothing until the first record is acknowledged too. Then it confirms both transactions and the keepalive
// after them.
func ExampleTracker() {
	tracker := checkpoint.New(0x100, nil)

	read := func(commitLSN, endLSN pglogrepl.LSN) checkpoint.Seq {
		errs := []error{tracker.Begin(commitLSN, time.Time{})}
		seq, err := tracker.Next([]byte("row"))
		if err := errors.Join(append(errs, err, tracker.Commit(endLSN))...); err != nil {
			fmt.Println(err)
		}
		return seq
	}
	first := read(0x200, 0x230)
	second := read(0x230, 0x260)

	if err := tracker.Keepalive(0x280); err != nil {
		fmt.Println(err)
	}

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
