package decoder

import (
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
)

// A message is a message to decode, with its LSN.
type message struct {
	start   pglogrepl.LSN
	data    []byte
	damaged bool // changed by the script
}

// parseLine encodes a line of a script:
//
//	begin LSN [xid=N] [time=T]            T: RFC 3339, infinity or -infinity
//	commit LSN END-LSN [time=T]
//	origin LSN NAME
//	type OID NAMESPACE.NAME
//	relation OID NAMESPACE.NAME [identity=C] COLUMN:TYPE-OID[/MODIFIER][*] ...
//	insert OID VALUE...                   VALUE: "text", b"binary", null, unchanged
//	update OID [key VALUE...|row VALUE...] new VALUE...
//	delete OID key|row VALUE...
//	truncate [cascade] [restart] OID...
//	message LSN [transactional] PREFIX CONTENT
//	raw HEX
//
// A line may start with a change to the message:
//
//	@LSN                  set its LSN
//	cut N                 remove the last N bytes
//	add HEX               append bytes
//	patch OFFSET HEX      replace bytes from the offset on; the type byte has offset 0
func parseLine(t *testing.T, line string) message {
	t.Helper()
	p := &lineParser{t: t, line: line, words: splitWords(t, line)}
	var m message
	if strings.HasPrefix(p.peek(), "@") {
		m.start = p.lsn(p.next()[1:])
	}
	m.damaged = true
	switch p.peek() {
	case "cut":
		p.next()
		n := p.number()
		m.data = p.message()
		m.data = m.data[:len(m.data)-n]
	case "add":
		p.next()
		extra := p.hex()
		m.data = append(p.message(), extra...)
	case "patch":
		p.next()
		offset, patch := p.number(), p.hex()
		m.data = p.message()
		copy(m.data[offset:], patch)
	default:
		m.damaged = p.peek() == "raw"
		m.data = p.message()
	}
	return m
}

// splitWords splits a line at spaces outside of quotes. Quoted words keep their quotes.
func splitWords(t *testing.T, line string) (words []string) {
	t.Helper()
	for line = strings.TrimSpace(line); line != ""; line = strings.TrimSpace(line) {
		end := strings.IndexAny(line, " \"")
		if end < 0 {
			end = len(line)
		} else if line[end] == '"' {
			quoted, err := strconv.QuotedPrefix(line[end:])
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			end += len(quoted)
		}
		words, line = append(words, line[:end]), line[end:]
	}
	return words
}

type lineParser struct {
	t     *testing.T
	line  string
	words []string
}

func (p *lineParser) message() []byte {
	p.t.Helper()
	var out Output
	switch kind := p.next(); kind {
	case "raw":
		return p.hex()
	case "begin":
		out = &Begin{CommitLSN: p.lsn(p.next()), XID: uint32(p.intOption("xid", 731)), CommitTime: p.timeOption()}
	case "commit":
		out = &Commit{CommitLSN: p.lsn(p.next()), EndLSN: p.lsn(p.next()), CommitTime: p.timeOption()}
	case "origin":
		out = &Origin{CommitLSN: p.lsn(p.next()), Name: p.next()}
	case "type":
		oid := p.oid()
		namespace, name, _ := strings.Cut(p.next(), ".")
		out = &Type{OID: oid, Namespace: namespace, Name: name}
	case "relation":
		out = p.relation()
	case "insert":
		out = &Insert{Relation: p.reference(), Row: p.row()}
	case "update":
		m := &Update{Relation: p.reference()}
		m.OldKind, m.Old = p.oldRow()
		if word := p.next(); word != "new" {
			p.t.Fatalf("%s: found %q, expected new", p.line, word)
		}
		m.New = p.row()
		out = m
	case "delete":
		m := &Delete{Relation: p.reference()}
		m.OldKind, m.Old = p.oldRow()
		out = m
	case "truncate":
		m := &Truncate{Cascade: p.option("cascade"), RestartIdentity: p.option("restart")}
		for p.peek() != "" {
			m.Relations = append(m.Relations, p.reference())
		}
		out = m
	case "message":
		out = &LogicalMessage{
			LSN: p.lsn(p.next()), Transactional: p.option("transactional"),
			Prefix: p.next(), Content: []byte(p.unquote(p.next())),
		}
	default:
		p.t.Fatalf("%s: unknown kind %q", p.line, kind)
	}
	return encode(out)
}

func (p *lineParser) relation() *Relation {
	r := p.reference()
	r.Namespace, r.Name, _ = strings.Cut(p.next(), ".")
	r.ReplicaIdentity = 'd'
	if identity, ok := strings.CutPrefix(p.peek(), "identity="); ok {
		p.next()
		r.ReplicaIdentity = identity[0]
	}
	for p.peek() != "" {
		word, key := strings.CutSuffix(p.next(), "*")
		name, typ, _ := strings.Cut(word, ":")
		typ, modifier, found := strings.Cut(typ, "/")
		if !found {
			modifier = "-1"
		}
		r.Columns = append(r.Columns, Column{
			Name: name, Key: key, TypeOID: uint32(p.atoi(typ)), TypeModifier: int32(p.atoi(modifier)),
		})
	}
	return r
}

