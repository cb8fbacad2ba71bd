package decoder

import (
	"fmt"
	"strings"

	"github.com/jackc/pglogrepl"
)

// An Error says why a message cannot be decoded. It never contains a value of a row.
type Error struct {
	LSN       pglogrepl.LSN // of the message, as passed to Decode; 0/0 for messages without an LSN
	CommitLSN pglogrepl.LSN // of the open transaction; 0/0 if none is open
	Type      byte          // the first byte of the message; 0 if it is empty
	Offset    int           // bytes of the message that were read before the failure
	Reason    string
}

// Error names the message, its transaction, the offset and the reason.
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

// unknownType returns the reason of the error for a message of type t.
func unknownType(t byte) string {
	switch t {
	case 'S', 'E', 'c', 'A': // Stream Start, Stop, Commit, Abort
		return fmt.Sprintf("type %q belongs to streamed transactions, which were not requested", t)
	case 'b', 'P', 'K', 'r', 'p': // Begin Prepare, Prepare, Commit Prepared, Rollback Prepared, Stream Prepare
		return fmt.Sprintf("type %q belongs to two-phase commit, which was not requested", t)
	default:
		return fmt.Sprintf("unknown type %q", t)
	}
}
