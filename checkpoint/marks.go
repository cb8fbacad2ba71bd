package checkpoint

import (
	"hash/crc32"
	"slices"
	"sort"
)

// Between two marks lie so many records or so many bytes of rows, whatever comes first.
const (
	markRecords = 256
	markBytes   = 1 << 20
)

//nolint:gochecknoglobals // a table
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A mark is a record up to which the rows of its transaction can be recognised by another process.
type mark struct {
	seq   Seq
	crc   uint32 // of the rows of its transaction, it included
	bytes int64  // of all rows that were numbered, it included
}

// marks are sorted. The first is the newest at or before the last record that is
// acknowledged together with all before it.
type marks []mark

// add adds m if it is far enough behind the newest mark.
func (ms *marks) add(m mark) {
	newest := (*ms)[len(*ms)-1]
	if m.seq-newest.seq >= markRecords || m.bytes-newest.bytes >= markBytes {
		*ms = append(*ms, m)
	}
}

// dropBefore removes what lies before the newest mark at or before base.
func (ms *marks) dropBefore(base Seq) {
	if len(*ms) > 1 && (*ms)[1].seq <= base {
		*ms = slices.Delete(*ms, 0, ms.search(base+1)-1)
	}
}

// dropAfter removes the marks of records that do not exist any more.
func (ms *marks) dropAfter(last Seq) { *ms = (*ms)[:ms.search(last+1)] }

// search returns the index of the first mark at or after seq.
func (ms *marks) search(seq Seq) int {
	return sort.Search(len(*ms), func(i int) bool { return (*ms)[i].seq >= seq })
}
