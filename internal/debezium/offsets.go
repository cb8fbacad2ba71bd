package debezium

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pglogrepl"
)

// Offsets are what Kafka Connect has stored for connectors.
type Offsets struct{ stored []Offset }

// An Offset is how far a connector has come.
type Offset struct {
	connector string // empty: not said
	server    string // topic.prefix

	// lsnCommit is the end of the last transaction that was complete before what LSN points at;
	// 0: none.
	lsnCommit pglogrepl.LSN
	lsn       pglogrepl.LSN // of the last event; 0: none
	lsnProc   pglogrepl.LSN // of the last event that has been processed; 0: none
	txID      int64         // of the last event

	snapshot bool // the first copy had not ended
}

// errOffsets is the error of what is no stored offset.
var errOffsets = errors.New("not stored offsets")

// ParseOffsets reads what GET /connectors/<name>/offsets returns, or the file of a standalone
// worker or Debezium Server (offset.storage.file.filename). The error wraps [errOffsets].
//
// The former: https://kafka.apache.org/documentation/#connect_rest
func ParseOffsets(data []byte) (*Offsets, error) {
	var o Offsets
	if bytes.HasPrefix(data, javaMagic()) {
		m, err := parseJavaMap(data)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errOffsets, err)
		}
		for _, p := range m {
			if p.value == nil {
				continue // an offset that has been reset
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

// read takes the two JSON objects of a stored offset.
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

// Of returns the offset of the connector with this topic.prefix, and of this name where the
// offsets have names. Empty is any, if there is only one.
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
		return nil, fmt.Errorf("%w of one connector: %d would fit, with the topic.prefix %q", errOffsets, len(found), server)
	case len(o.stored) == 0:
		return nil, fmt.Errorf("%w: there is none, so the connector has not sent anything yet", errOffsets)
	}
	return nil, fmt.Errorf("%w of this connector: none has the topic.prefix %q", errOffsets, server)
}

// inside reports whether the last event lies behind the last complete transaction: in one whose end
// the offset does not know, and whose rows may all have been sent or only some.
func (o *Offset) inside() bool { return max(o.lsn, o.lsnProc) > o.lsnCommit }
