package encode

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unsafe"

	"github.com/google/uuid"
	"github.com/jackc/pglogrepl"
	"github.com/tidwall/gjson"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// fixHeaders makes the headers that are the same for every record.
func (r *Router) fixHeaders() error {
	enc := r.cfg.Encoding.Headers
	if isJSON(enc) {
		var err error
		if r.plain, err = r.cfg.Debezium.header(enc); err != nil {
			return err
		}
	}
	fixed := func(headers *[]sink.Header, name, value string) error {
		encoded, err := r.plainHeader([]byte{}, bytesOf(value))
		*headers = append(*headers, sink.Header{Key: name, Value: encoded})
		return err
	}
	if d := r.cfg.Debezium; d.ContextHeaders {
		const context = "__debezium.context."
		for _, h := range [][2]string{
			{"connectorLogicalName", d.Name}, {"taskId", "0"}, {"connectorName", "postgresql"}, {"runId", uuid.NewString()},
		} {
			if err := fixed(&r.context, context+h[0], h[1]); err != nil {
				return err
			}
		}
	}
	for _, h := range r.cfg.Static {
		if err := fixed(&r.static, h.Name, h.Value); err != nil {
			return err
		}
	}
	return nil
}

// plainHeader appends text in the encoding of headers.
func (r *Router) plainHeader(dst, text []byte) ([]byte, error) {
	if r.plain == nil {
		return append(dst, text...), nil
	}
	out, _, err := r.plain.Append(dst, text)
	return out, err
}

// rowHeaders adds the members of the headers column, in the order of the column's text.
func (b *builder) rowHeaders() {
	v := b.raw(b.plan.headers)
	if v == nil {
		return
	}
	if oid := b.plan.headers.oid; oid != oidJSON && oid != oidJSONB && !json.Valid(v) {
		b.fail(b.plan.headers.name, "is not JSON")
		return
	}
	// Nothing writes to v while object is in use.
	object := gjson.Parse(unsafe.String(unsafe.SliceData(v), len(v))) //nolint:gosec // saves a copy; see above
	if !object.IsObject() {
		if object.Type != gjson.Null {
			b.fail(b.plan.headers.name, "is not a JSON object")
		}
		return
	}
	members := 0
	object.ForEach(func(name, member gjson.Result) bool {
		if members++; members > maxMembers {
			b.fail(b.plan.headers.name, fmt.Sprintf("has more than %d members", maxMembers))
			return false
		}
		if b.r.isOwnHeader(name.Str) {
			b.fail(b.plan.headers.name, "has a member with the name of a header that only the relay gives (id, eventType, lsn, outbox_timestamp, dead_letter_…)")
			return false
		}
		text := member.Raw
		if member.Type == gjson.String && b.r.plain == nil {
			text = member.Str
		}
		b.header(name.Str, bytesOf(text))
		return true
	})
}

// isOwnHeader reports whether only the relay may set a header of this name. A row must not be able to set
// the identity of an event, or to look like a dead letter. The set of names is small, so that it rejects
// few existing rows.
func (r *Router) isOwnHeader(name string) bool {
	switch name {
	case IDHeader, TypeHeader, sink.TimestampHeader:
		return true
	case LSNHeader:
		return r.cfg.LSNHeader
	}
	return strings.HasPrefix(name, deadLetterPrefix)
}

// RowHeaders returns the names of the headers with the place of a record's row in the stream. Only the relay gives them. They
// are the same whenever it sends the row.
func RowHeaders() []string { return []string{LSNHeader, DeadLetterLSN, DeadLetterIndex} }

// EventHeaders returns the names of the headers that say which event a record is of. A dead letter belongs to one parking.
func EventHeaders() []string { return []string{IDHeader, DeadLetterParked} }

// bytesOf returns the bytes of s without copying. They must not be written to. The result is never nil,
// because an empty header is not null.
func bytesOf(s string) []byte {
	if s == "" {
		return []byte{}
	}
	return unsafe.Slice(unsafe.StringData(s), len(s)) //nolint:gosec // saves a copy; see above
}

// lsnHeader adds the position of the row. LSNs of one timeline are comparable, as are indexes within a transaction.
func (b *builder) lsnHeader(commit pglogrepl.LSN, index int) {
	text := strconv.AppendInt(append(appendLSN(b.r.lsn[:0], commit), ':'), int64(index), 10)
	b.r.lsn = text
	if b.r.plain != nil {
		text = b.scratch(LSNHeader, func(dst []byte) ([]byte, error) { return b.r.plainHeader(dst, text) })
	}
	b.header(LSNHeader, text)
}

// appendLSN appends lsn as its method String writes it, which would allocate.
func appendLSN(dst []byte, lsn pglogrepl.LSN) []byte {
	begin := len(dst)
	dst = strconv.AppendUint(dst, uint64(lsn>>32), 16)
	dst = strconv.AppendUint(append(dst, '/'), uint64(uint32(lsn)), 16)
	for i, c := range dst[begin:] {
		if c >= 'a' {
			dst[begin+i] = c - 'a' + 'A'
		}
	}
	return dst
}
