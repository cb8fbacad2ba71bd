package connect

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"unicode"

	"github.com/tidwall/gjson"

	"github.com/outbox-cdc/outbox-cdc/internal/jsontext"
)

// A node is a value in a JSON document.
type node struct {
	kind    nodeKind
	text    string         // of a string its characters, of a number its spelling
	members []member       // of an object, in the order in which their names came first
	places  map[string]int // of the members by name; nil as long as they are few
	elems   []node         // of an array
}

type nodeKind uint8

const (
	nullNode nodeKind = iota
	boolNode
	stringNode
	numberNode
	arrayNode
	objectNode
)

type member struct {
	name  string
	value node
}

// maxNumber is the length of the longest number that Jackson reads. A document with a longer one,
// or nested more than [jsontext.MaxDepth] deep, remains text.
const maxNumber = 1000

// Limits that Debezium does not have; they bound the memory and time that one row may take.
const (
	maxValues = 1 << 20
	maxScan   = 1 << 30 // bytes: each level reads all that is below it
)

var errLarge = errors.New("a document with too many values, or nested too deep for its size, to be expanded")

// parseDocument parses the object or array at the start of text; ok is false if there is none.
// Like Jackson, it ignores text after the document.
func parseDocument(text []byte) (n node, ok bool, err error) {
	if len(text) == 0 || text[0] != '{' && text[0] != '[' {
		return node{}, false, nil
	}
	if !jsontext.Valid(text) {
		var first json.RawMessage
		if json.NewDecoder(bytes.NewReader(text)).Decode(&first) != nil {
			return node{}, false, nil //nolint:nilerr // a text is no document
		}
		text = first
	}
	switch depth, values := jsontext.Measure(text); {
	case depth > jsontext.MaxDepth:
		return node{}, false, nil
	case values > maxValues || depth*len(text) > maxScan:
		return node{}, false, errLarge
	}
	n, ok = parseNode(gjson.ParseBytes(text))
	return n, ok, nil
}

// parseNode converts v, which must not be nested more than [jsontext.MaxDepth] deep: it recurses.
func parseNode(v gjson.Result) (n node, ok bool) {
	switch v.Type {
	case gjson.Null:
		return node{}, true
	case gjson.True, gjson.False:
		return node{kind: boolNode, text: v.Raw}, true
	case gjson.String:
		return node{kind: stringNode, text: v.Str}, true
	case gjson.Number:
		return node{kind: numberNode, text: v.Raw}, len(v.Raw) <= maxNumber
	case gjson.JSON:
	}
	ok = true
	if n.kind = arrayNode; v.IsObject() {
		n.kind = objectNode
	}
	v.ForEach(func(name, value gjson.Result) bool {
		var child node
		if child, ok = parseNode(value); !ok {
			return false
		}
		if n.kind == arrayNode {
			n.elems = append(n.elems, child)
			return true
		}
		n.set(name.Str, child)
		return true
	})
	return n, ok
}

// integer returns the value of a number. It reports whole if the number has neither a fraction nor
// an exponent, and ok if, besides, it fits into an int64.
func (n *node) integer() (v int64, whole, ok bool) {
	if strings.ContainsAny(n.text, ".eE") {
		return 0, false, false
	}
	v, err := strconv.ParseInt(n.text, 10, 64)
	return v, true, err == nil
}

// fewMembers is the number of members up to which a name is found by a linear search.
const fewMembers = 16

// set adds a member. A second member of the same name replaces the first one's value, in its place.
func (n *node) set(name string, value node) {
	if at := n.find(name, 0); at >= 0 {
		n.members[at].value = value
		return
	}
	n.members = append(n.members, member{name, value})
	if len(n.members) == fewMembers {
		n.index()
	} else if n.places != nil {
		n.places[name] = len(n.members) - 1
	}
}

func (n *node) index() {
	n.places = make(map[string]int, 2*len(n.members))
	for i := range n.members {
		n.places[n.members[i].name] = i
	}
}

// find returns the index of the named member, -1 if there is none. The search begins at from: names
// that are looked up in the document's order are found at once.
func (n *node) find(name string, from int) (at int) {
	if n.places != nil {
		if at, ok := n.places[name]; ok {
			return at
		}
		return -1
	}
	for i := range n.members {
		at = from + i
		if at >= len(n.members) {
			at -= len(n.members)
		}
		if n.members[at].name == name {
			return at
		}
	}
	return -1
}

// rename adjusts the names of all members of n as field.name.adjustment.mode says. It reports lost
// if a name changed, as Debezium does not find the member's value then, and clash if two members
// got the same name.
func (n *node) rename(mode string) (lost, clash bool) {
	seen := make(map[string]bool, len(n.members))
	for i := range n.members {
		m := &n.members[i]
		name := adjustName(m.name, mode)
		lost = lost || name != m.name
		clash = clash || seen[name]
		seen[name] = true
		m.name = name
		l, c := m.value.rename(mode)
		lost, clash = lost || l, clash || c
	}
	if n.places != nil {
		n.index()
	}
	for i := range n.elems {
		l, c := n.elems[i].rename(mode)
		lost, clash = lost || l, clash || c
	}
	return lost, clash
}

// adjustName converts name to a valid Avro name. The mode avro replaces each invalid UTF-16 unit with
// an underscore and puts one in front of a leading digit; avro_unicode writes _u and the unit's
// number instead, for underscores too.
func adjustName(name, mode string) string {
	unicodeMode := mode == "avro_unicode"
	var b strings.Builder
	for i, r := range name {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '_' && !unicodeMode
		switch {
		case letter || i > 0 && r >= '0' && r <= '9':
			b.WriteRune(r)
		case unicodeMode && r >= 0x10000:
			writeUnit(&b, 0xd800+(r-0x10000)>>10)
			writeUnit(&b, 0xdc00+(r-0x10000)&0x3ff)
		case unicodeMode:
			writeUnit(&b, r)
		case r >= 0x10000:
			b.WriteString("__")
		default:
			b.WriteByte('_')
			if i == 0 && unicode.IsDigit(r) {
				b.WriteRune(r)
			}
		}
	}
	return b.String()
}

func writeUnit(b *strings.Builder, unit rune) {
	b.WriteString("_u")
	if unit < 0x100 {
		b.WriteString("00")
	}
	b.WriteString(strconv.FormatInt(int64(unit), 16))
}
