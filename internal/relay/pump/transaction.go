package pump

import (
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// An openTx is the transaction being read.
type openTx struct {
	encode.Tx
	xid     uint32
	rows    int  // rows read so far
	skipped bool // its rows are not sent
	copied  bool // its rows are read from tables
}

// forRecord returns what a record gets of the transaction. A copied row has no position.
func (tx *openTx) forRecord() encode.Tx {
	if tx.copied {
		return encode.Tx{CommitTime: tx.CommitTime, Timestamp: tx.Timestamp}
	}
	return tx.Tx
}

// position returns the position of a row in the stream, which a copied row does not have.
func (tx *openTx) position(index int) sink.Position {
	if tx.copied {
		return sink.Position{}
	}
	return sink.Position{CommitLSN: uint64(tx.CommitLSN), Index: index}
}
