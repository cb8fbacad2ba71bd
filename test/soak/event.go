package soak

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"

	"github.com/google/uuid"

	"github.com/outbox-cdc/outbox-cdc/internal/delivery"
)

// An Event is one outbox row. It determines key, id, headers and payload of the
// row, so a reader knows the expected record.
type Event struct {
	Run       string    // of the Writers; contains neither '|' nor '"' nor '\'
	Aggregate string    // contains none of these either
	Seq       int64     // within the aggregate, from 1
	Tx        uuid.UUID // the transaction
	Index     int       // of the row in the transaction, from 0
	Count     int       // number of rows of the transaction
}

// EventType is the type of every event.
const EventType = "OracleEvent"

// ID returns the row's id.
func (e Event) ID() uuid.UUID {
	return uuid.NewSHA1(e.Tx, binary.BigEndian.AppendUint32(nil, uint32(e.Index)))
}

// Headers returns the record's headers: the default headers of the relay, then the
// members of HeadersColumn in the order of jsonb.
func (e Event) Headers() []delivery.Header {
	return []delivery.Header{
		{Key: "id", Value: e.ID().String()},
		{Key: "eventType", Value: EventType},
		{Key: "tx", Value: e.Tx.String()},
		{Key: "seq", Value: strconv.FormatInt(e.Seq, 10)},
	}
}

// HeadersColumn returns the row's headers column, a JSON object.
func (e Event) HeadersColumn() string { return fmt.Sprintf(`{"tx": "%s", "seq": "%d"}`, e.Tx, e.Seq) }

// Payload returns the row's payload: a JSON string as jsonb prints it. It has about
// size bytes, or more if the event does not fit:
//
//	"run|aggregate|seq|tx|index|count|padding|crc"
func (e Event) Payload(size int) []byte {
	p := make([]byte, 0, max(size, 128)+16)
	p = fmt.Appendf(p, `"%s|%s|%d|%s|%d|%d|`, e.Run, e.Aggregate, e.Seq, e.Tx, e.Index, e.Count)
	p = appendPadding(p, size-len(p)-len(`|01234567"`), uint64(e.Seq))
	return fmt.Appendf(p, `|%08x"`, crc32.ChecksumIEEE(p[1:]))
}

// appendPadding appends n letters that compress badly and depend on seed.
func appendPadding(p []byte, n int, seed uint64) []byte {
	const letters = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_"
	x := seed*0x9E3779B97F4A7C15 + 1
	for ; n > 0; n-- {
		x ^= x << 13 // xorshift64
		x ^= x >> 7
		x ^= x << 17
		p = append(p, letters[x>>58])
	}
	return p
}

// ParsePayload parses a payload that Payload has returned. If it returns an error,
// no part of the payload is reliable.
func ParsePayload(value []byte) (Event, error) {
	body, ok := bytes.CutPrefix(value, []byte{'"'})
	body, ok2 := bytes.CutSuffix(body, []byte{'"'})
	end := bytes.LastIndexByte(body, '|')
	if !ok || !ok2 || end < 0 {
		return Event{}, errors.New("the payload is not an event")
	}
	if sum := fmt.Sprintf("%08x", crc32.ChecksumIEEE(body[:end])); sum != string(body[end+1:]) {
		return Event{}, errors.New("the payload's checksum is wrong")
	}
	return parseFields(body[:end])
}

func parseFields(body []byte) (e Event, err error) {
	fields := bytes.SplitN(body, []byte{'|'}, 7)
	if len(fields) != 7 {
		return Event{}, errors.New("the payload has too few fields")
	}
	var errs [4]error
	e.Run, e.Aggregate = string(fields[0]), string(fields[1])
	e.Seq, errs[0] = strconv.ParseInt(string(fields[2]), 10, 64)
	e.Tx, errs[1] = uuid.ParseBytes(fields[3])
	e.Index, errs[2] = strconv.Atoi(string(fields[4]))
	e.Count, errs[3] = strconv.Atoi(string(fields[5]))
	return e, errors.Join(errs[:]...)
}

// FindEvent finds the payload of an event of the run in a message that contains a
// row. It does not verify the checksum.
func FindEvent(message []byte, run string) (Event, bool) {
	_, body, ok := bytes.Cut(message, []byte(`"`+run+`|`))
	if !ok {
		return Event{}, false
	}
	fields := body[:min(len(body), 512)] // the padding may be long
	e, err := parseFields(append([]byte(run+"|"), fields...))
	return e, err == nil
}

// String describes the event in one line.
func (e Event) String() string {
	return fmt.Sprintf("%s/%d (transaction %s, row %d of %d)", e.Aggregate, e.Seq, e.Tx, e.Index, e.Count)
}
