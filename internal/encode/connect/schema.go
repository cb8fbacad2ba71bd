package connect

import "strconv"

// A schema is a Kafka Connect schema.
type schema struct {
	kind       string // its type, in JsonConverter's words: float and double, not float32 and float64
	optional   bool
	name       string
	version    int // 0: none
	doc        string
	parameters []parameter
	defaults   string  // the default as JSON; "": none
	fields     []field // of a struct
	items      *schema // of an array; of a map, its values
}

type parameter struct{ key, value string }

type field struct {
	name   string
	schema schema
}

// appendJSON appends the schema as JsonConverter writes it, with the members in the same order.
func (s *schema) appendJSON(dst []byte) []byte {
	return append(s.appendMembers(append(dst, '{')), '}')
}

// appendField appends the schema of a struct's field.
func (s *schema) appendField(dst []byte, name string) []byte {
	dst = s.appendMembers(append(dst, '{'))
	dst = appendJSONString(append(dst, `,"field":`...), []byte(name))
	return append(dst, '}')
}

func (s *schema) appendMembers(dst []byte) []byte {
	dst = append(append(append(dst, `"type":"`...), s.kind...), '"')
	switch s.kind {
	case "array":
		dst = s.items.appendJSON(append(dst, `,"items":`...))
	case "map":
		dst = append(dst, `,"keys":{"type":"string","optional":false},"values":`...)
		dst = s.items.appendJSON(dst)
	case "struct":
		dst = append(dst, `,"fields":[`...)
		for i := range s.fields {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = s.fields[i].schema.appendField(dst, s.fields[i].name)
		}
		dst = append(dst, ']')
	}
	dst = strconv.AppendBool(append(dst, `,"optional":`...), s.optional)
	if s.name != "" {
		dst = appendJSONString(append(dst, `,"name":`...), []byte(s.name))
	}
	if s.version != 0 {
		dst = strconv.AppendInt(append(dst, `,"version":`...), int64(s.version), 10)
	}
	if s.doc != "" {
		dst = appendJSONString(append(dst, `,"doc":`...), []byte(s.doc))
	}
	for i, p := range s.parameters {
		if i == 0 {
			dst = append(dst, `,"parameters":{`...)
		} else {
			dst = append(dst, ',')
		}
		dst = append(appendJSONString(dst, []byte(p.key)), ':')
		dst = appendJSONString(dst, []byte(p.value))
	}
	if len(s.parameters) > 0 {
		dst = append(dst, '}')
	}
	if s.defaults != "" {
		dst = append(append(dst, `,"default":`...), s.defaults...)
	}
	return dst
}
