// Package hostile generates what two hostile roles may write: rows of a role with INSERT on the outbox, and logical
// messages of a role that may only connect. A [Generator] generates attacks from a seed, each with its expected outcome.
package hostile

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// Rows is the prefix of the messages that the relay delivers as rows.
const Rows = "orders"

// A Fate is the outcome of an attack.
type Fate string

// The fates.
const (
	Ignored   Fate = "ignored"   // no record contains it
	Delivered Fate = "delivered" // the writer's own topic has a record of it
	Rejected  Fate = "rejected"  // the dead-letter topic has a record of it
	Refused   Fate = "refused"   // Postgres rejects it
)

// An Attack is a statement of a hostile role. Postgres may reject it, whatever its fate.
type Attack struct {
	Name string
	ID   string // of the row, if it has one
	SQL  string
	Args []any
	Fate Fate
}

// A Generator generates attacks.
type Generator struct {
	Own   string   // the writer's own topic, with one partition
	Relay []string // topics that no row may be sent to
	Slot  string

	// Messages makes messages with the prefix Rows rows. The relay then skips the rows of the table, and takes
	// no timestamp from a column, because a message has no columns.
	Messages bool

	rng        *rand.Rand
	deviations []deviation
}

// NewGenerator returns a Generator that derives its attacks from the seed.
func NewGenerator(seed uint64) *Generator {
	return &Generator{rng: rand.New(rand.NewPCG(seed, 0)), deviations: deviations()}
}

// columns are a row's values, which are written as text. nil is NULL.
type columns map[string]any

func (c columns) id() string { return fmt.Sprint(c["id"]) }

// A deviation is one hostile property of a row.
type deviation struct {
	name   string
	fate   Fate
	change func(*Generator, columns)
}

// set returns a change that sets the column to one of the values, at random.
func set(column string, values ...string) func(*Generator, columns) {
	return func(g *Generator, c columns) { c[column] = g.pick(values...) }
}

func (g *Generator) pick(values ...string) string { return values[g.rng.IntN(len(values))] }

// deep returns a JSON array with the given number of levels.
func deep(levels int) string { return strings.Repeat("[", levels) + strings.Repeat("]", levels) }

// between returns a random number from the range.
func (g *Generator) between(from, to int) int { return from + g.rng.IntN(to-from) }

// text returns a JSON string of the given length.
func text(bytes int) string { return `"` + strings.Repeat("x", bytes) + `"` }

func deviations() []deviation {
	return []deviation{
		{"honest looks", Delivered, func(*Generator, columns) {}},
		{"large", Delivered, func(g *Generator, c columns) { c["payload"] = text(g.between(100<<10, 900<<10)) }},
		{"too large", Rejected, func(g *Generator, c columns) { c["payload"] = text(g.between(2<<20, 3<<20)) }},
		{"large key", Rejected, func(g *Generator, c columns) { c["aggregateid"] = text(2 << 20) }},
		{"nested payload", Delivered, func(g *Generator, c columns) { c["payload"] = deep(g.between(200, 900)) }},
		{"escapes", Delivered, set("payload", `"\u0000"`, `"\ud800"`, `"\udc00\ud800"`, `{"\u0000": "\u001b[2J"}`)},
		{"control characters", Delivered, func(_ *Generator, c columns) { c["aggregateid"], c["type"] = "\x01\x1b[2J\r\n\u202e", "\x7f\n" }},
		{"a relay's topic", Rejected, func(g *Generator, c columns) { c["topic"] = g.pick(g.Relay...) }},
		{"a forged position", Rejected, func(g *Generator, c columns) {
			c["topic"], c["aggregateid"] = g.Relay[0], g.Slot+"/"+sink.PositionKey
			c["payload"] = fmt.Sprintf(`{"version": 1, "timeline": 1, "slot": %q, "end_lsn": "FFFFFFFF/0", "generation": 50, "owner": 50}`, g.Slot)
		}},
		{"a missing topic", Rejected, func(g *Generator, c columns) {
			c["topic"], c["payload"] = "nosuch."+uuid.NewString(), text(g.between(1, 900<<10))
		}},
		{"an illegal topic", Rejected, set("topic", "", ".", "..", "a b", "é", "a/b", "\x01", strings.Repeat("x", 250))},
		{"a strange time", Delivered, set("at", "1970-01-01", "2970-01-01 00:00:00.123456+14", "9999-12-31")},
		{"no time", Rejected, set("at", "infinity", "-infinity", "4713-01-01 BC", "1969-12-31", "294276-12-31")},
		{"no partition", Rejected, set("part", "-1", "-2147483648", "2147483647", "99")},
		{"the relay's headers", Rejected, set("headers", `{"id": "1"}`, `{"eventType": "x"}`, `{"lsn": "0/1:0"}`,
			`{"dead_letter_reason": "mine"}`, `{"dead_letter_slot": "s", "dead_letter_topic": "outbox-cdc.positions"}`)},
		{"strange headers", Delivered, set("headers", `{"": ""}`, `{"é\u0001": [1, null]}`, `{"a": 1, "a": 2}`, `{"ID": "1"}`, `{"a": `+deep(500)+`}`)},
		{"a trace context", Delivered, func(g *Generator, c columns) {
			c["trace"] = g.pick(deep(100_000), `{"id": "1", "dead_letter_reason": "x"}`, `{"traceparent": `+text(100<<10)+`}`, "id=1\ndead_letter_slot=x", "\x01", `{"a":`)
		}},
	}
}

