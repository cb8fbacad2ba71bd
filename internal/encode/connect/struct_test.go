package connect

import (
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/encode/format"
	"github.com/outbox-cdc/outbox-cdc/internal/jsontext"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
)

func envelopeOf(t *testing.T, m Modes, expand *Expansion) *Struct {
	t.Helper()
	payload := newField(t, format.Column{Name: "doc", Type: format.Type{OID: oidJSONB, Modifier: -1}, Nullable: true}, m)
	amount := newField(t, format.Column{Name: "amount", Type: format.Type{OID: oidNumeric, Modifier: 10<<16 + 2 + 4}, Nullable: true, Default: new("1.50")}, m)
	return NewStruct([]NamedField{{"payload", payload}, {`"q"`, amount}}, expand)
}

func TestStruct(t *testing.T) {
	const amount = `{"type":"bytes","optional":true,"name":"org.apache.kafka.connect.data.Decimal","version":1,"parameters":{"scale":"2","connect.decimal.precision":"10"},"default":"AJY=","field":"\"q\""}`
	const payload = `{"type":"string","optional":true,"name":"io.debezium.data.Json","version":1,"field":"payload"}`
	const document = `{"type":"struct","fields":[{"type":"int32","optional":true,"field":"a"}],"optional":true,"name":"doc","field":"payload"}`
	for name, tc := range map[string]struct {
		modes   Modes
		expand  *Expansion
		enc     format.Encoding
		name    string
		version *int32
		values  [][]byte
		want    string
		err     error
	}{
		"json":             {enc: format.JSON, values: [][]byte{[]byte(`{"a": 1}`), []byte("12.30")}, want: `{"payload":"{\"a\": 1}","\"q\"":"BM4="}`},
		"nulls":            {enc: format.JSON, values: [][]byte{nil, nil}, want: `{"payload":null,"\"q\"":null}`},
		"default":          {enc: format.JSON, modes: Modes{Exact: true}, values: [][]byte{nil, nil}, err: errDefault},
		"as a string":      {enc: format.String, values: [][]byte{nil, []byte("1.00")}, want: `{"payload":null,"\"q\"":"ZA=="}`},
		"as a string, not": {enc: format.String, modes: Modes{Exact: true}, values: [][]byte{nil, []byte("1.00")}, err: errStruct},
		"expanded":         {enc: format.JSON, expand: &Expansion{}, values: [][]byte{[]byte(`{"a": 1, "n": null}`), []byte("0.01")}, want: `{"payload":{"a":1},"\"q\"":"AQ=="}`},
		"no document":      {enc: format.JSON, expand: &Expansion{}, values: [][]byte{[]byte(`"x"`), nil}, want: `{"payload":"\"x\"","\"q\"":null}`},
		"array, exact":     {enc: format.JSON, modes: Modes{Exact: true}, expand: &Expansion{}, values: [][]byte{[]byte(`[1]`), []byte("1.00")}, err: errTopArray},
		"schema": {
			enc: format.JSONSchema, name: "app.public.outbox.Order.Value", version: new(int32(0)), values: [][]byte{[]byte(`{"a": 1}`), nil},
			want: `{"schema":{"type":"struct","fields":[` + payload + "," + amount + `],"optional":false,"name":"app.public.outbox.Order.Value","version":0},"payload":{"payload":"{\"a\": 1}","\"q\"":null}}`,
		},
		"schema, expanded": {
			enc: format.JSONSchema, expand: &Expansion{}, values: [][]byte{[]byte(`{"a": 1}`), nil},
			want: `{"schema":{"type":"struct","fields":[` + document + "," + amount + `],"optional":false},"payload":{"payload":{"a":1},"\"q\"":null}}`,
		},
		"a value missing": {enc: format.JSON, values: [][]byte{nil}, err: errMembers},
		"a value wrong":   {enc: format.JSON, values: [][]byte{nil, []byte("one")}, err: errNotNumeric},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := envelopeOf(t, tc.modes, tc.expand).Append([]byte("before"), tc.enc, tc.name, tc.version, tc.values)
			if string(out) != "before"+tc.want || !errors.Is(err, tc.err) {
				t.Errorf("%s, %v\nwant %s", out, err, tc.want)
			}
		})
	}
}

