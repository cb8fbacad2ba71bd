package connect

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/encode/format"
)

// A golden is a value that Debezium's and Connect's own converters wrote. See testdata/README.md. If an encoding is
// missing, its converter threw an exception.
type golden struct {
	SQL         string // the type of the column
	Type        format.Type
	Modes       map[string]string
	Text        *string
	Unsupported bool
	Error       string // of Debezium's converter: the value became a null
	Bytes       map[format.Encoding]*string
}

func (g *golden) UnmarshalJSON(line []byte) error {
	type fields golden
	var all map[string]json.RawMessage
	if err := json.Unmarshal(line, (*fields)(g)); err != nil {
		return err
	}
	if err := json.Unmarshal(line, &all); err != nil {
		return err
	}
	g.Bytes = map[format.Encoding]*string{}
	for _, enc := range []format.Encoding{format.Simple, format.String, format.JSON, format.JSONSchema} {
		if raw, ok := all[string(enc)]; ok {
			var s *string
			if err := json.Unmarshal(raw, &s); err != nil {
				return err
			}
			g.Bytes[enc] = s
		}
	}
	return nil
}

// modesOf reads the connector's options.
func modesOf(tb testing.TB, options map[string]string, exact bool) Modes {
	tb.Helper()
	m := Modes{
		Decimal: options["decimal.handling.mode"], Time: options["time.precision.mode"], Interval: options["interval.handling.mode"],
		HStore: options["hstore.handling.mode"], Binary: options["binary.handling.mode"], Exact: exact,
	}
	if digits, ok := options["money.fraction.digits"]; ok {
		n, err := strconv.Atoi(digits)
		if err != nil {
			tb.Fatal(err)
		}
		m.MoneyDigits = &n
	}
	return m
}

func (g *golden) field(tb testing.TB, exact bool) (*Field, error) {
	tb.Helper()
	return NewField(format.Column{Name: "c", Type: g.Type, Nullable: true}, modesOf(tb, g.Modes, exact))
}

func goldens(tb testing.TB) []golden {
	tb.Helper()
	file, err := os.Open("testdata/values.jsonl")
	if err != nil {
		tb.Fatal(err)
	}
	defer file.Close()
	var all []golden
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var g golden
		if err := json.Unmarshal(lines.Bytes(), &g); err != nil {
			tb.Fatal(err)
		}
		all = append(all, g)
	}
	if lines.Err() != nil || len(all) == 0 {
		tb.Fatalf("%d values, %v", len(all), lines.Err())
	}
	return all
}

// damage returns how Debezium damaged the value, or "" if it did not.
func (g *golden) damage(want *string) string {
	inArray := g.Type.Elem != nil
	switch text := *g.Text; {
	case g.Error != "":
		return "a null: " + g.Error
	case want == nil || g.SQL == "name":
		return "a null"
	case strings.Contains(*want, "[B@"), strings.Contains(*want, "HeapByteBuffer["), strings.Contains(*want, "[Ljava.lang."):
		return "an address"
	case strings.Contains(*want, "Struct{"):
		return "Java's description of a struct"
	case javaDate.MatchString(*want):
		return "Java's description of a date"
	case g.Modes["time.precision.mode"] == "connect" && g.Type.OID != oidTime && g.SQL != "time[]" && timeAlone.MatchString(*want) && text != "1970-01-01 10:00:00" && text != "1970-01-01 00:00:00":
		return "a date without its date"
	case text == "12024-01-01 00:00:00" && g.Modes["time.precision.mode"] == "nanoseconds", strings.HasPrefix(text, "294276-12-31 23:59:59.999999") && !strings.HasPrefix(g.SQL, "timestamptz"), text == "294247-01-10 04:00:54.775808":
		return "beyond int64"
	case g.SQL == "integer[]" && text == "{{1,2},{3,4}}":
		return "nulls for arrays"
	case inArray && (strings.Contains(text, "BC") || g.SQL == "date[]" && strings.Contains(text, "infinity")):
		return "another date"
	case g.SQL == "time[]" && (strings.Contains(text, ".123456") || strings.Contains(text, "24:00:00")):
		return "another time"
	}
	return ""
}

var (
	javaDate  = regexp.MustCompile(`[A-Z][a-z]{2} [0-9]{2} [0-9:]{8} UTC [0-9]+`)
	timeAlone = regexp.MustCompile(`^\[?[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z`)
)

// ours reports whether Debezium does not convert the type and this package does, because it treats a domain like
// its base type.
func (g *golden) ours() bool { return g.SQL == "short_text[]" || g.SQL == "money_amount[]" }

// The package writes the same bytes as Debezium's and Connect's converters, except for damaged values. It rejects
// those if exact is set, and otherwise writes a better value.
func TestGolden(t *testing.T) {
	damaged := 0
	for _, g := range goldens(t) {
		loose, err := g.field(t, false)
		if _, unsupported := errors.AsType[*UnsupportedError](err); unsupported != (g.Unsupported && !g.ours()) && g.Error == "" {
			t.Errorf("%s: unsupported %t, got %v", g.SQL, g.Unsupported, err)
		}
		if err != nil || g.ours() {
			continue
		}
		exact, err := g.field(t, true)
		if err != nil {
			t.Fatal(err)
		}
		for enc, want := range g.Bytes {
			var damage string
			if g.Text != nil {
				damage = g.damage(want)
			}
			got, errLoose := g.write(loose, enc)
			if damage == "" && (errLoose != nil || !equal(got, want)) || damage != "" && errLoose == nil && equal(got, want) {
				t.Errorf("%s %v %s: wrote %s, %v; Debezium %s (%s)", g.SQL, g.Modes, enc, show(got), errLoose, show(want), damage)
			}
			got, err := g.write(exact, enc)
			if damage == "" && (err != nil || !equal(got, want)) || damage != "" && err == nil {
				t.Errorf("%s %v %s, exact: wrote %s, %v; Debezium %s (%s)", g.SQL, g.Modes, enc, show(got), err, show(want), damage)
			}
			if damage != "" {
				damaged++
			}
		}
	}
	if damaged == 0 {
		t.Error("nothing is damaged")
	}
}

// Built-in types are recognized by their OIDs alone.
func TestGoldenByOID(t *testing.T) {
	for _, g := range goldens(t) {
		known, err := g.field(t, false)
		if g.Type.OID >= 10000 || err != nil {
			continue
		}
		g.Type.Name, g.Type.Kind, g.Type.Elem = "", 0, nil
		f, err := g.field(t, false)
		if err != nil || f.prefix != known.prefix {
			t.Errorf("%s, OID %d: %v", g.SQL, g.Type.OID, err)
		}
	}
}

// write returns the value in the encoding enc, nil for a null.
func (g *golden) write(f *Field, enc format.Encoding) (*string, error) {
	var text []byte
	if g.Text != nil {
		text = append([]byte{}, *g.Text...)
	}
	out, null, err := f.Append([]byte("before"), enc, text)
	if null || err != nil {
		return nil, err
	}
	return new(strings.TrimPrefix(string(out), "before")), nil
}

func equal(a, b *string) bool { return a == nil && b == nil || a != nil && b != nil && *a == *b }

func show(s *string) string {
	if s == nil {
		return "null"
	}
	return *s
}
