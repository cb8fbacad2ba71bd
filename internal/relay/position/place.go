package position

import (
	"cmp"
	"context"
	"errors"
	"log/slog"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// DefaultTopic is the default name of a store at the broker.
const DefaultTopic = "outbox-cdc.positions"

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

// open opens the store of the relay called name, and creates one that is missing. on is the relay's connection to the broker,
// which must outlive the store. A file that cannot be used is noted in stall until it can be used. The zero Place has a nil store.
func (p Place) open(ctx context.Context, on sink.Sink, name string, stall *stall, log *slog.Logger) (sink.PositionStore, error) {
	switch {
	case p.File != "":
		return openFile(ctx, &file{path: p.File, name: name, stall: stall, log: log})
	case p.Topic != "":
		return sink.OpenPositions(ctx, on, p.Topic, name)
	}
	return nil, nil //nolint:nilnil // documented
}

// read returns what [sink.PositionStore.Read] returns for the relay called name. It creates and changes nothing, and contacts the
// broker only if the store is there. A missing store has no values.
func (p Place) read(ctx context.Context, broker sink.Broker, name string, log *slog.Logger) ([]sink.StoredValue, error) {
	switch {
	case p.File != "":
		return (&file{path: p.File, name: name, stall: new(stall), log: log}).Read(ctx)
	case p.Topic != "":
		return readBroker(ctx, broker, p.Topic, name, log)
	}
	return nil, nil
}

// readBroker is read for a store at the broker.
func readBroker(ctx context.Context, broker sink.Broker, topic, name string, log *slog.Logger) ([]sink.StoredValue, error) {
	opened, err := sink.OpenReader(broker, log)
	if err != nil {
		return nil, err
	}
	reader, ok := opened.(sink.PositionReader)
	if !ok {
		return nil, errors.Join(errors.ErrUnsupported, opened.Close())
	}
	values, err := reader.ReadPositions(ctx, topic, name)
	return values, errors.Join(err, reader.Close())
}
