package decoder

import (
	"bytes"
	"encoding/binary"
	"errors"
	"runtime"
	"testing"
	"weak"

	"github.com/google/go-cmp/cmp"
)

// If a definition is repeated, Decode returns the same *Relation. If it has changed, Decode returns a new *Relation
// and leaves the old one unchanged.
func TestRelationIdentity(t *testing.T) {
	d := New()
	table := func(columns ...Column) []byte {
		return encode(&Relation{OID: 1, Name: "t", ReplicaIdentity: 'd', Columns: columns})
	}
	id, body := Column{Name: "id", TypeOID: 23, TypeModifier: -1}, Column{Name: "body", TypeOID: 25, TypeModifier: -1}
	row := encode(&Insert{Relation: &Relation{OID: 1}, Row: []Value{{Kind: Null}}})

	mustDecode(t, d, encode(&Begin{CommitLSN: 0x100}))
	data := table(id)
	first := mustDecode(t, d, data).(*Relation)
	clear(data) // the caller reuses the memory of the message
	if got := mustDecode(t, d, row).(*Insert).Relation; got != first {
		t.Errorf("row of %p, want %p", got, first)
	}
	if again := mustDecode(t, d, table(id)).(*Relation); again != first {
		t.Error("an equal definition returns a new relation")
	}
	mustDecode(t, d, encode(&Relation{OID: 2, Name: "other"}))
	if got := mustDecode(t, d, row).(*Insert).Relation; got != first {
		t.Error("another table's definition changes the relation")
	}

	second := mustDecode(t, d, table(body)).(*Relation)
	if second == first {
		t.Error("a changed definition returns the same relation")
	}
	if got := mustDecode(t, d, row).(*Insert).Relation; got != second {
		t.Error("row of the old relation")
	}
	if diff := cmp.Diff([]Column{id}, first.Columns); diff != "" {
		t.Errorf("the old relation has changed: -want +got:\n%s", diff)
	}
	back := mustDecode(t, d, table(id)).(*Relation)
	if diff := cmp.Diff(first, back); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// A column has the name of its type that the server has sent last, and a repeated definition with another type is another relation.
func TestTypesOfColumns(t *testing.T) {
	d := New()
	define := func() *Relation {
		t.Helper()
		return mustDecode(t, d, encode(&Relation{OID: 1, Name: "t", Columns: []Column{{Name: "a", TypeOID: 20_000}, {Name: "b", TypeOID: 25}}})).(*Relation)
	}
	unknown := define()
	mustDecode(t, d, encode(&Type{OID: 20_000, Name: "bytea"}))
	binary := define()
	mustDecode(t, d, encode(&Type{OID: 20_000, Name: "bytea"}))
	if again := define(); again != binary || binary == unknown {
		t.Error("the identity of the relation does not follow its types")
	}
	mustDecode(t, d, encode(&Type{OID: 20_000, Namespace: "public", Name: "mood"}))
	for _, c := range []struct {
		rel  *Relation
		want string
	}{{unknown, "."}, {binary, ".bytea"}, {define(), "public.mood"}} {
		if got := c.rel.Columns[0].BaseNamespace + "." + c.rel.Columns[0].BaseName; got != c.want || c.rel.Columns[1].BaseName != "" {
			t.Errorf("%+v, want %s", c.rel.Columns, c.want)
		}
	}
}

// Values are slices of the message, and appending to one does not write to the message.
func TestValuesAreSlicesOfTheMessage(t *testing.T) {
	d := New()
	table := &Relation{OID: 1, Columns: []Column{{Name: "a"}, {Name: "b"}}}
	mustDecode(t, d, encode(table))
	mustDecode(t, d, encode(&Begin{CommitLSN: 0x100}))
	data := encode(&Insert{Relation: table, Row: []Value{{Kind: Text, Data: []byte("x")}, {Kind: Text}}})
	row := mustDecode(t, d, data).(*Insert).Row
	data[bytes.IndexByte(data, 'x')] = 'y'
	if got := string(row[0].Data); got != "y" {
		t.Errorf("value %q is a copy", got)
	}
	if row[1].Data == nil {
		t.Error("an empty value is nil")
	}
	for i, v := range row {
		if cap(v.Data) != len(v.Data) {
			t.Errorf("value %d has length %d and capacity %d", i, len(v.Data), cap(v.Data))
		}
	}
}

// A message that fails does not change the Decoder.
func TestErrorDoesNotChangeState(t *testing.T) {
	d := New()
	known := &Relation{OID: 1, Name: "t", Columns: []Column{{Name: "id"}}}
	changed := &Relation{OID: 1, Name: "t", Columns: []Column{{Name: "id"}, {Name: "body"}}}
	begin, commit := &Begin{CommitLSN: 0x100}, &Commit{CommitLSN: 0x100, EndLSN: 0x130}
	row := &Insert{Relation: known, Row: []Value{{Kind: Null}}}

	mustDecode(t, d, encode(known))
	mustFail(t, d, append(encode(changed), 0))
	mustFail(t, d, append(encode(begin), 0))
	mustDecode(t, d, encode(begin))
	mustDecode(t, d, encode(row))
	mustFail(t, d, append(encode(commit), 0))
	e := mustFail(t, d, []byte{'I'})
	if diff := cmp.Diff(&Error{LSN: 0x10, CommitLSN: 0x100, Type: 'I', Offset: 1, Reason: e.Reason}, e); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	mustDecode(t, d, encode(commit))
}

// A count or length that exceeds the size of the message does not make the Decoder allocate memory.
func TestNoAllocationForFalseCounts(t *testing.T) {
	const most = 64 << 10
	wide := encode(&Relation{OID: 1, Name: "t", Columns: make([]Column, 32767)})
	columns := len(wide) - 32767*minColumn
	for name, data := range map[string][]byte{
		"columns of a relation": wide[:columns+minColumn],
		"columns of a row":      {'I', 0, 0, 0, 1, 'N', 0x7f, 0xff, 'n'},
		"length of a value":     {'I', 0, 0, 0, 1, 'N', 0x7f, 0xff, 't', 0x7f, 0xff, 0xff, 0xff},
		"relations":             {'T', 0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0, 1},
		"content of a message":  append(make([]byte, 10), 0x7f, 0xff, 0xff, 0xff),
	} {
		t.Run(name, func(t *testing.T) {
			if data[0] == 0 {
				data[0] = 'M'
			}
			d := New()
			mustDecode(t, d, encode(&Begin{CommitLSN: 0x100}))
			mustDecode(t, d, wide)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			mustFail(t, d, data)
			runtime.ReadMemStats(&after)
			if n := after.TotalAlloc - before.TotalAlloc; n > most {
				t.Errorf("%d bytes allocated for a message of %d", n, len(data))
			}
		})
	}
	// This message is long enough for its count of relations, but all of them are unknown.
	d := New()
	mustDecode(t, d, encode(&Begin{CommitLSN: 0x100}))
	data := append([]byte{'T'}, make([]byte, 5+4<<20)...)
	binary.BigEndian.PutUint32(data[1:], 1<<20)
	if n := testing.AllocsPerRun(1, func() { mustFail(t, d, data) }); n > 10 {
		t.Errorf("%v allocations for a list of unknown relations", n)
	}
}

func TestNoAllocationsPerMessage(t *testing.T) {
	for _, m := range benchMessages() {
		d := benchDecoder(t)
		data := m.data
		if m.name == "Relation" { // unchanged
			mustDecode(t, d, data)
		}
		got := testing.AllocsPerRun(100, func() {
			d.open = m.name != "Begin"
			mustDecode(t, d, data)
		})
		if got != 0 && m.name != "Type" {
			t.Errorf("%s: %v allocations, want 0", m.name, got)
		}
	}
}

func mustDecode(tb testing.TB, d *Decoder, data []byte) Output {
	tb.Helper()
	out, err := d.Decode(0x10, data)
	if err != nil {
		tb.Fatal(err)
	}
	return out
}

func mustFail(tb testing.TB, d *Decoder, data []byte) *Error {
	tb.Helper()
	out, err := d.Decode(0x10, data)
	var malformed *Error
	if !errors.As(err, &malformed) || out != nil {
		tb.Fatalf("Decode(%x) = %v, %v", data[:min(len(data), 20)], out, err)
	}
	return malformed
}

// The Decoder drops its pointers into a large message when the next message arrives.
func TestLargeMessageIsReleased(t *testing.T) {
	wide := &Relation{OID: 1, Columns: []Column{{Name: "a"}, {Name: "b"}}}
	narrow := &Relation{OID: 2, Columns: []Column{{Name: "a"}}}
	body := bytes.Repeat([]byte("x"), 4*largeMessage)
	large := Value{Kind: Text, Data: body}
	null := Value{Kind: Null}
	for name, message := range map[string][]byte{
		"column":          encode(&Insert{Relation: wide, Row: []Value{null, large}}),
		"old row":         encode(&Delete{Relation: narrow, OldKind: OldRow, Old: []Value{large}}),
		"logical message": encode(&LogicalMessage{Transactional: true, Prefix: "p", Content: body}),
	} {
		d := New()
		mustDecode(t, d, encode(wide))
		mustDecode(t, d, encode(narrow))
		mustDecode(t, d, encode(&Begin{CommitLSN: 0x100}))
		data := bytes.Clone(message)
		held := weak.Make(&data[0])
		mustDecode(t, d, data)
		mustDecode(t, d, encode(&Insert{Relation: narrow, Row: []Value{null}}))
		runtime.GC()
		if held.Value() != nil {
			t.Errorf("%s: the message is still in memory", name)
		}
		runtime.KeepAlive(d)
	}
}
