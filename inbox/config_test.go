package inbox_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/inbox"
)

func TestNewRefuses(t *testing.T) {
	nothing := func(context.Context, pgx.Tx, inbox.Event) error { return nil }
	for want, change := range map[string]func(*inbox.Config){
		"inbox: the consumer's name is empty":                      func(c *inbox.Config) { c.Consumer = "" },
		`inbox: the consumer's name "\x00" is not text`:            func(c *inbox.Config) { c.Consumer = "\x00" },
		"inbox: Config.Handlers: there is none":                    func(c *inbox.Config) { c.Handlers = nil },
		`inbox: Config.Handlers: that of "A" is nil`:               func(c *inbox.Config) { c.Handlers["A"] = nil },
		`inbox: Config.Unknown: "drop" is not one of park, ignore`: func(c *inbox.Config) { c.Unknown = "drop" },
		"inbox: Config.Delays: -1s is negative":                    func(c *inbox.Config) { c.Delays = []time.Duration{1, -time.Second} },
		"inbox: Config.Timeout: -1ns is negative":                  func(c *inbox.Config) { c.Timeout = -1 },
		"inbox: Config.Grace: -1ns is negative":                    func(c *inbox.Config) { c.Grace = -1 },
		"inbox: Config.Lease: -1ns is negative":                    func(c *inbox.Config) { c.Lease = -1 },
		"inbox: Config.Poll: -1ns is negative":                     func(c *inbox.Config) { c.Poll = -1 },
		"inbox: Config.Workers: -1 is negative":                    func(c *inbox.Config) { c.Workers = -1 },
		"inbox: Config.MaxWaiting: -1 is negative":                 func(c *inbox.Config) { c.MaxWaiting = -1 },
	} {
		cfg := inbox.Config{Consumer: "test", Handlers: map[string]inbox.Handler{"A": nothing}}
		change(&cfg)
		if _, err := inbox.New(nil, cfg); err == nil || err.Error() != want {
			t.Errorf("New = %v, want %s", err, want)
		}
	}
}

// Without an id nothing can be known again.
func TestParseRecord(t *testing.T) {
	for _, test := range []struct {
		id, want string
	}{
		{"0199a3c1-7a00-7000-8000-000000000001", ""},
		{"", "inbox: orders[2] at offset 9: the record has no header id"},
		{"17", "inbox: orders[2] at offset 9: the header id is no UUID"},
		{"00000000-0000-0000-0000-000000000000", "inbox: orders[2] at offset 9: the header id is no UUID"},
	} {
		e := inbox.Event{Topic: "orders", Partition: 2, Offset: 9}
		headers := []inbox.Header{{Name: "eventType", Value: []byte("A")}, {Name: "eventType", Value: []byte("B")}}
		if test.id != "" {
			headers = append(headers, inbox.Header{Name: "id", Value: []byte(test.id)})
		}
		got := ""
		if err := e.ParseRecord(headers); err != nil {
			got = err.Error()
		}
		if got != test.want || e.Type != "A" || got == "" && e.ID.String() != test.id {
			t.Errorf("id %q: %q, want %q; %+v", test.id, got, test.want, e)
		}
	}
}