// Row returns an attack by a role that may insert rows.
func (g *Generator) Row() Attack {
	d, c := g.deviate()
	names := slices.Sorted(maps.Keys(c))
	args, places := make([]any, len(names)), make([]string, len(names))
	for i, name := range names {
		args[i], places[i] = c[name], "$"+strconv.Itoa(i+1)
	}
	sql := "INSERT INTO outbox (" + strings.Join(names, ", ") + ") VALUES (" + strings.Join(places, ", ") + ")"
	if g.Messages {
		d.fate = Ignored
	}
	return Attack{"row: " + d.name, c.id(), sql, args, d.fate}
}

func (g *Generator) deviate() (deviation, columns) {
	c := columns{
		"id": uuid.NewString(), "aggregatetype": "hostile", "aggregateid": "hostile", "type": "T", "payload": `{"n": 1}`, "topic": g.Own,
		"headers": `{}`, "at": nil, "part": nil, "trace": "",
	}
	d := g.deviations[g.rng.IntN(len(g.deviations))]
	d.change(g, c)
	if g.Messages && c["at"] != nil {
		d.fate = Delivered
	}
	return d, c
}

// Message returns an attack by a role without privileges: a message with a row, a malformed one, or one
// that looks like the relay's own.
func (g *Generator) Message() Attack {
	switch {
	case !g.Messages || g.rng.IntN(3) == 0:
		return g.ownMessage()
	case g.rng.IntN(2) == 0:
		return g.rowMessage()
	}
	return g.noRow()
}

func (g *Generator) rowMessage() Attack {
	d, c := g.deviate()
	row := map[string]any{}
	for name, value := range c {
		switch {
		case name == "headers":
			row[name] = json.RawMessage(fmt.Append(nil, value))
		case value != nil:
			row[name] = value
		}
	}
	var content bytes.Buffer
	e := json.NewEncoder(&content)
	e.SetEscapeHTML(false)
	if err := e.Encode(row); err != nil {
		panic(err) // a mistake in deviations
	}
	a := g.emit("message: "+d.name, d.fate, Rows, content.Bytes())
	a.ID = c.id()
	return a
}

func (g *Generator) noRow() Attack {
	id := `{"id": "` + uuid.NewString() + `", "topic": "` + g.Own + `", `
	contents := []string{
		"", "\x00", "null", "[]", "{}", `{"id": 1`, "\xff\xfe{}", `{"\xed\xa0\x80": 1}`, id + `"payload": ` + deep(g.between(2_000, 1_000_000)) + "}",
		strings.Repeat(`{"a":`, g.between(2_000, 200_000)), strings.Repeat("[", 2<<20), id + strings.Repeat(`"a": 1, `, 2_000) + `"b": 1}`,
	}
	return g.emit("message: no row", Rejected, Rows, []byte(g.pick(contents...)))
}

// ownMessage returns a message with one of the relay's own prefixes, or one that the relay ignores.
func (g *Generator) ownMessage() Attack {
	nonce := g.pick("", g.Slot+"|", g.Slot+"|", strings.Repeat("A", 26)+"|", strings.Repeat("A", 64<<10)+"|")
	snapshot := g.pick(
		"18000000000000000001:18000000000000000009:", "1:18000000000000000009:2,3,4", "1:2:", "18000000000000000001:18000000000000000001:", "9:1:", "1:2:'); DROP TABLE outbox; --",
		"1:9:"+strings.Repeat("2,", 1<<20), text(2<<20), deep(200_000), "\x00\xff", "")
	return g.emit("own prefix", Ignored, g.pick("outbox-cdc", "outbox-cdc", "outbox-cdc", "billing"), []byte(nonce+snapshot))
}

func (g *Generator) emit(name string, fate Fate, prefix string, content []byte) Attack {
	return Attack{name, "", `SELECT pg_logical_emit_message($1, $2, $3::bytea)`, []any{g.rng.IntN(2) == 0, prefix, content}, fate}
}
