package position

import (
	"cmp"

	"github.com/outbox-cdc/outbox-cdc/internal/relay/position/filestore"
)

// DefaultTopic is the default name of a store at the broker.
const DefaultTopic = "outbox-cdc.positions"

// Errors of a position file: see package filestore.
var (
	ErrFile       = filestore.ErrDenied
	ErrFileFailed = filestore.ErrFailed
)

// A Place is where a relay stores its position record, under its name. It is at most one of its fields. The zero Place is
// nowhere.
type Place struct {
	Topic string // the store at the broker, as [sink.PositionOpener] names it: for Kafka, a compacted topic
	File  string // path of a file
}

// IsZero reports whether the position is stored nowhere.
func (p Place) IsZero() bool { return p == Place{} }

// String returns the name of the store or the path of the file. It is empty for the zero Place.
func (p Place) String() string { return cmp.Or(p.Topic, p.File) }
