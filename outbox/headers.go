package outbox

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
)

// Headers that fields of an event become.
const (
	contentTypeHeader   = "content-type" // as in the CloudEvents binding for Kafka
	schemaVersionHeader = "schemaVersion"
)

// headers returns the headers of e, except those that the relay adds: those of the trace, those of
// Headers, which replace them, and those that other fields become.
func (e *Event) headers(cfg *Config, id string, trace map[string]string) (map[string]string, *EventError) {
	if len(e.Headers) == 0 && e.ContentType == "" && e.SchemaVersion == 0 && e.CloudEvent == nil {
		return trace, nil
	}
	fields := make(map[string]string)
	if e.ContentType != "" {
		fields[contentTypeHeader] = e.ContentType
	}
	if e.SchemaVersion != 0 && cfg.Columns.SchemaVersion == "" {
		fields[schemaVersionHeader] = strconv.Itoa(e.SchemaVersion)
	}
	if e.CloudEvent != nil {
		if _, ok := fields[contentTypeHeader]; !ok && !e.Tombstone && (cfg.PayloadType == JSONB || cfg.PayloadType == JSON) {
			fields[contentTypeHeader] = "application/json"
		}
		e.CloudEvent.addTo(fields, id, e.Type)
	}
	for _, name := range slices.Sorted(maps.Keys(e.Headers)) {
		if _, ok := fields[name]; ok {
			return nil, &EventError{Field: "Headers", Reason: "has a member " + name + ", which another field sets"}
		}
	}
	all := make(map[string]string, len(trace)+len(e.Headers)+len(fields))
	for _, headers := range [...]map[string]string{trace, e.Headers, fields} {
		maps.Copy(all, headers)
	}
	return all, nil
}

// headersProblem returns the first problem of headers, in the order of their names.
func headersProblem(field string, headers map[string]string) *EventError {
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		switch name {
		case "":
			return &EventError{Field: field, Reason: "has a member without a name"}
		case "id", "eventType":
			return &EventError{Field: field, Reason: "has a member " + name + ", which the relay sets"}
		}
		for _, s := range [...]string{name, headers[name]} {
			if reason := textProblem(s); reason != "" {
				return &EventError{Field: field, Reason: "has a member that " + reason}
			}
		}
	}
	return nil
}

// encodeHeaders returns headers as a JSON object, or nil if there are none.
func encodeHeaders(headers map[string]string) ([]byte, error) {
	if len(headers) == 0 {
		return nil, nil
	}
	return json.Marshal(headers)
}
