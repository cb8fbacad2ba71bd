package connect

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/encode/format"
	"github.com/outbox-cdc/outbox-cdc/internal/pgtime"
)

func newField(t *testing.T, c format.Column, m Modes) *Field {
	t.Helper()
	f, err := NewField(c, m)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func column(oid uint32, name string) format.Column {
	return format.Column{Name: "c", Type: format.Type{OID: oid, Name: name, Kind: 'b', Modifier: -1}, Nullable: true}
}

// Columns of type money in databases whose currency has no decimal places, and 3.
var (
	yen   = money(0)
	dinar = money(3)
)

func money(places int) format.Column {
	c := column(oidMoney, "")
	c.Type.MoneyPlaces = &places
	return c
}

func TestNewFieldRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		column      format.Column
		modes       Modes
		unsupported bool
		want        string
	}{
		"composite":     {column: format.Column{Name: "pair", Type: format.Type{OID: 90000, Name: "pair", Kind: 'c'}}, unsupported: true, want: `column "pair": Debezium leaves values of type pair out`},
		"multirange":    {column: format.Column{Name: "m", Type: format.Type{OID: 4451, Kind: 'm'}}, unsupported: true, want: `column "m": Debezium leaves values of type with OID 4451 out`},
		"unknown":       {column: column(2278, "void"), unsupported: true, want: "type void"},
		"array of name": {column: format.Column{Name: "a", Type: format.Type{OID: 1003, Name: "_name", Elem: &format.Type{OID: oidName}}}, unsupported: true, want: "type _name"},
		"of unknown":    {column: format.Column{Name: "a", Type: format.Type{OID: 90001, Name: "_x", Elem: &format.Type{OID: 90000, Name: "x"}}}, unsupported: true, want: "type _x"},
		"decimals":      {column: column(oidText, "text"), modes: Modes{Decimal: "exact"}, want: `decimal.handling.mode: "exact" is not one of`},
		"times":         {column: column(oidText, "text"), modes: Modes{Time: "structured"}, want: `time.precision.mode: "structured"`},
		"money":         {column: column(oidMoney, "money"), modes: Modes{MoneyDigits: new(-1)}, want: "money.fraction.digits: -1 is negative"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := NewField(tc.column, tc.modes)
			if _, unsupported := errors.AsType[*UnsupportedError](err); err == nil || unsupported != tc.unsupported || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want %s", err, tc.want)
			}
		})
	}
}

// Raw and Bytes write the column's own bytes. Bytes accepts only bytea.
func TestRawAndBytes(t *testing.T) {
	for _, tc := range []struct {
		oid   uint32
		modes Modes
		enc   format.Encoding
		text  string
		want  string
		err   error
	}{
		{oid: oidText, enc: format.Raw, text: `\x41`, want: `\x41`},
		{oid: oidNumeric, enc: format.Raw, text: "NaN", want: "NaN", modes: Modes{Exact: true}},
		{oid: oidBytea, enc: format.Raw, text: `\x4100`, want: "A\x00"},
		{oid: oidBytea, enc: format.Raw, text: `\x4100`, want: "A\x00", modes: Modes{Binary: "hex"}},
		{oid: oidBytea, enc: format.Bytes, text: `\x4100`, want: "A\x00"},
		{oid: oidBytea, enc: format.Bytes, text: `\x`, want: ""},
		{oid: oidBytea, enc: format.Bytes, text: `\x4100`, modes: Modes{Binary: "base64"}, err: errNotBytea},
		{oid: oidJSONB, enc: format.Bytes, text: `{}`, err: errNotBytea},
		{oid: oidBytea, enc: format.Raw, text: `A\000`, err: errNotBytes},
		{oid: oidBytea, enc: format.Simple, text: `\x4`, err: errNotBytes},
		{oid: oidText, enc: "avro", text: "x", err: errNotEncoded},
	} {
		out, null, err := newField(t, column(tc.oid, ""), tc.modes).Append(nil, tc.enc, []byte(tc.text))
		if string(out) != tc.want || null || !errors.Is(err, tc.err) {
			t.Errorf("%s of %s: %q, null %t, %v", tc.enc, tc.text, out, null, err)
		}
	}
}

