package encode

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/outbox-cdc/outbox-cdc/internal/encode/format"
)

// validate returns all problems of cfg. Each starts with the name of its key.
func (cfg Config) validate() error {
	return errors.Join(slices.Concat(cfg.columnProblems(), cfg.placeProblems(), cfg.topicProblems(), cfg.encodingProblems())...)
}

func (cfg Config) columnProblems() (errs []error) {
	for _, c := range []struct {
		role  string
		names ColumnNames
	}{
		{"id", cfg.Columns.ID},
		{"key", cfg.Columns.Key},
		{"route", cfg.Columns.Route},
		{"payload", cfg.Columns.Payload},
	} {
		if len(c.names) == 0 || slices.Contains(c.names, "") {
			errs = append(errs, fmt.Errorf("columns.%s: a column name is needed", c.role))
		}
	}
	return errs
}

func (cfg Config) placeProblems() (errs []error) {
	partitions := 0
	members := map[string]bool{payloadMember: true}
	for i, p := range cfg.Place {
		if p.Column == "" {
			errs = append(errs, fmt.Errorf("place[%d].column: a column name is needed", i))
		}
		switch p.To {
		case ToHeader:
			if strings.HasPrefix(p.name(), deadLetterPrefix) {
				errs = append(errs, fmt.Errorf("place[%d].as: headers %s… are those of dead letters", i, deadLetterPrefix))
			}
		case ToPartition:
			partitions++
		case ToEnvelope:
			if members[p.name()] {
				errs = append(errs, fmt.Errorf("place[%d].as: the envelope already has a member %q", i, p.name()))
			}
			members[p.name()] = true
		default:
			errs = append(errs, fmt.Errorf("place[%d].to: %q is not one of %s", i, p.To, list(Targets())))
		}
	}
	for _, h := range cfg.Static {
		if strings.HasPrefix(h.Name, deadLetterPrefix) {
			errs = append(errs, fmt.Errorf("headers.static: headers %s… are those of dead letters", deadLetterPrefix))
		}
	}
	if partitions > 1 {
		errs = append(errs, errors.New("place: only one column can be the partition"))
	}
	return errs
}

func (cfg Config) topicProblems() (errs []error) {
	for i, r := range cfg.TopicRules {
		if r.Match == "" {
			errs = append(errs, fmt.Errorf("topic_rules[%d].match: a regular expression is needed", i))
		} else if _, err := ParseRule(r.Match, r.Replace); err != nil {
			errs = append(errs, fmt.Errorf("topic_rules[%d].%w", i, err))
		}
	}
	if _, err := parseTemplate(cfg.Topic); err != nil {
		errs = append(errs, err)
	}
	if illegal := cfg.IllegalTopic(); illegal != "" {
		errs = append(errs, fmt.Errorf("topic: %q %s", cfg.Topic, illegal))
	}
	return errs
}

// encodingProblems returns errors for unknown encodings, and for those that cannot encode a part of the
// record.
func (cfg Config) encodingProblems() (errs []error) {
	e := cfg.Encoding
	value, headers := EncodingsOfValue(), EncodingsOfHeaders()
	for _, c := range []struct {
		part    string
		is      format.Encoding
		allowed []format.Encoding
	}{{"key", e.Key, value}, {"value", e.Value, value}, {"headers", e.Headers, headers}} {
		if c.is != "" && !slices.Contains(c.allowed, c.is) {
			errs = append(errs, fmt.Errorf("encoding.%s: %q is not one of %s", c.part, c.is, list(c.allowed)))
		}
	}
	if i := slices.IndexFunc(cfg.Place, func(p Placement) bool { return p.To == ToEnvelope }); i >= 0 && !isJSON(e.Value) {
		errs = append(errs, fmt.Errorf("place[%d].to: an envelope is a JSON object: encoding.value must be json or json-schema", i))
	}
	for _, d := range []struct {
		part         string
		is, delegate format.Encoding
	}{{"key", e.Key, cfg.Debezium.KeyDelegate}, {"value", e.Value, cfg.Debezium.ValueDelegate}} {
		switch {
		case d.delegate == "":
		case !slices.Contains(EncodingsOfDelegates(), d.delegate):
			errs = append(errs, fmt.Errorf("debezium.%s_delegate: %q is not one of %s", d.part, d.delegate, list(EncodingsOfDelegates())))
		case d.is != format.Bytes:
			errs = append(errs, fmt.Errorf("debezium.%s_delegate: has no effect: encoding.%s is not bytes", d.part, d.part))
		}
	}
	if cfg.Debezium.Expand && !isJSON(e.Value) && (e.Value != format.Bytes || !isJSON(cfg.Debezium.ValueDelegate)) {
		errs = append(errs, errors.New("debezium.expand_payload: has no effect: encoding.value is not json or json-schema"))
	}
	if len(cfg.Columns.Headers) > 0 && e.Headers == format.JSONSchema {
		errs = append(errs, errors.New(`encoding.headers: the members of a JSON column have no schema: columns.headers must be ""`))
	}
	return errs
}

func isJSON(e format.Encoding) bool { return e == format.JSON || e == format.JSONSchema }

// list returns words as "a, b, c".
func list[T ~string](words []T) string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = string(w)
	}
	return strings.Join(out, ", ")
}

// EncodingsOfValue returns the encodings of keys and values.
func EncodingsOfValue() []format.Encoding {
	return []format.Encoding{format.Raw, format.String, format.JSON, format.JSONSchema, format.Bytes}
}

// EncodingsOfDelegates returns the encodings to which [format.Bytes] can delegate.
func EncodingsOfDelegates() []format.Encoding {
	return []format.Encoding{format.String, format.JSON, format.JSONSchema}
}

// EncodingsOfHeaders returns the encodings of headers.
func EncodingsOfHeaders() []format.Encoding {
	return []format.Encoding{format.Raw, format.Simple, format.String, format.JSON, format.JSONSchema}
}