// A document within Jackson's limits is expanded. Beyond them it stays text. A document that would become too large
// with its missing members is rejected.
func TestExpandLimits(t *testing.T) {
	deep := func(n int) string { return strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n) }
	var scattered strings.Builder
	for i := range 1100 {
		scattered.WriteString(`,{"n` + strconv.Itoa(i) + `":1}`)
	}
	f := documentField(t, false)
	size := 4 << 20
	if need.Full() {
		size = 64 << 20
	}
	for name, tc := range map[string]struct {
		text string
		is   string // the beginning of the output
		err  error
	}{
		"deep":        {deep(jsontext.MaxDepth), `{"a":{"a"`, nil},
		"deeper":      {deep(jsontext.MaxDepth + 1), `"{\"a\"`, nil},
		"long":        {`{"a":0.` + strings.Repeat("1", maxNumber-2) + "}", `{"a":0.1111111111111111}`, nil},
		"longer":      {`{"a":0.` + strings.Repeat("1", maxNumber-1) + "}", `"{\"a\"`, nil},
		"few absent":  {`{"l":[` + scattered.String()[1:500] + `}]}`, "", nil},
		"many absent": {`{"l":[` + scattered.String()[1:] + `]}`, "", errWide},

		"many MiB of brackets":           {strings.Repeat("[", size), `"[[`, nil},
		"many MiB of objects":            {strings.Repeat(`{"":`, size/4), `"{\"`, nil},
		"many MiB behind a document":     {`{"a":1}` + strings.Repeat("[", size), `{"a":1}`, nil},
		"many MiB of numbers":            {"[" + strings.Repeat("0,", size/2) + "0]", "", errLarge},
		"many MiB in one string":         {`{"a":"` + strings.Repeat("x", size) + `"}`, `{"a":"xx`, nil},
		"many MiB in one string, deep":   {deepText(strings.Repeat("x", size)), "", errLarge},
		"long names, deep":               {strings.Repeat(`{"`+strings.Repeat("n", 1000)+`":`, 1000) + "1" + strings.Repeat("}", 1000), "", errWide},
		"objects that differ below":      {`{"l":[` + scatteredBelow(40_000) + `]}`, "", errWide},
		"a long name, absent many times": {`{"l":[{"` + strings.Repeat("n", 1<<20) + `":1}` + strings.Repeat(",{}", 100) + `]}`, "", errWide},
	} {
		out, _, err := f.AppendExpanded(nil, format.JSON, Expansion{}, []byte(tc.text))
		if !errors.Is(err, tc.err) || !strings.HasPrefix(string(out), tc.is) || err != nil && len(out) > 0 {
			t.Errorf("%s: %.100s, %v", name, out, err)
		}
	}
}

// deepText returns text inside 500 nested arrays.
func deepText(text string) string {
	return strings.Repeat("[", 500) + `"` + text + `"` + strings.Repeat("]", 500)
}

// scatteredBelow returns n objects with one member each. Its value is an object with a different member each time.
func scatteredBelow(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(`,{"a":{"n` + strconv.Itoa(i) + `":1}}`)
	}
	return b.String()[1:]
}

// Objects with many members use a map for lookups. They keep their order, and the last of several members with the
// same name counts.
func TestExpandManyMembers(t *testing.T) {
	var text, want strings.Builder
	for i := range 3 * fewMembers {
		text.WriteString(`,"m` + strconv.Itoa(i) + `":0`)
		want.WriteString(`,"m` + strconv.Itoa(i) + `":` + strconv.Itoa(i%2))
	}
	for i := 1; i < 3*fewMembers; i += 2 {
		text.WriteString(`,"m` + strconv.Itoa(i) + `":1`)
	}
	out, _, err := documentField(t, false).AppendExpanded(nil, format.JSON, Expansion{}, []byte("{"+text.String()[1:]+"}"))
	if got := "{" + want.String()[1:] + "}"; string(out) != got || err != nil {
		t.Errorf("%s, %v\nwant %s", out, err, got)
	}
}

// An hstore value is expanded as its JSON. A number is not a document.
func TestExpandOtherTypes(t *testing.T) {
	for _, tc := range []struct {
		oid        uint32
		name, text string
		enc        format.Encoding
		exact      bool
		want       string
		err        error
	}{
		{99999, "hstore", `"k"=>"v", "n"=>NULL`, format.JSON, false, `{"k":"v"}`, nil},
		{99999, "hstore", `"k"=`, format.JSON, false, "", errNotHStore},
		{oidInt4, "int4", "7", format.JSON, false, "7", nil},
		{oidBytea, "bytea", `\x7b7d`, format.JSON, false, `"e30="`, nil},
		{oidText, "text", `{"a":1}`, format.String, false, `{"a":1}`, nil},
		{oidText, "text", `{"a":1}`, format.String, true, "", errStruct},
		{oidText, "text", "plain", format.String, true, "plain", nil},
		{oidText, "text", `{"a":1}`, format.Raw, true, `{"a":1}`, nil},
	} {
		out, _, err := newField(t, column(tc.oid, tc.name), Modes{Exact: tc.exact}).AppendExpanded(nil, tc.enc, Expansion{}, []byte(tc.text))
		if string(out) != tc.want || !errors.Is(err, tc.err) {
			t.Errorf("%s %s of %s: %s, %v", tc.name, tc.enc, tc.text, out, err)
		}
	}
}