// NULL becomes a null, the word null, or a null payload. In a column with a default, Debezium writes the default
// instead.
func TestNull(t *testing.T) {
	plain, preset := column(oidText, "text"), column(oidText, "text")
	preset.Default = new(`{"`)
	const schema = `{"schema":{"type":"string","optional":true`
	for _, tc := range []struct {
		column format.Column
		exact  bool
		enc    format.Encoding
		want   string
		null   bool
		err    error
	}{
		{column: plain, enc: format.Raw, null: true},
		{column: plain, enc: format.String, null: true},
		{column: plain, enc: format.Simple, null: true},
		{column: plain, enc: format.Bytes, null: true},
		{column: plain, enc: format.JSON, want: "null"},
		{column: plain, enc: format.JSONSchema, want: schema + `},"payload":null}`},
		{column: plain, exact: true, enc: format.JSON, want: "null"},
		{column: preset, enc: format.Simple, null: true},
		{column: preset, enc: format.JSONSchema, want: schema + `,"default":"{\""},"payload":null}`},
		{column: preset, exact: true, enc: format.Simple, err: errDefault},
		{column: preset, exact: true, enc: format.JSONSchema, err: errDefault},
		{column: preset, exact: true, enc: format.Raw, null: true},
	} {
		out, null, err := newField(t, tc.column, Modes{Exact: tc.exact}).Append(nil, tc.enc, nil)
		if string(out) != tc.want || null != tc.null || !errors.Is(err, tc.err) {
			t.Errorf("%s, exact %t: %q, null %t, %v", tc.enc, tc.exact, out, null, err)
		}
	}
}

func TestVerbatim(t *testing.T) {
	for _, tc := range []struct {
		oid  uint32
		want string // the encodings that leave it unchanged
	}{
		{oidText, "raw string simple"},
		{oidUUID, "raw string simple"},
		{oidInt8, "raw string simple json"},
		{oidJSONB, "raw string simple"},
		{oidBool, "raw"},
		{oidNumeric, "raw"},
		{oidTimestamptz, "raw"},
		{oidBytea, ""},
	} {
		f := newField(t, column(tc.oid, ""), Modes{})
		var got []string
		for _, enc := range []format.Encoding{format.Raw, format.String, format.Simple, format.JSON, format.JSONSchema, format.Bytes} {
			if f.Verbatim(enc) {
				got = append(got, string(enc))
			}
		}
		if got := strings.Join(got, " "); got != tc.want {
			t.Errorf("OID %d: verbatim in %q, want %q", tc.oid, got, tc.want)
		}
	}
	if f := newField(t, column(99999, "citext"), Modes{}); f.Name() != "c" || !f.Verbatim(format.Simple) {
		t.Error("citext is text")
	}
}

// A text that Postgres prints only with other settings, or for another type, is an error. The error does not
// contain the text.
func TestAppendRefuses(t *testing.T) {
	intArray := format.Column{Name: "a", Type: format.Type{OID: 1007, Elem: &format.Type{OID: oidInt4}, Modifier: -1}}
	for _, tc := range []struct {
		column format.Column
		text   string
		want   error
	}{
		{column(oidDate, ""), "29/02/2024", pgtime.ErrDate},
		{column(oidDate, ""), "2024-13-01", pgtime.ErrDate},
		{column(oidTime, ""), "20:52", pgtime.ErrTime},
		{column(oidTime, ""), "20:52:59.1234567", pgtime.ErrTime},
		{column(oidTimetz, ""), "20:52:59", pgtime.ErrTime},
		{column(oidTimestamp, ""), "Thu Feb 29 23:30:00 2024", pgtime.ErrTimestamp},
		{column(oidTimestamptz, ""), "2024-02-29 23:30:00 NST", pgtime.ErrTimestamp},
		{column(oidInterval, ""), "@ 1 day 2 hours", pgtime.ErrInterval},
		{column(oidInterval, ""), "P1D", pgtime.ErrInterval},
		{column(oidInterval, ""), "01:00:00 1 day", pgtime.ErrInterval},
		{column(oidMoney, ""), "1.234,56 €", errNotMoney},
		{column(oidMoney, ""), "kr 1 234,56", errNotMoney},
		{column(oidMoney, ""), "($1,234.56", errNotMoney},
		{column(oidMoney, ""), "R$ 12,50", errNotMoney},
		{column(oidMoney, ""), "€ 12,50", errNotMoney},
		{column(oidMoney, ""), "$1.250", errNotMoney},
		{column(oidMoney, ""), "￥1,250", errNotMoney},
		{column(oidMoney, ""), "$12,50.00", errNotMoney},
		{yen, "￥", errNotMoney},
		{dinar, "250", errNotMoney},
		{column(oidNumeric, ""), "1e5", errNotNumeric},
		{column(oidNumeric, ""), "-", errNotNumeric},
		{format.Column{Type: format.Type{OID: oidNumeric, Modifier: 5<<16 + 2 + 4}}, "1.234", errScale},
		{column(oidFloat8, ""), "1.5x", errNotFloat},
		{column(oidInt4, ""), "007", errNotInteger},
		{column(oidBool, ""), "true", errNotBool},
		{column(oidVarbit, ""), "12", errNotBits},
		{column(oidPoint, ""), "(1)", errNotGeometry},
		{column(oidPolygon, ""), "()", errNotGeometry},
		{column(99999, "hstore"), `"k"=>"v`, errNotHStore},
		{column(99999, "hstore"), `"k"->"v"`, errNotHStore},
		{column(99999, "hstore"), `"k"=>"v","l"=>"w"`, errNotHStore},
		{intArray, "", errNotArray},
		{intArray, "{1,2", errNotArray},
		{intArray, "{1,2}}", errNotArray},
		{intArray, "{,}", errNotArray},
		{intArray, `{"1`, errNotArray},
		{intArray, "{{1},{2}}", errNestedType},
		{intArray, "{x}", errNotInteger},
	} {
		f := newField(t, tc.column, Modes{})
		out, null, err := f.Append([]byte("before"), format.JSONSchema, []byte(tc.text))
		if !errors.Is(err, tc.want) || string(out) != "before" || null {
			t.Errorf("%q: %q, null %t, %v, want %v", tc.text, out, null, err, tc.want)
		} else if tc.text != "" && tc.text != "-" && strings.Contains(err.Error(), tc.text) {
			t.Errorf("%q is in %v", tc.text, err)
		}
	}
}

