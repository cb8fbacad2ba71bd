package encode

import "testing"

func TestFixedTopic(t *testing.T) {
	for _, tt := range []struct {
		topic string
		rules []TopicRule
		want  string
	}{
		{"orders", nil, "orders"},
		{"", nil, ""}, // the default has a column
		{"orders.${type}", nil, ""},
		{"a.b", []TopicRule{{Match: `(.*)\.(.*)`, Replace: "$2-$1"}}, "b-a"},
		{"$$", nil, ""}, // not legal
	} {
		if got := (Config{Topic: tt.topic, TopicRules: tt.rules}).FixedTopic(); got != tt.want {
			t.Errorf("%q: %q, want %q", tt.topic, got, tt.want)
		}
	}
}
