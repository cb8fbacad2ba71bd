package kafka

import (
	"errors"
	"strings"
	"testing"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/sinktest"
)

// otherCodes are the error codes that belong only to requests that this package never sends, by kind of request.
var otherCodes = map[string][]int16{
	"of consumer groups":                 {12, 22, 23, 24, 25, 26, 27, 28, 30, 68, 69, 79, 81, 82, 86, 88, 110, 111, 112, 113, 128, 134},
	"of share groups and streams groups": {121, 122, 123, 124, 130, 131, 132, 133, 135},
	"of transactions":                    {52, 105},
	"of brokers among themselves":        {11, 77, 94, 95, 97, 98, 99, 101, 102, 104, 107, 108, 109, 116, 119, 125, 126, 127, 136},
	"of administration":                  {36, 39, 55, 57, 60, 80, 84, 85, 91, 92, 93, 96, 114, 115},
	"of delegation tokens":               {61, 62, 63, 64, 65, 66, 67},
	"of fetch sessions, which ours is not, or of fetches before version 11": {4, 70, 71, 106},
	"of telemetry": {117, 118},
	"of metadata of a version we do not ask for": {129},
}

// knownCodes returns the error codes of the Kafka protocol.
func knownCodes() []*kerr.Error {
	var known []*kerr.Error
	for code := int16(-1); code < 1000; code++ {
		if e := kerr.TypedErrorForCode(code); e != nil && e.Code == code {
			known = append(known, e)
		}
	}
	return known
}

// TestEveryCodeHasAClass: every error code of the protocol has a class, and no transient error stops the process.
func TestEveryCodeHasAClass(t *testing.T) {
	other := make(map[int16]string)
	for reason, codes := range otherCodes {
		for _, code := range codes {
			other[code] = reason
		}
	}
	known := knownCodes()
	if len(known) < 137 {
		t.Fatalf("the protocol has %d codes", len(known))
	}
	for _, e := range known {
		c := lookup(sarama.KError(e.Code))
		reason, isOther := other[e.Code]
		if isOther == (c.class != unexpected) {
			t.Errorf("code %d, %s: in classTable: %v; a code %q: it belongs in one place", e.Code, e.Message, c.class != unexpected, reason)
		}
		renamed := e.Code == int16(sarama.ErrNotLeaderForPartition)
		if !isOther && c.name != e.Message && !renamed {
			t.Errorf("code %d is %s, not %s", e.Code, e.Message, c.name)
		}
		if e.Retriable && !isOther && (c.class == fatal || c.class == invalidRecord) {
			t.Errorf("%s is transient, but has class %d", e.Message, c.class)
		}
	}
	if c := classify(32000); c != unexpected {
		t.Errorf("an unknown code has class %d", c)
	}
}

// finalCodes returns the error codes that fail a request other than Produce, with the error that the client
// returns. The client retries every other code, known or not.
func finalCodes() map[int16]error {
	final := make(map[int16]error)
	for class, codes := range map[error][]*kerr.Error{
		sink.ErrAccess: {
			kerr.TopicAuthorizationFailed, kerr.TransactionalIDAuthorizationFailed, kerr.ClusterAuthorizationFailed, kerr.SaslAuthenticationFailed,
			kerr.UnsupportedSaslMechanism, kerr.IllegalSaslState, kerr.SecurityDisabled,
		},
		sink.ErrFatal: {
			kerr.InvalidTopicException, kerr.UnsupportedVersion, kerr.UnsupportedForMessageFormat, kerr.UnsupportedCompressionType,
			kerr.PolicyViolation, kerr.InvalidRequiredAcks, kerr.InvalidRequest, kerr.InvalidTxnState, kerr.TransactionAbortable, kerr.InvalidTransactionTimeout, kerr.InvalidPartitions,
			kerr.InvalidConfig, kerr.TopicDeletionDisabled,
		},
	} {
		for _, e := range codes {
			final[e.Code] = class
		}
	}
	return final
}

