package decoder

import (
	"fmt"
	"strings"
	"testing"
)

type benchMessage struct {
	name string
	data []byte
}

// benchTable returns an outbox table whose rows have about 480 bytes.
func benchTable() *Relation {
	r := &Relation{OID: 16385, Namespace: "public", Name: "outbox", ReplicaIdentity: 'd'}
	for _, name := range []string{"id", "position", "aggregatetype", "aggregateid", "type", "payload", "headers"} {
		r.Columns = append(r.Columns, Column{Name: name, TypeOID: 25, TypeModifier: -1})
	}
	return r
}

func benchMessages() []benchMessage {
	r := benchTable()
	text := func(s string) Value { return Value{Kind: Text, Data: []byte(s)} }
	row := []Value{
		text("0197a0e0-0000-7000-8000-000000000001"), text("123456"), text("order"), text("order-7"), text("OrderPlaced"),
		text(`{"body": "` + strings.Repeat("x", 350) + `"}`),
		{Kind: Null},
	}
	key := make([]Value, len(row))
	for i := range key {
		key[i].Kind = Null
	}
	key[0] = row[0]
	var messages []benchMessage
	for _, out := range []Output{
		&Begin{CommitLSN: 0x100, XID: 731},
		&Insert{Relation: r, Row: row},
		&Commit{CommitLSN: 0x100, EndLSN: 0x130},
		&Update{Relation: r, OldKind: OldRow, Old: row, New: row},
		&Delete{Relation: r, OldKind: OldKey, Old: key},
		&Truncate{Relations: []*Relation{r}},
		r,
		&Type{OID: 24710, Namespace: "public", Name: "mood"},
		&Origin{CommitLSN: 0x55AA, Name: "upstream"},
		&LogicalMessage{LSN: 0x80, Transactional: true, Prefix: "snapshot", Content: []byte("10:20:")},
	} {
		name := strings.TrimPrefix(fmt.Sprintf("%T", out), "*decoder.")
		messages = append(messages, benchMessage{name, encode(out)})
	}
	return messages
}

// benchDecoder returns a Decoder that knows the table and has an open transaction.
func benchDecoder(tb testing.TB) *Decoder {
	tb.Helper()
	d := New()
	mustDecode(tb, d, encode(benchTable()))
	mustDecode(tb, d, encode(&Begin{CommitLSN: 0x100}))
	return d
}

func BenchmarkDecode(b *testing.B) {
	for _, m := range benchMessages() {
		b.Run(m.name, func(b *testing.B) {
			d := benchDecoder(b)
			open := m.name != "Begin"
			b.SetBytes(int64(len(m.data)))
			b.ReportAllocs()
			for b.Loop() {
				d.open, d.endLSN = open, 0
				if _, err := d.Decode(0, m.data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkTransaction decodes transactions of ten rows.
func BenchmarkTransaction(b *testing.B) {
	d := benchDecoder(b)
	data := map[string][]byte{}
	for _, m := range benchMessages() {
		data[m.name] = m.data
	}
	session := [][]byte{data["Begin"]}
	for range 10 {
		session = append(session, data["Insert"])
	}
	session = append(session, data["Commit"])
	d.open = false
	b.ReportAllocs()
	for b.Loop() {
		d.endLSN = 0
		for _, m := range session {
			if _, err := d.Decode(0, m); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/10, "ns/row")
}
