package outbox

import (
	"encoding/hex"
	"strconv"
	"strings"
)

// A row has the values of an event's columns, or of the members of its message.
type row struct {
	event   *Event
	id      string
	payload []byte // nil: NULL
	headers []byte // a JSON object; nil: NULL
}

func (r *row) payloadValue() any {
	if r.payload == nil {
		return nil
	}
	return string(r.payload)
}

func (r *row) payloadBytes() any {
	if r.payload == nil {
		return nil
	}
	return r.payload
}

func (r *row) headersValue() any {
	if r.headers == nil {
		return nil
	}
	return string(r.headers)
}

func (r *row) partitionValue() any {
	if r.event.Partition == nil {
		return nil
	}
	return strconv.Itoa(int(*r.event.Partition))
}

func (r *row) schemaVersionValue() any {
	if r.event.SchemaVersion == 0 {
		return nil
	}
	return strconv.Itoa(r.event.SchemaVersion)
}

// array returns one value of each row, as the text of an array
// (https://www.postgresql.org/docs/current/arrays.html#ARRAYS-IO).
func array(rows []row, value func(*row) any) string {
	var b strings.Builder
	b.WriteByte('{')
	for i := range rows {
		if i > 0 {
			b.WriteByte(',')
		}
		switch v := value(&rows[i]).(type) {
		case string:
			writeElement(&b, v)
		case []byte:
			b.WriteString(`"\\x` + hex.EncodeToString(v) + `"`)
		default:
			b.WriteString("NULL")
		}
	}
	b.WriteByte('}')
	return b.String()
}

// writeElement writes a quoted element of an array.
func writeElement(b *strings.Builder, text string) {
	b.WriteByte('"')
	for {
		i := strings.IndexAny(text, `"\`)
		if i < 0 {
			break
		}
		b.WriteString(text[:i])
		b.WriteByte('\\')
		b.WriteByte(text[i])
		text = text[i+1:]
	}
	b.WriteString(text)
	b.WriteByte('"')
}
