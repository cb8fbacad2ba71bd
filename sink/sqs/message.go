package sqs

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// The attributes that a message has besides the headers of its record.
const (
	// keyAttribute is the key. A record without a key has no such attribute.
	keyAttribute = "outbox_key"

	// bodyAttribute says that the body is not the value itself: base64, null or empty. A body must be text with
	// characters of XML, and at least one of them. The body of a null value is the word null, and that of an empty
	// value is a pair of quotes.
	bodyAttribute = "outbox_body"

	// headersAttribute has the headers that cannot be attributes, as a JSON array of objects in the order of the
	// record: {"name":…,"value":…}, with "base64" in place of "value" if it is not UTF-8. A null value is null.
	headersAttribute = "outbox_headers"

	// idHeader is the header that has the event id.
	idHeader = "id"
)

// maxAttributes is the maximum of the service for each message.
const maxAttributes = 10

// maxID is the maximum length of a message group id and a deduplication id.
const maxID = 128

// A message is a record in the form in which both services take it.
type message struct {
	body        string
	attributes  []attribute
	group       string // message group id; empty if the destination is not FIFO
	duplication string // deduplication id; empty if the destination is not FIFO
	size        int    // in bytes, as the limit counts it
}

// An attribute is a message attribute: text, unless binary is not nil.
type attribute struct {
	name, text string
	binary     []byte
}

// newMessage returns the message for a record. token identifies this process in the deduplication ids of records that
// have no id of their own.
func newMessage(r *sink.Record, fifo bool, token string) message {
	m := message{attributes: make([]attribute, 0, 6)}
	var encoding string
	if m.body, encoding = bodyOf(r.Value); encoding != "" {
		m.attributes = append(m.attributes, attribute{name: bodyAttribute, text: encoding})
	}
	var rest []header
	if a, ok := attributeOf(keyAttribute, r.Key); ok {
		m.attributes = append(m.attributes, a)
	} else if r.Key != nil {
		rest = append(rest, header{Name: keyAttribute, Value: new(string)})
	}
	if !r.Timestamp.IsZero() {
		at := r.Timestamp.UTC().Format(sink.TimestampFormat)
		m.attributes = append(m.attributes, attribute{name: sink.TimestampHeader, text: at})
	}
	m.addHeaders(r.Headers, rest)
	if fifo {
		m.duplication = duplicationID(r, token)
		m.group = m.duplication
		if r.Key != nil {
			m.group = groupID(r.Key)
		}
	}
	m.size = len(m.body)
	for i := range m.attributes {
		a := &m.attributes[i]
		m.size += len(a.name) + len(a.text) + len(a.binary) + len("Binary")
	}
	return m
}

// bodyOf returns the body for a value, and the value of bodyAttribute.
func bodyOf(value []byte) (body, encoding string) {
	switch {
	case value == nil:
		return "null", "null"
	case len(value) == 0:
		return `""`, "empty"
	case !isText(value):
		return base64.StdEncoding.EncodeToString(value), "base64"
	}
	return string(value), ""
}

// isText reports whether b is UTF-8 with only the characters that the services accept: https://www.w3.org/TR/REC-xml/#charsets
func isText(b []byte) bool {
	ascii := true
	for _, c := range b {
		if c < 0x20 && c != '\t' && c != '\n' && c != '\r' {
			return false
		}
		ascii = ascii && c < utf8.RuneSelf
	}
	if ascii {
		return true
	}
	if !utf8.Valid(b) {
		return false
	}
	s := string(b)
	return !strings.Contains(s, "\uFFFE") && !strings.Contains(s, "\uFFFF")
}

// attributeOf returns the attribute for a value. It returns false if the value is null or empty, which no attribute may be.
func attributeOf(name string, value []byte) (attribute, bool) {
	switch {
	case len(value) == 0:
		return attribute{}, false
	case isText(value):
		return attribute{name: name, text: string(value)}, true
	}
	return attribute{name: name, binary: value}, true
}

// A header is an element of headersAttribute.
type header struct {
	Name   string  `json:"name"`
	Value  *string `json:"value"`
	Base64 *string `json:"base64,omitempty"`
}

func headerOf(h sink.Header) header {
	of := header{Name: h.Key}
	if h.Value == nil {
		return of
	}
	if text := string(h.Value); utf8.ValidString(text) {
		of.Value = &text
	} else {
		text = base64.StdEncoding.EncodeToString(h.Value)
		of.Base64 = &text
	}
	return of
}

// addHeaders makes each header an attribute while there is room for it, in the order of the record. It adds the other
// headers to rest, which becomes one attribute.
func (m *message) addHeaders(headers []sink.Header, rest []header) {
	room := maxAttributes - len(m.attributes)
	plain := make([]bool, len(headers))
	others := len(rest)
	for i := range headers {
		plain[i] = canBeAttribute(headers, i)
		if !plain[i] {
			others++
		}
	}
	if others > 0 || len(headers) > room {
		room-- // for headersAttribute
	}
	for i, h := range headers {
		if plain[i] && room > 0 {
			a, _ := attributeOf(h.Key, h.Value)
			m.attributes = append(m.attributes, a)
			room--
		} else {
			rest = append(rest, headerOf(h))
		}
	}
	if len(rest) > 0 {
		m.attributes = append(m.attributes, attribute{name: headersAttribute, text: marshal(rest)})
	}
}

// marshal returns v as JSON of which every character is printable ASCII or one that the services accept.
func marshal(v []header) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic("sqs: strings cannot fail to marshal: " + err.Error())
	}
	return strings.NewReplacer("\uFFFE", `\ufffe`, "\uFFFF", `\uffff`).Replace(string(b))
}

// attributeName is the form of an attribute's name: https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-message-metadata.html
var attributeName = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`)

const longestAttribute = 256

// canBeAttribute reports whether the service accepts headers[i] as an attribute: it has a valid name that no other
// header and no attribute of ours has, and a value.
func canBeAttribute(headers []sink.Header, i int) bool {
	name := headers[i].Key
	if len(headers[i].Value) == 0 || len(name) > longestAttribute || !attributeName.MatchString(name) {
		return false
	}
	switch name {
	case keyAttribute, bodyAttribute, headersAttribute, sink.TimestampHeader:
		return false
	}
	for _, reserved := range []string{"aws.", "amazon."} {
		if len(name) >= len(reserved) && strings.EqualFold(name[:len(reserved)], reserved) {
			return false
		}
	}
	for j := range headers {
		if j != i && headers[j].Key == name {
			return false
		}
	}
	return true
}

// groupID returns the message group id for a key: the key itself if the service accepts it, otherwise its SHA-256.
func groupID(key []byte) string { return identifier(string(key)) }

// identifier returns s if the service accepts it as a message group id or a deduplication id, otherwise its SHA-256.
func identifier(s string) string {
	valid := len(s) > 0 && len(s) <= maxID
	for i := 0; valid && i < len(s); i++ {
		valid = s[i] > ' ' && s[i] <= '~'
	}
	if valid {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// duplicationID returns the deduplication id of a record: its event id. A replayed or resent record is to be delivered
// although the event was, so token distinguishes it. A record without an id is only recognised in this process.
func duplicationID(r *sink.Record, token string) string {
	id, again := "", false
	for i := range r.Headers {
		switch r.Headers[i].Key {
		case idHeader:
			id = cmp.Or(id, string(r.Headers[i].Value)) // the first one counts
		case "replayed", "resent":
			again = true
		}
	}
	switch {
	case id == "":
		return token + ":" + strconv.FormatUint(r.Seq, 10)
	case again:
		return identifier(id + ":" + token)
	}
	return identifier(id)
}
