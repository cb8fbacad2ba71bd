package sqs

import (
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink/lane"
)

const (
	// maxEntries is the maximum number of messages of a batch.
	maxEntries = 10

	// linger is how long a message waits for others before it leaves in a batch that is not full. The requests of
	// several lanes arrive within it when a response has released them.
	linger = time.Millisecond

	// partialWait is how long such a batch waits, in addition, for the response to an earlier one that was not full
	// either. So batches are small while there is little to send, and full otherwise.
	partialWait = 100 * time.Millisecond
)

// A pending is a request that waits for its batch, or for the response.
type pending struct {
	request *lane.Request
	message message
}

// A feed has the requests for one destination. Transport.mu guards it.
type feed struct {
	name    string // of the destination, as records have it
	to      Destination
	waiting []*pending // in the order of Publish
	flying  int        // number of batches in flight
	limit   float64    // maximum of flying: lower after the service has throttled
	timing  bool       // a timer will call transport.sendPartial

	partialAt time.Time // when the last batch that was not full has left; zero if it has a response
}

// cut removes the next batch from waiting. It returns nil if the batches in flight are as many as allowed, or if the
// batch would not be full and allowPartial is false.
func (f *feed) cut(maxBytes int, allowPartial bool) []*pending {
	if len(f.waiting) == 0 || f.flying >= int(f.limit) {
		return nil
	}
	n, size := 0, 0
	for n < len(f.waiting) && n < maxEntries && (n == 0 || size+f.waiting[n].message.size <= maxBytes) {
		size += f.waiting[n].message.size
		n++
	}
	if full := n == maxEntries || n < len(f.waiting); !full && !allowPartial {
		return nil
	}
	batch := make([]*pending, n)
	copy(batch, f.waiting)
	clear(f.waiting[:n])
	if f.waiting = f.waiting[n:]; len(f.waiting) == 0 {
		f.waiting = nil
	}
	f.flying++
	return batch
}

// landed notes the response to a batch. The limit follows the service: it is halved at a throttled batch, and grows by
// about one in the time of as many batches as it allows.
func (f *feed) landed(wasThrottled bool, highest int) {
	f.flying--
	if wasThrottled {
		f.limit = max(1, f.limit/2)
	} else {
		f.limit = min(float64(highest), f.limit+1/f.limit)
	}
}
