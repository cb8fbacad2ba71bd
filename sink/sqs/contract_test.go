package sqs

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/sinktest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/awstest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/awstest/queuetest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
)

// TestContract runs the suite of package sinktest over FIFO queues and topics of an in-process server.
func TestContract(t *testing.T) {
	t.Parallel()
	for _, of := range []service{queues, topics} {
		t.Run(of.String(), func(t *testing.T) {
			t.Parallel()
			if of == topics {
				need.FullRun(t, "it takes as long as that of queues")
			}
			server := awstest.Fake(t)
			s := &subject{front: awstest.NewFront(t, server.URL), suffix: ".fifo", max: LargestMaxBytes} // the server rejects records
			s.read = func(_ *testing.T, destination string) []awstest.Message { return server.Messages(destination) }
			s.create = func(_ *testing.T, name string) string {
				if of == topics {
					return server.Topic(name, subjectLimit)
				}
				return server.Queue(name, subjectLimit)
			}
			sinktest.Run(t, s)
		})
	}
}

// TestContractElasticMQ runs the suite over FIFO and standard queues of a real server.
func TestContractElasticMQ(t *testing.T) {
	t.Parallel()
	url := awstest.ElasticMQ(t)
	all := queuetest.New(url)
	for name, suffix := range map[string]string{"fifo": ".fifo", "standard": ""} {
		t.Run(name, func(t *testing.T) {
			sinktest.Run(t, &subject{
				front: awstest.NewFront(t, url), suffix: suffix, max: subjectLimit, // it has no limit of a queue
				create: func(t *testing.T, name string) string {
					t.Helper()
					return all.Create(t, name, LargestMaxBytes)
				},
				read: func(t *testing.T, destination string) []awstest.Message {
					t.Helper()
					return all.Messages(t, destination)
				},
			})
		})
	}
}

const subjectLimit = 20_000

// A subject is a server for package sinktest.
type subject struct {
	front  *awstest.Front
	create func(t *testing.T, name string) (destination string)
	read   func(t *testing.T, destination string) []awstest.Message
	suffix string // of the names of destinations
	max    int    // Config.MaxBytes
	names  atomic.Int64
}

// testConfig returns a Config for a server.
func testConfig(url string) Config {
	return Config{
		Region: awstest.Region, SQSEndpoint: url, SNSEndpoint: url,
		Credentials: credentials.NewStaticCredentialsProvider("id", "key", ""),
	}
}

func (s *subject) Broker(window int) sink.Broker {
	cfg := testConfig(s.front.URL)
	cfg.WindowRecords, cfg.MaxBytes = window, s.max
	return cfg
}

func (s *subject) Destination(t *testing.T) string {
	t.Helper()
	return s.create(t, fmt.Sprintf("contract-%d-%d%s", time.Now().UnixMilli(), s.names.Add(1), s.suffix))
}

func (s *subject) Read(t *testing.T, destination string) []sink.StoredRecord {
	t.Helper()
	return storedRecords(t, destination, s.read(t, destination))
}

func (s *subject) Reject(rec *sink.Record) {
	rec.Value = append(rec.Value, strings.Repeat(".", 2*subjectLimit)...)
}

func (s *subject) Hold() sinktest.Fault {
	return s.strike("answers are withheld", awstest.Strike{Hold: true})
}

func (s *subject) Faults() []sinktest.Fault {
	return []sinktest.Fault{
		s.strike("connections break in a request", awstest.Strike{Cut: true}),
		s.strike("connections break before the answer", awstest.Strike{Lose: true}),
		s.strike("the service is not available", awstest.Strike{Status: http.StatusServiceUnavailable}),
	}
}

func (s *subject) strike(name string, strike awstest.Strike) sinktest.Fault {
	return sinktest.Fault{Name: name, Breaks: strike.Cut || strike.Lose, Begin: func(*testing.T) (<-chan struct{}, func()) { return s.front.Begin(strike) }}
}

// storedRecords returns the records that messages were made of. Headers that are attributes come in the order of
// their names, before the others.
func storedRecords(t *testing.T, destination string, messages []awstest.Message) []sink.StoredRecord {
	t.Helper()
	var all []sink.StoredRecord
	for i, m := range messages {
		rec := sink.StoredRecord{Offset: int64(i), Record: sink.Record{Topic: destination, Value: []byte(m.Body)}}
		for _, name := range slices.Sorted(maps.Keys(m.Attributes)) {
			a := m.Attributes[name]
			value := a.BinaryValue
			if a.DataType == "String" {
				value = []byte(a.StringValue)
			}
			switch name {
			case keyAttribute:
				rec.Key = value
			case bodyAttribute:
				rec.Value = decodeBody(t, m.Body, a.StringValue)
			case sink.TimestampHeader:
				at, err := time.Parse(time.RFC3339Nano, a.StringValue)
				if err != nil {
					t.Fatal(err)
				}
				rec.Timestamp = at
			case headersAttribute:
			default:
				rec.Headers = append(rec.Headers, sink.Header{Key: name, Value: value})
			}
		}
		addOthers(t, &rec, m.Attributes[headersAttribute].StringValue)
		all = append(all, rec)
	}
	return all
}

func decodeBody(t *testing.T, body, encoding string) []byte {
	t.Helper()
	switch encoding {
	case "null":
		return nil
	case "empty":
		return []byte{}
	}
	value, err := base64.StdEncoding.DecodeString(body)
	if err != nil || encoding != "base64" {
		t.Fatalf("body of encoding %q: %v", encoding, err)
	}
	return value
}

// addOthers adds the headers of headersAttribute.
func addOthers(t *testing.T, rec *sink.StoredRecord, text string) {
	t.Helper()
	if text == "" {
		return
	}
	var others []header
	if err := json.Unmarshal([]byte(text), &others); err != nil {
		t.Fatal(err)
	}
	for _, h := range others {
		var value []byte
		switch {
		case h.Value != nil:
			value = []byte(*h.Value)
		case h.Base64 != nil:
			value = decodeBody(t, *h.Base64, "base64")
		}
		if h.Name == keyAttribute {
			rec.Key = value
		} else {
			rec.Headers = append(rec.Headers, sink.Header{Key: h.Name, Value: value})
		}
	}
}

func (s *subject) Limits() sinktest.Limits {
	return sinktest.Limits{Unordered: s.suffix == "", Slow: !need.Full()}
}