// Debezium reads a negative scale as 2046, and this package reads it correctly. It also reads money of currencies with another
// number of decimal places than 2.
func TestBetterNumbers(t *testing.T) {
	numeric := column(oidNumeric, "")
	numeric.Type.Modifier = 8<<16 + (2048 - 2) + 4 // numeric(8,-2)
	if out, _, err := newField(t, numeric, Modes{}).Append(nil, format.Simple, []byte("12300")); string(out) != "12300" || err != nil {
		t.Errorf("%s, %v", out, err)
	}
	if _, _, err := newField(t, numeric, Modes{Exact: true}).Append(nil, format.Simple, []byte("12300")); !errors.Is(err, errWideScale) {
		t.Errorf("exact: %v", err)
	}
	for text, want := range map[string]string{"-$1,234.50": "-1234.50", "$7.00": "7.00", "-$0.00": "0.00", "$92,233,720,368,547,758.07": "92233720368547758.07"} {
		if out, _, err := newField(t, column(oidMoney, ""), Modes{}).Append(nil, format.Simple, []byte(text)); string(out) != want || err != nil {
			t.Errorf("%s: %s, %v", text, out, err)
		}
	}
	for text, want := range map[string]string{"$1.95": "2.0", "$9.95": "10.0", "-$0.04": "0.0", "$1.94": "1.9"} {
		if out, _, err := newField(t, column(oidMoney, ""), Modes{MoneyDigits: new(1)}).Append(nil, format.Simple, []byte(text)); string(out) != want || err != nil {
			t.Errorf("%s: %s, %v", text, out, err)
		}
	}
	for _, tt := range []struct {
		column     format.Column
		text, want string
	}{
		{yen, "￥1,250", "1250.00"},
		{yen, "-￥1,250", "-1250.00"},
		{yen, "$1.250", "1250.00"},
		{yen, "￥0", "0.00"},
		{yen, "1 250 Ft", "1250.00"},
		{dinar, "د.ك.\u200f 1.250", "1.25"},
		{dinar, "(1,255 DT)", "-1.26"},
		{dinar, "-0.001", "0.00"},
	} {
		if out, _, err := newField(t, tt.column, Modes{}).Append(nil, format.Simple, []byte(tt.text)); string(out) != tt.want || err != nil {
			t.Errorf("%s: %s, %v", tt.text, out, err)
		}
	}
}

// A numeric of any length is encoded like BigInteger.toByteArray.
func TestUnscaled(t *testing.T) {
	for _, tc := range []struct {
		text string
		want []byte
	}{
		{"0", []byte{0}},
		{"127", []byte{127}},
		{"128", []byte{0, 128}},
		{"-128", []byte{128}},
		{"-129", []byte{255, 127}},
		{"999999999999999999", []byte{13, 224, 182, 179, 167, 99, 255, 255}},
		{"9223372036854775808", []byte{0, 128, 0, 0, 0, 0, 0, 0, 0}},
		{"-9223372036854775808", []byte{128, 0, 0, 0, 0, 0, 0, 0}},
		{"-9223372036854775809", []byte{255, 127, 255, 255, 255, 255, 255, 255, 255}},
		{"18446744073709551616", []byte{1, 0, 0, 0, 0, 0, 0, 0, 0}},
	} {
		n, err := parseNumber(nil, []byte(tc.text))
		if err != nil {
			t.Fatal(err)
		}
		if got := string(n.appendUnscaled(nil)); got != base64.StdEncoding.EncodeToString(tc.want) {
			t.Errorf("%s: %s, want % x", tc.text, got, tc.want)
		}
	}
}
