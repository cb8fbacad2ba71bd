package deadletter

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// A Place is where a letter lies in its topic.
type Place struct {
	Partition int32
	Offset    int64
}

// String returns partition and offset, as in 0:42.
func (p Place) String() string { return fmt.Sprintf("%d:%d", p.Partition, p.Offset) }

// Compare orders places by partition and offset.
func (p Place) Compare(q Place) int {
	return cmp.Or(cmp.Compare(p.Partition, q.Partition), cmp.Compare(p.Offset, q.Offset))
}

// ParsePlace reads what String writes.
func ParsePlace(text string) (Place, error) {
	partition, offset, ok := strings.Cut(text, ":")
	p, err := strconv.ParseUint(partition, 10, 31)
	o, offsetErr := strconv.ParseUint(offset, 10, 63)
	if !ok || err != nil || offsetErr != nil {
		return Place{}, fmt.Errorf("%q is not a partition and an offset, as in 0:42", text)
	}
	return Place{Partition: int32(p), Offset: int64(o)}, nil
}
