package decoder

import (
	"fmt"
	"strings"

	"github.com/jackc/pglogrepl"
)

// An Error tells why a message is not one this package can accept. Its text has
// no part of the message but its type, so it never shows a value of a row.
type Error struct {
	LSN       pglogrepl.LSN // where the message starts, as given to Decode; 0/0 for messages that have no position
	CommitLSN pglogrepl.LSN // of the transaction that is open; 0/0 if none is
	Type      byte          // the message's first byte; 0 if it is empty
	Offset    int           // how many bytes of the message were read when it became clear
	Reason    string
}

func (e *Error) Error() string {
	var b strings.Builder
	if name := typeName(e.Type); name != "" {
		b.WriteString(name)
		b.WriteByte(' ')
	}
	b.WriteString("message")
	if e.LSN != 0 {
		fmt.Fprintf(&b, " at %s", e.LSN)
	}
	if e.CommitLSN != 0 {
		fmt.Fprintf(&b, " in the transaction committed at %s", e.CommitLSN)
	}
	fmt.Fprintf(&b, ", byte %d: %s", e.Offset, e.Reason)
	return b.String()
}

func typeName(t byte) string {
	switch t {
	case typeBegin:
		return "Begin"
	case typeCommit:
		return "Commit"
	case typeOrigin:
		return "Origin"
	case typeRelation:
		return "Relation"
	case typeType:
		return "Type"
	case typeInsert:
		return "Insert"
	case typeUpdate:
		return "Update"
	case typeDelete:
		return "Delete"
	case typeTruncate:
		return "Truncate"
	case typeMessage:
		return "logical"
	default:
		return ""
	}
}

// unknownType says what is wrong with a message of type t.
func unknownType(t byte) string {
	switch t {
	case 'S', 'E', 'c', 'A': // Stream Start, Stop, Commit, Abort
		return fmt.Sprintf("type %q belongs to streamed transactions, which were not asked for", t)
	case 'b', 'P', 'K', 'r', 'p': // Begin Prepare, Prepare, Commit Prepared, Rollback Prepared, Stream Prepare
		return fmt.Sprintf("type %q belongs to two-phase commit, which was not asked for", t)
	default:
		return fmt.Sprintf("unknown type %q", t)
	}
}
