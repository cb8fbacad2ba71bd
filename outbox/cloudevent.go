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

// A CloudEvent has the attributes of [CloudEvents 1.0] that are not fields of [Event]. The record uses
// the binary mode of the [Kafka binding]: each attribute is a header with the prefix ce_, and the
// payload is the value. If ContentType is empty and the payload column has JSON, the header
// content-type is application/json. The attributes id and type are those of the event. A tombstone is
// a CloudEvent without data.
//
// An attribute that does not conform to the specification is an [*EventError], for a field such as
// CloudEvent.Source.
//
// [CloudEvents 1.0]: https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/spec.md
// [Kafka binding]: https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/kafka-protocol-binding.md
type CloudEvent struct {
	// Source is where the event comes from: a URI reference such as /orders or
	// https://shop.example/orders. It is required. Source and id together identify the event.
	Source string

	// Subject is what the event is about within Source, such as the aggregate. Optional.
	Subject string

	// Time is when the event happened. Zero means no such attribute.
	Time time.Time

	// DataSchema is the absolute URI of the payload's schema. Optional.
	DataSchema string

	// Extensions are further attributes. Their names consist of a-z and 0-9.
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

// check returns the first problem of an attribute.
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
		return &EventError{Field: "CloudEvent.Time", Reason: "is outside the years 0 to 9999 of RFC 3339"}
	case c.DataSchema != "" && (!uri(c.DataSchema) || !absolute(c.DataSchema)):
		return &EventError{Field: "CloudEvent.DataSchema", Reason: "is not an absolute URI"}
	}
	for name, value := range c.Extensions {
		reason := attributeProblem(value)
		if !extensionName(name) {
			reason = "has a name with other characters than a-z and 0-9, or the name of an attribute"
		}
		if reason != "" {
			return &EventError{Field: "CloudEvent.Extensions", Reason: reason}
		}
	}
	return nil
}

// extensionName reports whether an extension can have this name: not data, and no attribute of the
// specification.
func extensionName(name string) bool {
	taken := []string{"id", "source", "specversion", "type", "datacontenttype", "dataschema", "subject", "time", "data"}
	return name != "" && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789") == "" && !slices.Contains(taken, name)
}

// attributeProblem returns why a string cannot be the value of an attribute, or the empty string.
func attributeProblem(s string) string {
	if !utf8.ValidString(s) {
		return "is not UTF-8"
	}
	if strings.ContainsFunc(s, func(r rune) bool { return unicode.IsControl(r) || noncharacter(r) }) {
		return "contains a control character or noncharacter"
	}
	return ""
}

// noncharacter reports whether r is a noncharacter of Unicode
// (https://www.unicode.org/faq/private_use.html#noncharacters).
func noncharacter(r rune) bool { return 0xFDD0 <= r && r <= 0xFDEF || r&0xFFFE == 0xFFFE }

// uri reports whether s is a URI reference (RFC 3986, 4.1).
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
