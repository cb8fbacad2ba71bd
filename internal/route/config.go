package route

import (
	"errors"
	"fmt"
	"slices"
)

// Config says which column of an outbox row becomes which part of its record.
type Config struct {
	// Columns names the columns; take [DefaultColumns] and change what differs.
	Columns Columns

	// Topic is the template of the topic's name: literal text with ${name} for a
	// column's value, where name is one of id, key, route, type (the columns of those
	// roles) or the name of any other column; $$ is a dollar sign.
	// Empty means [DefaultTopic].
	Topic string

	// TombstoneOnEmpty makes an empty or white-space payload a null value, as SQL NULL
	// always is.
	TombstoneOnEmpty bool

	// Place puts further columns into the record, headers in this order.
	Place []Placement

	// PositionHeaders adds outbox_lsn (the commit LSN), outbox_index (the row's place in
	// its transaction, from 0) and outbox_committed_at (RFC 3339, UTC) to every record.
	PositionHeaders bool
}

// DefaultTopic is the topic template used when none is configured.
const DefaultTopic = "outbox.event.${route}"

// The headers every record has, first and in this order.
const (
	IDHeader   = "id"
	TypeHeader = "eventType"
)

// Columns names the columns of an outbox table by the part they play.
type Columns struct {
	ID      string // header "id"; not NULL
	Key     string // record key; NULL is a null key
	Route   string // ${route} in the topic template
	Type    string // header "eventType"; empty: no such header
	Payload string // record value; NULL is a null value

	// Headers holds a JSON object whose members become headers: strings as their text,
	// anything else as its JSON. Empty: none. A table may lack the column of the default
	// name; a name that was chosen must exist.
	Headers string
}

// DefaultColumns returns the names Debezium's outbox event router uses, plus headers.
func DefaultColumns() Columns {
	return Columns{
		ID: "id", Key: "aggregateid", Route: "aggregatetype",
		Type: "type", Payload: "payload", Headers: "headers",
	}
}

// A Target is the part of the record a placed column goes to.
type Target string

// The places a column can be put.
const (
	ToHeader    Target = "header"    // a header with the column's text; NULL is a null value
	ToPartition Target = "partition" // the partition's number; NULL leaves it to the key
)

// A Placement puts one more column into the record.
type Placement struct {
	Column string
	To     Target
	As     string // the header's name; empty means the column's
}

// validate returns every problem of cfg at once.
func (cfg Config) validate() error {
	var errs []error
	for _, c := range []struct{ role, name string }{
		{"id", cfg.Columns.ID},
		{"key", cfg.Columns.Key},
		{"route", cfg.Columns.Route},
		{"payload", cfg.Columns.Payload},
	} {
		if c.name == "" {
			errs = append(errs, fmt.Errorf("columns.%s: a column name is needed", c.role))
		}
	}
	partitions := 0
	for i, p := range cfg.Place {
		if p.Column == "" {
			errs = append(errs, fmt.Errorf("place[%d].column: a column name is needed", i))
		}
		if !slices.Contains([]Target{ToHeader, ToPartition}, p.To) {
			errs = append(errs, fmt.Errorf("place[%d].to: %q is not one of header, partition", i, p.To))
		}
		if p.To == ToPartition {
			partitions++
		}
	}
	if partitions > 1 {
		errs = append(errs, errors.New("place: only one column can be the partition"))
	}
	if parts, err := parseTemplate(cfg.Topic); err != nil {
		errs = append(errs, err)
	} else if len(parts) == 1 && parts[0].column == "" {
		if illegal := illegalTopic([]byte(parts[0].text)); illegal != "" {
			errs = append(errs, fmt.Errorf("topic: %q %s", cfg.Topic, illegal))
		}
	}
	return errors.Join(errs...)
}
