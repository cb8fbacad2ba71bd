package sink_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

func TestCheckNotNegative(t *testing.T) {
	type window struct{ Bytes, Records int }
	type config struct {
		Name    string
		Timeout time.Duration
		Window  window
		Limit   uint64
	}
	for want, c := range map[string]config{
		"<nil>":                            {Name: "x", Timeout: 1, Limit: 1},
		"sink: Timeout is negative":        {Timeout: -1, Window: window{Bytes: -1}},
		"sink: Window.Records is negative": {Window: window{Records: -1}},
	} {
		if err := sink.CheckNotNegative(c); fmt.Sprint(err) != want {
			t.Errorf("%+v: %v, want %s", c, err, want)
		}
	}
}
