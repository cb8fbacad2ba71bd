package encode

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// Parked says to which parking of a key a dead letter belongs, and where it is in its order.
type Parked struct {
	// Parking identifies the time for which the key is parked, from its first bad record to its release. It
	// has no spaces.
	Parking string
	Place   Place
}

// A Place is the place of a dead letter in the order of its key, which is that of its row. A row that is streamed again has
// the same place. One that is copied again has a later place, and so has every row that is copied after it.
type Place struct {
	Generation int64 // of the LSN: see checkpoint.Position
	LSN        pglogrepl.LSN
	Owner      int64 // of the relay that has copied the row; 0: the row was streamed
	Index      int   // of the row in its transaction
}

// Compare returns -1, 0 or 1 if p is before q, equal to q or after q.
func (p Place) Compare(q Place) int {
	return cmp.Or(cmp.Compare(p.Generation, q.Generation), cmp.Compare(p.LSN, q.LSN), cmp.Compare(p.Owner, q.Owner), cmp.Compare(p.Index, q.Index))
}

// String returns the place as ParsePlace reads it.
func (p Place) String() string {
	return fmt.Sprintf("%d:%s:%d:%d", p.Generation, p.LSN, p.Owner, p.Index)
}

// ParsePlace parses the result of [Place.String].
func ParsePlace(s string) (p Place, err error) {
	parts := strings.Split(s, ":")
	if len(parts) != 4 {
		return Place{}, fmt.Errorf("%q is not the place of a dead letter", s)
	}
	lsn, lsnErr := pglogrepl.ParseLSN(parts[1])
	generation, generationErr := strconv.ParseInt(parts[0], 10, 64)
	owner, ownerErr := strconv.ParseInt(parts[2], 10, 64)
	index, indexErr := strconv.Atoi(parts[3])
	if err := errors.Join(lsnErr, generationErr, ownerErr, indexErr); err != nil {
		return Place{}, fmt.Errorf("%q is not the place of a dead letter: %w", s, err)
	}
	return Place{generation, lsn, owner, index}, nil
}

func (p Parked) header() sink.Header {
	return sink.Header{Key: DeadLetterParked, Value: []byte(p.Parking + " " + p.Place.String())}
}

func parseParked(value string) (*Parked, error) {
	parking, place, _ := strings.Cut(value, " ")
	at, err := ParsePlace(place)
	if err != nil {
		return nil, err
	}
	return &Parked{parking, at}, nil
}

// Park adds to a dead letter that it belongs to a parked key, and sets the key of its record, so that all dead letters
// of a key are in one partition.
func Park(deadLetter *sink.Record, key []byte, p Parked) *sink.Record {
	deadLetter.Key = key
	deadLetter.Headers = append(deadLetter.Headers, p.header())
	return deadLetter
}
