package cli

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/command"
	"github.com/outbox-cdc/outbox-cdc/internal/config"
	"github.com/outbox-cdc/outbox-cdc/internal/parking"
	"github.com/outbox-cdc/outbox-cdc/internal/relay"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
	"github.com/outbox-cdc/outbox-cdc/sink/kafka"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
)

// A release that a signal stops says so. Its request stays filed.
func TestInterruptedRelease(t *testing.T) {
	fake := kafkatest.Fake(t)
	cfg := relay.Config{Sink: kafka.Config{Brokers: fake.Addrs}, Name: "outbox_cdc", Positions: position.Place{Topic: fake.Topic(t, 1, nil)}}
	keys, err := relay.OpenParkedKeys(t.Context(), cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer keys.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := &releasing{app: &app{stdout: io.Discard, stderr: io.Discard}, keys: keys, wait: time.Minute}
	err = r.await(ctx, parking.Parking{ID: "p"}, parking.Request{ID: "q", Parking: "p"})
	if f, ok := errors.AsType[*command.ExitError](err); !ok || f.What != "interrupted" || !strings.Contains(f.Next, "the request stays filed") {
		t.Errorf("interrupted: %+v", err)
	}
}

// A key is found by what dead-letter list prints for it.
func TestReleaseByThePrintedKey(t *testing.T) {
	r := &releasing{app: &app{stdout: io.Discard, stderr: io.Discard}}
	for _, key := range []string{"o-1", "Zoë", "a\tb\n", " o-1 ", `\t`, `"o-1"`, "'a'", "`b`", "\x00\xff", "0x", ""} {
		r.key = key
		if key != "" {
			r.key, _, _ = strings.Cut(visible([]byte(key)), " (")
		}
		found, err := r.find([]parking.Parking{{ID: "p", Key: parking.Key{Topic: "t", Key: key}}, {ID: "q", Key: parking.Key{Topic: "t", Key: "a"}}})
		if err != nil || found.ID != "p" {
			t.Errorf("--key %s does not find %q: %v", r.key, key, err)
		}
	}
}

// A list names ten parked keys, and all with --limit 0.
func TestListOfParkedKeys(t *testing.T) {
	var out strings.Builder
	l := &deadLetters{app: &app{stdout: &out}, cfg: &config.Config{}}
	for i := range 12 {
		l.parked.Parkings = append(l.parked.Parkings, parking.Parking{ID: "p", Key: parking.Key{Topic: "t", Key: strconv.Itoa(i)}})
	}
	l.printParked(false)
	if strings.Count(out.String(), "to release it: ") != 10 || !strings.Contains(out.String(), "2 more keys are parked; --limit 0 ") {
		t.Errorf("the list is\n%s", out.String())
	}
	out.Reset()
	l.printParked(true)
	if strings.Count(out.String(), "to release it: ") != 12 || strings.Contains(out.String(), "more") {
		t.Errorf("with --limit 0, the list is\n%s", out.String())
	}
}
