package inbox_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/inbox"
)

func TestNewProcessorErrors(t *testing.T) {
	nothing := func(context.Context, pgx.Tx, inbox.Event) error { return nil }
	for want, change := range map[string]func(*inbox.Config){
		"inbox: the consumer's name is empty":                            func(c *inbox.Config) { c.Consumer = "" },
		`inbox: the consumer's name "\x00" is not valid text`:            func(c *inbox.Config) { c.Consumer = "\x00" },
		"inbox: Config.Handlers is empty":                                func(c *inbox.Config) { c.Handlers = nil },
		`inbox: Config.Handlers: the handler of "A" is nil`:              func(c *inbox.Config) { c.Handlers["A"] = nil },
		`inbox: Config.OnUnknownType: "drop" is neither park nor ignore`: func(c *inbox.Config) { c.OnUnknownType = "drop" },
		"inbox: Config.RetryDelays: -1s is negative":                     func(c *inbox.Config) { c.RetryDelays = []time.Duration{1, -time.Second} },
		"inbox: Config.Timeout: -1ns is negative":                        func(c *inbox.Config) { c.Timeout = -1 },
		"inbox: Config.Grace: -1ns is negative":                          func(c *inbox.Config) { c.Grace = -1 },
		"inbox: Config.LeaseDuration: -1ns is negative":                  func(c *inbox.Config) { c.LeaseDuration = -1 },
		"inbox: Config.PollInterval: -1ns is negative":                   func(c *inbox.Config) { c.PollInterval = -1 },
		"inbox: Config.Workers: -1 is negative":                          func(c *inbox.Config) { c.Workers = -1 },
		"inbox: Config.MaxWaiting: -1 is negative":                       func(c *inbox.Config) { c.MaxWaiting = -1 },
	} {
		cfg := inbox.Config{Consumer: "test", Handlers: map[string]inbox.Handler{"A": nothing}}
		change(&cfg)
		if _, err := inbox.NewProcessor(nil, cfg); err == nil || err.Error() != want {
			t.Errorf("NewProcessor = %v, want %s", err, want)
		}
	}
}

func TestParseHeaders(t *testing.T) {
	for _, test := range []struct {
		id, want string
	}{
		{"0199a3c1-7a00-7000-8000-000000000001", ""},
		{"", "inbox: orders[2] at offset 9: the record has no header id"},
		{"17", "inbox: orders[2] at offset 9: the header id is not a UUID"},
		{"00000000-0000-0000-0000-000000000000", "inbox: orders[2] at offset 9: the header id is not a UUID"},
	} {
		e := inbox.Event{Topic: "orders", Partition: 2, Offset: 9}
		e.Headers = []inbox.Header{{Name: "eventType", Value: []byte("A")}, {Name: "eventType", Value: []byte("B")}}
		if test.id != "" {
			e.Headers = append(e.Headers, inbox.Header{Name: "id", Value: []byte(test.id)})
		}
		got := ""
		if err := e.ParseHeaders(); err != nil {
			got = err.Error()
		}
		if got != test.want || e.Type != "A" || got == "" && e.ID.String() != test.id {
			t.Errorf("id %q: %q, want %q; %+v", test.id, got, test.want, e)
		}
	}
}
