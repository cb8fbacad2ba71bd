package decoder

import (
	"fmt"
	"strings"
	"time"
)

// printOutput returns an Output in the format of the golden files. If a value is longer than 60 bytes, printOutput
// shows its length and its first bytes.
func printOutput(out Output) string {
	switch m := out.(type) {
	case *Begin:
		return fmt.Sprintf("begin %s xid=%d time=%s", m.CommitLSN, m.XID, m.CommitTime.Format(time.RFC3339Nano))
	case *Commit:
		return fmt.Sprintf("commit %s end=%s time=%s", m.CommitLSN, m.EndLSN, m.CommitTime.Format(time.RFC3339Nano))
	case *Origin:
		return fmt.Sprintf("origin %q committed at %s", m.Name, m.CommitLSN)
	case *Relation:
		return printRelation(m)
	case *Type:
		return fmt.Sprintf("type %d %s.%s", m.OID, m.Namespace, m.Name)
	case *Insert:
		return "insert " + tableName(m.Relation) + printRow(m.Relation, m.Row)
	case *Update:
		old := ""
		if m.OldKind != OldNone {
			old = fmt.Sprintf(" old %c", m.OldKind) + printRow(m.Relation, m.Old) + " new"
		}
		return "update " + tableName(m.Relation) + old + printRow(m.Relation, m.New)
	case *Delete:
		return "delete " + tableName(m.Relation) + fmt.Sprintf(" old %c", m.OldKind) + printRow(m.Relation, m.Old)
	case *Truncate:
		var names strings.Builder
		for _, r := range m.Relations {
			names.WriteString(" " + tableName(r))
		}
		return fmt.Sprintf("truncate%s cascade=%t restart=%t", names.String(), m.Cascade, m.RestartIdentity)
	case *LogicalMessage:
		return fmt.Sprintf("message %s transactional=%t %q %s", m.LSN, m.Transactional, m.Prefix, printData(m.Content))
	default:
		return fmt.Sprintf("%T", out)
	}
}

func printRelation(r *Relation) string {
	var b strings.Builder
	fmt.Fprintf(&b, "relation %d %s identity=%c", r.OID, tableName(r), r.ReplicaIdentity)
	for _, c := range r.Columns {
		fmt.Fprintf(&b, " %s:%d", c.Name, c.TypeOID)
		if c.TypeModifier != -1 {
			fmt.Fprintf(&b, "/%d", c.TypeModifier)
		}
		if c.Key {
			b.WriteByte('*')
		}
	}
	return b.String()
}

func printRow(r *Relation, row []Value) string {
	var b strings.Builder
	for i, v := range row {
		fmt.Fprintf(&b, " %s=", r.Columns[i].Name)
		switch v.Kind {
		case Null:
			b.WriteString("null")
		case Unchanged:
			b.WriteString("unchanged")
		case Text:
			b.WriteString(printData(v.Data))
		case Binary:
			b.WriteString("b" + printData(v.Data))
		}
	}
	return b.String()
}

func printData(data []byte) string {
	if len(data) > 60 {
		return fmt.Sprintf("%q...(%d)", data[:20], len(data))
	}
	return fmt.Sprintf("%q", data)
}

func tableName(r *Relation) string { return r.Namespace + "." + r.Name }
