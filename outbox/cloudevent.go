package outbox

import (
	"mime"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// A CloudEvent holds the attributes of CloudEvents 1.0 that an [Event] does not have anyway. Its
// record is in the binary mode of the Kafka binding: each attribute is a header with the prefix
// ce_, the payload is the value and ContentType the header content-type, application/json if it is
// empty and the payload JSON. The attributes id and type are those of the event. A tombstone is a
// CloudEvent without data.
//
// Every attribute is checked by the specification, and one that does not conform is an
// [*EventError] for a field such as CloudEvent.Source.
//
// See https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/spec.md and
// https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/kafka-protocol-binding.md.
type CloudEvent struct {
	// Source says where the event comes from: a URI reference such as /orders or
	// https://shop.example/orders. It is required; with the id it identifies the event.
	Source string

	// Subject says what the event is about within Source, such as the aggregate. Optional.
	Subject string

	// Time says when it happened. Zero: not said.
	Time time.Time

	// DataSchema is the absolute URI of what the payload adheres to. Optional.
	DataSchema string

	// Extensions are further attributes. Names consist of a-z and 0-9.
	Extensions map[string]string
}

const cloudPrefix = "ce_"

// addTo adds the attributes to headers.
func (c *CloudEvent) addTo(headers map[string]string, id, kind string) {
	headers[cloudPrefix+"specversion"] = "1.0"
	headers[cloudPrefix+"id"] = id
	headers[cloudPrefix+"source"] = c.Source
	headers[cloudPrefix+"type"] = kind
	for name, value := range map[string]string{"subject": c.Subject, "dataschema": c.DataSchema} {
		if value != "" {
			headers[cloudPrefix+name] = value
		}
	}
	if !c.Time.IsZero() {
		headers[cloudPrefix+"time"] = c.Time.Format(time.RFC3339Nano)
	}
	for name, value := range c.Extensions {
		headers[cloudPrefix+name] = value
	}
}

// check returns the first attribute that does not conform.
func (c *CloudEvent) check(kind string) *EventError {
	switch {
	case attributeProblem(kind) != "":
		return &EventError{Field: "Type", Reason: attributeProblem(kind) + ", as the type of a CloudEvent"}
	case c.Source == "":
		return &EventError{Field: "CloudEvent.Source", Reason: "is empty"}
	case !uri(c.Source):
		return &EventError{Field: "CloudEvent.Source", Reason: "is not a URI reference"}
	case attributeProblem(c.Subject) != "":
		return &EventError{Field: "CloudEvent.Subject", Reason: attributeProblem(c.Subject)}
	case !c.Time.IsZero() && (c.Time.Year() < 0 || c.Time.Year() > 9999):
		return &EventError{Field: "CloudEvent.Time", Reason: "is outside of the years that RFC 3339 can write"}
	case c.DataSchema != "" && (!uri(c.DataSchema) || !absolute(c.DataSchema)):
		return &EventError{Field: "CloudEvent.DataSchema", Reason: "is not an absolute URI"}
	}
	for name, value := range c.Extensions {
		reason := attributeProblem(value)
		if !extensionName(name) {
			reason = "has a name that is not of a-z and 0-9, or is an attribute's"
		}
		if reason != "" {
			return &EventError{Field: "CloudEvent.Extensions", Reason: reason}
		}
	}
	return nil
}

// extensionName reports whether an extension can have this name, which data and the attributes of
// the specification have not.
func extensionName(name string) bool {
	taken := []string{"id", "source", "specversion", "type", "datacontenttype", "dataschema", "subject", "time", "data"}
	return name != "" && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789") == "" && !slices.Contains(taken, name)
}

// attributeProblem says why a string cannot be an attribute's value, or nothing: control and
// noncharacters are not allowed.
func attributeProblem(s string) string {
	if !utf8.ValidString(s) {
		return "is not UTF-8"
	}
	if strings.ContainsFunc(s, func(r rune) bool { return unicode.IsControl(r) || noncharacter(r) }) {
		return "contains a control character or noncharacter"
	}
	return ""
}

// noncharacter reports whether Unicode has set r aside
// (https://www.unicode.org/faq/private_use.html#noncharacters).
func noncharacter(r rune) bool { return 0xFDD0 <= r && r <= 0xFDEF || r&0xFFFE == 0xFFFE }

// uri reports whether s is a URI reference (RFC 3986, 4.1), which consists of ASCII.
func uri(s string) bool {
	if strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune("\"<>\\^`{|}", r) }) {
		return false
	}
	_, err := url.Parse(s)
	return err == nil
}

func absolute(s string) bool {
	u, err := url.Parse(s)
	return err == nil && u.IsAbs()
}

// mediaType reports whether s is a media type such as application/json; charset=utf-8 (RFC 2046).
func mediaType(s string) bool {
	kind, _, err := mime.ParseMediaType(s)
	return err == nil && strings.Contains(kind, "/")
}
