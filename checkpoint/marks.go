package checkpoint

import (
	"hash/crc32"
	"slices"
	"sort"
)

// The distance between two marks: so many records or bytes of rows, whichever is reached first.
const (
	markRecords = 256
	markBytes   = 1 << 20
)

//nolint:gochecknoglobals // a table
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A mark is a record with the checksum of its transaction up to there. Another process that
// reads the rows again can compare them up to a mark.
type mark struct {
	seq   Seq
	crc   uint32 // CRC-32C of the rows of its transaction up to this one
	bytes int64  // size of all numbered rows up to this one
}

// marks are sorted. The first is the newest one at or before the last record of the
// unbroken sequence of acknowledged records.
type marks []mark

// add adds m if it is far enough after the newest mark.
func (ms *marks) add(m mark) {
	newest := (*ms)[len(*ms)-1]
	if m.seq-newest.seq >= markRecords || m.bytes-newest.bytes >= markBytes {
		*ms = append(*ms, m)
	}
}

// dropBefore removes the marks before the newest one at or before base.
func (ms *marks) dropBefore(base Seq) {
	if len(*ms) > 1 && (*ms)[1].seq <= base {
		*ms = slices.Delete(*ms, 0, ms.search(base+1)-1)
	}
}

// dropAfter removes the marks after last, whose records were canceled.
func (ms *marks) dropAfter(last Seq) { *ms = (*ms)[:ms.search(last+1)] }

// search returns the index of the first mark at or after seq.
func (ms *marks) search(seq Seq) int {
	return sort.Search(len(*ms), func(i int) bool { return (*ms)[i].seq >= seq })
}
