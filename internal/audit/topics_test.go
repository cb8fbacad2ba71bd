package audit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/relay"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// A topicReader is a broker whose user may not list, or may not read, the topic dead.
type topicReader struct {
	mayList bool
	read    []string // topics
}

var errDenied = fmt.Errorf("%w: topic dead", sink.ErrAccess)

func (r *topicReader) OffsetRanges(_ context.Context, topics ...string) (map[string][]sink.OffsetRange, error) {
	ranges := make(map[string][]sink.OffsetRange)
	for _, topic := range topics {
		if topic == "dead" && !r.mayList {
			return nil, errDenied
		}
		ranges[topic] = []sink.OffsetRange{{End: 1}}
	}
	return ranges, nil
}

func (r *topicReader) Read(_ context.Context, topic string, _ sink.OffsetRange, _ func(*sink.StoredRecord) error) error {
	if topic == "dead" {
		return errDenied
	}
	r.read = append(r.read, topic)
	return nil
}

func (r *topicReader) Close() error { return nil }

// A relay that sends no dead letters needs no right to its dead-letter topic, and neither does the audit.
func TestDeadLettersThatMayNotBeRead(t *testing.T) {
	for _, mayList := range []bool{false, true} {
		for _, optional := range []bool{false, true} {
			broker := &topicReader{mayList: mayList}
			a := &auditor{
				cfg: Config{
					Relay:               relay.Config{DeadLetterTopic: "dead", StartupTimeout: time.Minute},
					DeadLettersOptional: optional, Wait: time.Minute, Progress: func(string, int, int) {},
				},
				reader: broker, ledger: newLedger(rules{}, 0),
			}
			a.ledger.topic("t")
			err := a.readTopics(t.Context())
			if errors.Is(err, sink.ErrAccess) == optional {
				t.Errorf("may list %t, optional %t: %v", mayList, optional, err)
			}
			noted := slices.ContainsFunc(a.notes, func(note string) bool { return strings.Contains(note, "earlier dead letters are not read") })
			if optional && (!slices.Equal(broker.read, []string{"t"}) || !noted) {
				t.Errorf("may list %t: read %q, notes %q", mayList, broker.read, a.notes)
			}
		}
	}
}
