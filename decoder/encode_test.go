package decoder

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
)

// encode is the inverse of Decode: it returns the message that decodes to out.
func encode(out Output) []byte {
	var b []byte
	switch m := out.(type) {
	case *Begin:
		b = appendLSN(append(b, 'B'), m.CommitLSN)
		return binary.BigEndian.AppendUint32(appendTime(b, m.CommitTime), m.XID)
	case *Commit:
		b = appendLSN(append(b, 'C', 0), m.CommitLSN)
		return appendTime(appendLSN(b, m.EndLSN), m.CommitTime)
	case *Origin:
		return appendName(appendLSN(append(b, 'O'), m.CommitLSN), m.Name)
	case *Relation:
		return appendRelation(append(b, 'R'), m)
	case *Type:
		b = binary.BigEndian.AppendUint32(append(b, 'Y'), m.OID)
		return appendName(appendName(b, m.Namespace), m.Name)
	case *Insert:
		b = binary.BigEndian.AppendUint32(append(b, 'I'), m.Relation.OID)
		return appendRow(append(b, 'N'), m.Row)
	case *Update:
		b = binary.BigEndian.AppendUint32(append(b, 'U'), m.Relation.OID)
		if m.OldKind != OldNone {
			b = appendRow(append(b, byte(m.OldKind)), m.Old)
		}
		return appendRow(append(b, 'N'), m.New)
	case *Delete:
		b = binary.BigEndian.AppendUint32(append(b, 'D'), m.Relation.OID)
		return appendRow(append(b, byte(m.OldKind)), m.Old)
	case *Truncate:
		return appendTruncate(append(b, 'T'), m)
	case *LogicalMessage:
		b = appendLSN(append(b, 'M', bit(m.Transactional, 1)), m.LSN)
		return appendBytes(appendName(b, m.Prefix), m.Content)
	default:
		panic(fmt.Sprintf("no encoding for %T", out))
	}
}

func appendRelation(b []byte, r *Relation) []byte {
	b = binary.BigEndian.AppendUint32(b, r.OID)
	b = append(appendName(appendName(b, r.Namespace), r.Name), r.ReplicaIdentity)
	b = binary.BigEndian.AppendUint16(b, uint16(len(r.Columns)))
	for _, col := range r.Columns {
		b = appendName(append(b, bit(col.Key, 1)), col.Name)
		b = binary.BigEndian.AppendUint32(b, col.TypeOID)
		b = binary.BigEndian.AppendUint32(b, uint32(col.TypeModifier))
	}
	return b
}

func appendTruncate(b []byte, m *Truncate) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(m.Relations)))
	b = append(b, bit(m.Cascade, 1)|bit(m.RestartIdentity, 2))
	for _, r := range m.Relations {
		b = binary.BigEndian.AppendUint32(b, r.OID)
	}
	return b
}

func appendRow(b []byte, row []Value) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(len(row)))
	for _, v := range row {
		b = append(b, byte(v.Kind))
		if v.Kind == Text || v.Kind == Binary {
			b = appendBytes(b, v.Data)
		}
	}
	return b
}

func appendBytes(b, data []byte) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(data))), data...)
}

func appendName(b []byte, name string) []byte {
	return append(append(b, name...), 0)
}

func appendLSN(b []byte, lsn pglogrepl.LSN) []byte {
	return binary.BigEndian.AppendUint64(b, uint64(lsn))
}

func appendTime(b []byte, t time.Time) []byte {
	return binary.BigEndian.AppendUint64(b, uint64((t.Unix()-postgresEpoch)*1e6+int64(t.Nanosecond())/1e3))
}

func bit(set bool, b byte) byte {
	if set {
		return b
	}
	return 0
}
