package config

import "testing"

// A misspelling is near as a whole: a name with an ending like that of another one is none.
func TestMisspelled(t *testing.T) {
	options := []string{"table.field.event.key", "table.field.event.payload", "route.by.field", "route.topic.regex", "route.topic.replacement"}
	for got, want := range map[string]string{
		"table.field.event.playload": "table.field.event.payload", "table.field.payload": "table.field.event.payload", "route.topic.regexp": "route.topic.regex",
		"agregateid": "", "route.topic.partition.by": "",
	} {
		if meant := Misspelled(got, options); meant != want {
			t.Errorf("%s: %q, want %q", got, meant, want)
		}
	}
}
