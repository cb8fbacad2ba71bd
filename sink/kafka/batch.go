package kafka

const (
	// batchOverhead is the length of a record batch without records.
	batchOverhead = 61

	// maxBatchBytes is the largest batch that is built of more than one record, whatever
	// larger ones a topic takes: beyond it a request only gets slower.
	maxBatchBytes = 1_000_000

	// noSequence marks a batch that has never been sent under the present producer id.
	noSequence = -1
)

// A batch is a record batch of one partition. It is open until it is sealed, by being sent
// for the first time; from then on its records stay together until they have an outcome or
// the broker has refused them as a whole.
type batch struct {
	frames
	size     int   // bytes on the wire, before compression
	sequence int32 // of the first record; noSequence or what the broker has been told
	firstMS  int64 // of the first record
	corrupt  int   // answers in a row that called it corrupt
	sealed   bool
	sent     bool // at least once: it may be in the log
}

// add extends b by a record and returns the memory for its frame.
func (b *batch) add(pool *chunkPool, s *shape, ms int64) []byte {
	if b.records == 0 {
		b.size, b.firstMS, b.sequence = batchOverhead, ms, noSequence
	}
	b.size += s.wire(ms-b.firstMS, b.records)
	return b.room(pool, s)
}

// takes reports whether b is open and one more record leaves it within limit bytes.
func (b *batch) takes(s *shape, ms int64, limit int) bool {
	return !b.sealed && b.size+s.wire(ms-b.firstMS, b.records) <= limit
}

// measure counts b's size anew, after records were taken off its end.
func (b *batch) measure() {
	b.size = batchOverhead
	offset := 0
	for f := range b.all {
		s := f.shape()
		b.size += s.wire(f.ms-b.firstMS, offset)
		offset++
	}
}

// reset gives b's memory back and makes it fit for reuse.
func (b *batch) reset(pool *chunkPool) {
	b.release(pool)
	*b = batch{frames: b.frames}
}