func (p *lineParser) oldRow() (OldKind, []Value) {
	switch p.peek() {
	case "key":
		p.next()
		return OldKey, p.row()
	case "row":
		p.next()
		return OldRow, p.row()
	default:
		return OldNone, nil
	}
}

func (p *lineParser) row() (row []Value) {
	for p.peek() != "" && p.peek() != "new" {
		switch word := p.next(); {
		case word == "null":
			row = append(row, Value{Kind: Null})
		case word == "unchanged":
			row = append(row, Value{Kind: Unchanged})
		case word[0] == 'b':
			row = append(row, Value{Kind: Binary, Data: []byte(p.unquote(word[1:]))})
		default:
			row = append(row, Value{Kind: Text, Data: []byte(p.unquote(word))})
		}
	}
	return row
}

// peek returns the next word, "" at the end.
func (p *lineParser) peek() string {
	if len(p.words) == 0 {
		return ""
	}
	return p.words[0]
}

func (p *lineParser) next() string {
	p.t.Helper()
	if len(p.words) == 0 {
		p.t.Fatalf("%s: too few words", p.line)
	}
	word := p.words[0]
	p.words = p.words[1:]
	return word
}

func (p *lineParser) option(name string) bool {
	if p.peek() != name {
		return false
	}
	p.next()
	return true
}

func (p *lineParser) intOption(name string, otherwise int) int {
	value, ok := strings.CutPrefix(p.peek(), name+"=")
	if !ok {
		return otherwise
	}
	p.next()
	return p.atoi(value)
}

func (p *lineParser) timeOption() time.Time {
	p.t.Helper()
	value, ok := strings.CutPrefix(p.peek(), "time=")
	if !ok {
		return time.Date(2026, 1, 2, 3, 4, 5, 678_901_000, time.UTC)
	}
	p.next()
	for name, us := range map[string]int64{"infinity": math.MaxInt64, "-infinity": math.MinInt64} {
		if value == name {
			return time.Unix(postgresEpoch+us/1e6, us%1e6*1e3)
		}
	}
	at, err := time.Parse(time.RFC3339Nano, value)
	if err != nil {
		p.t.Fatalf("%s: %v", p.line, err)
	}
	return at
}

func (p *lineParser) number() int { return p.atoi(p.next()) }

func (p *lineParser) oid() uint32 { return uint32(p.number()) }

func (p *lineParser) reference() *Relation { return &Relation{OID: p.oid()} }

func (p *lineParser) atoi(s string) int {
	p.t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		p.t.Fatalf("%s: %v", p.line, err)
	}
	return n
}

func (p *lineParser) lsn(s string) pglogrepl.LSN {
	p.t.Helper()
	return parseLSN(p.t, s)
}

func (p *lineParser) hex() []byte {
	p.t.Helper()
	b, err := hex.DecodeString(p.next())
	if err != nil {
		p.t.Fatalf("%s: %v", p.line, err)
	}
	return b
}

func (p *lineParser) unquote(s string) string {
	p.t.Helper()
	text, err := strconv.Unquote(s)
	if err != nil {
		p.t.Fatalf("%s: %q: %v", p.line, s, err)
	}
	return text
}

// decodeSession decodes the messages of one session and returns a line for each. It also checks every
// message: no proper prefix of it decodes, and encoding its output returns the same bytes.
func decodeSession(t *testing.T, messages []message) string {
	t.Helper()
	var lines strings.Builder
	d := New()
	for i, m := range messages {
		if !m.damaged {
			checkPrefixes(t, d, m)
		}
		out, err := d.Decode(m.start, m.data)
		if err != nil {
			fmt.Fprintf(&lines, "error: %v\n", err)
			continue
		}
		fmt.Fprintln(&lines, printOutput(out))
		if again := encode(out); string(again) != string(m.data) {
			t.Errorf("message %d: encoded again\n%x, want\n%x", i, again, m.data)
		}
	}
	return lines.String()
}

// checkPrefixes checks that no proper prefix of m decodes, and that a failed attempt does not change d. For a long
// message it tries only some prefixes.
func checkPrefixes(t *testing.T, d *Decoder, m message) {
	t.Helper()
	step := 1 + len(m.data)/2000
	for n := 0; n < len(m.data); n += step {
		if out, err := d.Decode(m.start, m.data[:n:n]); err == nil {
			t.Errorf("the first %d bytes of %x decode to %s", n, m.data, printOutput(out))
		}
	}
}