// A readRequest is a kind of request other than Produce, and a function that makes a client send it.
type readRequest struct {
	key   kmsg.Key
	topic string // the topic of the request
	send  func(l *lab, cfg Config, j *sinktest.Journal) error
	// means returns the error that the request ends with. It returns nil if the client retries, or ignores the
	// error code.
	means func(code int16) error
}

func readRequests() []readRequest {
	final := finalCodes()
	ends := func(code int16) error { return final[code] }
	never := func(int16) error { return nil }
	reach := func(l *lab, cfg Config, j *sinktest.Journal) error {
		c, err := open(l.Context(), cfg, j.Logger(), l.net.DialContext)
		if err != nil {
			return err
		}
		return c.Close()
	}
	follow := func(topic string) func(*lab, Config, *sinktest.Journal) error {
		return func(l *lab, cfg Config, j *sinktest.Journal) error {
			s, err := l.client(cfg, j.Logger()).openPositions(l.Context(), topic, "relay")
			if err != nil {
				return err
			}
			if err := s.Post(l.Context(), firstKey, []byte("1")); err != nil {
				return err
			}
			_, err = s.Read(l.Context())
			return err
		}
	}
	return []readRequest{
		{kmsg.ApiVersions, "", reach, never}, // if it fails, the client uses the oldest protocol versions
		{kmsg.SASLHandshake, "", reach, ends},
		{kmsg.SASLAuthenticate, "", reach, ends},
		{kmsg.InitProducerID, "", reach, ends},
		{kmsg.Metadata, "t", follow("t"), ends},
		{kmsg.ListOffsets, "t", follow("t"), ends},
		{kmsg.Fetch, "t", follow("t"), ends},
		{kmsg.CreateTopics, "new", follow("new"), ends},
		{kmsg.DescribeConfigs, "t", follow("t"), never}, // if it fails, the client assumes the defaults
	}
}

// TestEveryCodeOfARead: a broker answers each kind of request other than Produce once with each error code of the
// protocol, and with an unknown one.
func TestEveryCodeOfARead(t *testing.T) {
	future := &kerr.Error{Code: 32000, Message: "UNHEARD_OF"}
	for _, req := range readRequests() {
		t.Run(req.key.Name(), func(t *testing.T) {
			for _, e := range append(knownCodes(), future) {
				inLab(t, 1, func(l *lab) { testReadCode(l, req, e) }, kfake.EnableSASL(), kfake.Superuser("PLAIN", "alice", "secret"), kfake.SeedTopics(1, "t"))
			}
		})
	}
}

func testReadCode(l *lab, req readRequest, e *kerr.Error) {
	fault := kfake.Fault{Keys: []kmsg.Key{req.key}, Topic: req.topic, Err: e, TopLevel: req.topic == ""}
	if req.key == kmsg.DescribeConfigs {
		fault.Topic, fault.Resource = "", req.topic
	}
	hits := l.fake.Fault(fault)
	j := sinktest.NewJournal()
	err := req.send(l, Config{Brokers: l.addrs, SASL: login("PLAIN", "alice", "secret")}, j)
	if want := req.means(e.Code); !errors.Is(err, want) || want != nil && !strings.Contains(err.Error(), lookup(sarama.KError(e.Code)).name) {
		l.Errorf("%s, %s: %v, want %v\n%s", req.key.Name(), e.Message, err, want, j)
	}
	if hits.Hits() != 1 {
		l.Errorf("%s, %s: %d answers with it", req.key.Name(), e.Message, hits.Hits())
	}
}

// TestUnknownCodeIsLoggedOnce: the client retries a request that repeatedly fails with an unknown error code, and
// logs one line about it.
func TestUnknownCodeIsLoggedOnce(t *testing.T) {
	inLab(t, 1, func(l *lab) {
		future := &kerr.Error{Code: 32000, Message: "UNHEARD_OF"}
		l.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, TopLevel: true, Err: future, Count: 30})
		j := sinktest.NewJournal()
		l.client(Config{}, j.Logger())
		if s := j.String(); strings.Count(s, "error code 32000") != 1 || !strings.Contains(s, "WARN") {
			l.Errorf("log: %s", s)
		}
	})
}
