package debezium

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pglogrepl"
)

// Offsets are the offsets that Kafka Connect has stored for connectors.
type Offsets struct{ stored []Offset }

// An Offset is the position of a connector.
type Offset struct {
	connector string // empty: unknown
	server    string // topic.prefix

	// lsnCommit is the end of the last complete transaction before lsn; 0: none.
	lsnCommit pglogrepl.LSN
	lsn       pglogrepl.LSN // of the last event; 0: none
	lsnProc   pglogrepl.LSN // of the last processed event; 0: none
	txID      int64         // of the last event

	snapshot bool // the initial snapshot was not complete
}

// errOffsets says that data has no valid stored offset.
var errOffsets = errors.New("not stored offsets")

// ParseOffsets parses the response to GET /connectors/<name>/offsets, or the offset file of a standalone
// worker or Debezium Server (offset.storage.file.filename). The error wraps [errOffsets].
//
// https://kafka.apache.org/documentation/#connect_rest
func ParseOffsets(data []byte) (*Offsets, error) {
	var o Offsets
	if bytes.HasPrefix(data, javaMagic()) {
		m, err := parseJavaMap(data)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errOffsets, err)
		}
		for _, p := range m {
			if p.value == nil {
				continue // a reset offset
			}
			var key []json.RawMessage
			var offset Offset
			if json.Unmarshal(p.key, &key) != nil || len(key) != 2 || json.Unmarshal(key[0], &offset.connector) != nil {
				return nil, fmt.Errorf("%w: a key is not [connector, partition]", errOffsets)
			}
			if err := offset.read(key[1], p.value); err != nil {
				return nil, err
			}
			o.stored = append(o.stored, offset)
		}
		return &o, nil
	}
	var body struct {
		Offsets []struct{ Partition, Offset json.RawMessage }
	}
	if err := json.Unmarshal(data, &body); err != nil || body.Offsets == nil {
		return nil, fmt.Errorf("%w: neither the answer to GET /connectors/<name>/offsets nor a worker's file", errOffsets)
	}
	for _, stored := range body.Offsets {
		var offset Offset
		if string(stored.Offset) == "null" || stored.Offset == nil {
			continue
		}
		if err := offset.read(stored.Partition, stored.Offset); err != nil {
			return nil, err
		}
		o.stored = append(o.stored, offset)
	}
	return &o, nil
}

// read parses the two JSON objects of a stored offset.
func (o *Offset) read(partition, offset []byte) error {
	var where struct{ Server string }
	var position struct {
		LSN       *uint64         `json:"lsn"`
		LSNProc   *uint64         `json:"lsn_proc"`
		LSNCommit *uint64         `json:"lsn_commit"`
		TxID      *int64          `json:"txId"`
		Snapshot  json.RawMessage `json:"snapshot"`
	}
	if json.Unmarshal(partition, &where) != nil || where.Server == "" {
		return fmt.Errorf("%w: a partition is not {server}", errOffsets)
	}
	if err := json.Unmarshal(offset, &position); err != nil {
		return fmt.Errorf("%w: an offset of %s has no positions", errOffsets, where.Server)
	}
	if position.LSN == nil && position.LSNProc == nil && position.LSNCommit == nil {
		return fmt.Errorf("%w: an offset of %s is not one of the PostgreSQL connector", errOffsets, where.Server)
	}
	o.server = where.Server
	for _, n := range []struct {
		to   *pglogrepl.LSN
		from *uint64
	}{{&o.lsn, position.LSN}, {&o.lsnProc, position.LSNProc}, {&o.lsnCommit, position.LSNCommit}} {
		if n.from != nil {
			*n.to = pglogrepl.LSN(*n.from)
		}
	}
	if position.TxID != nil {
		o.txID = *position.TxID
	}
	snapshot := string(position.Snapshot)
	o.snapshot = snapshot != "" && snapshot != "null" && snapshot != "false"
	return nil
}

// Of returns the offset of the connector with the given topic.prefix and, if the offsets have names, the
// given name. An empty argument matches any, if there is only one.
func (o *Offsets) Of(server, connector string) (*Offset, error) {
	var found []*Offset
	for i := range o.stored {
		s := &o.stored[i]
		if (server == "" || s.server == server) && (s.connector == "" || connector == "" || s.connector == connector) {
			found = append(found, s)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return nil, fmt.Errorf("%w of one connector: %d connectors have the topic.prefix %q", errOffsets, len(found), server)
	case len(o.stored) == 0:
		return nil, fmt.Errorf("%w: there is none, because the connector has not sent anything yet", errOffsets)
	}
	return nil, fmt.Errorf("%w of this connector: none has the topic.prefix %q", errOffsets, server)
}

// inside reports whether the last event is after the last complete transaction. It is then in a transaction
// of which all rows, or only some, may have been sent.
func (o *Offset) inside() bool { return max(o.lsn, o.lsnProc) > o.lsnCommit }
