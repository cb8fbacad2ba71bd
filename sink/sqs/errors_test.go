package sqs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/lane"
	"github.com/outbox-cdc/outbox-cdc/sink/sinktest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/awstest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// rig is a client of an in-process server, and a destination of each service.
type rig struct {
	server *awstest.Server
	client *client
	to     []string
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{server: awstest.Fake(t)}
	r.client = open(t, testConfig(r.server.URL))
	r.to = []string{r.server.Queue("q.fifo", subjectLimit), r.server.Topic("t.fifo", subjectLimit)}
	return r
}

func open(t *testing.T, cfg Config) *client {
	t.Helper()
	opened, err := cfg.Open(sinktest.Context(t), sinktest.NewJournal().Logger())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = opened.Close() })
	return opened.(*client)
}

// batchOf returns a batch of n messages of different keys.
func batchOf(n int) []*pending {
	batch := make([]*pending, n)
	for i := range batch {
		r := &sink.Record{Seq: uint64(i + 1), Key: fmt.Append(nil, "key ", i), Value: fmt.Append(nil, "value ", i)}
		batch[i] = &pending{
			request: &lane.Request{Records: []*sink.Record{r}, Fence: func() error { return nil }},
			message: newMessage(r, true, "token"),
		}
	}
	return batch
}

func (r *rig) send(t *testing.T, to string, n int) []error {
	t.Helper()
	d, err := ParseDestination(to)
	if err != nil {
		t.Fatal(err)
	}
	return r.client.send(sinktest.Context(t), d, batchOf(n))
}

// wantClass fails the test unless err is what the Writer needs for a code of the class.
func wantClass(t *testing.T, what string, c class, err error) {
	t.Helper()
	rejected, isRejected := errors.AsType[*sink.RecordError](err)
	isMissing, isAccess, isConnection := errors.Is(err, sink.ErrMissing), errors.Is(err, sink.ErrAccess), errors.Is(err, lane.ErrConnection)
	ok := err != nil && isRejected == (c == invalid) && isMissing == (c == missing) &&
		isAccess == (c == denied || c == unauthenticated) && isConnection == (c == unauthenticated)
	if !ok || isRejected && (rejected.Reason == nil || rejected.Code == "") {
		t.Errorf("%s: %v", what, err)
	}
}

// TestCodes sends a message for each row of classTable, and gets its code as that of the response and as that of an entry.
func TestCodes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for c, codes := range classTable() {
		for _, code := range codes {
			for _, to := range r.to {
				what := fmt.Sprintf("%s, class %d, of %s", code, c, to)
				r.server.SetFault(func(awstest.Request) *awstest.Answer {
					return &awstest.Answer{Status: http.StatusBadRequest, Code: code}
				})
				wantClass(t, what, class(c), r.send(t, to, 1)[0])
				r.server.SetFault(func(awstest.Request) *awstest.Answer {
					return &awstest.Answer{Status: http.StatusOK, Code: code, Fail: func(entry int) bool { return entry == 1 }}
				})
				outcomes := r.send(t, to, 3)
				wantClass(t, "entry: "+what, class(c), outcomes[1])
				if outcomes[0] != nil || outcomes[2] != nil {
					t.Errorf("%s: the other entries have %v and %v", what, outcomes[0], outcomes[2])
				}
			}
		}
	}
}

// TestUnknownCode: an unknown code rejects no record, whatever the status is.
func TestUnknownCode(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for status, want := range map[int]class{400: retriable, 403: retriable, 429: throttled, 500: retriable, 503: retriable} {
		for _, to := range r.to {
			r.server.SetFault(func(awstest.Request) *awstest.Answer { return &awstest.Answer{Status: status, Code: "SomethingNew"} })
			err := r.send(t, to, 1)[0]
			wantClass(t, fmt.Sprint(status, to), retriable, err)
			if e, ok := errors.AsType[*codeError](err); !ok || e.class() != want {
				t.Errorf("status %d: class %v", status, err)
			}
		}
	}
}

// TestFormsOfCodes: the same code has a namespace in one protocol and a prefix in the other.
func TestFormsOfCodes(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"QueueDoesNotExist", "com.amazonaws.sqs#QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue"} {
		if c := classify(code); c != missing {
			t.Errorf("%s is of class %d", code, c)
		}
	}
	seen := make(map[string]bool)
	for _, codes := range classTable() {
		for _, code := range codes {
			if seen[code] {
				t.Errorf("%s has two rows", code)
			}
			seen[code] = true
		}
	}
}

// TestEntryWithoutOutcome: an entry that the response does not name is sent again.
func TestEntryWithoutOutcome(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.server.SetFault(func(awstest.Request) *awstest.Answer {
		return &awstest.Answer{Status: http.StatusOK, Omit: func(entry int) bool { return entry == 0 }}
	})
	for _, to := range r.to {
		if outcomes := r.send(t, to, 2); !errors.Is(outcomes[0], errNotNamed) || outcomes[1] != nil {
			t.Errorf("%s: %v", to, outcomes)
		}
	}
}

// TestOneCopyAcrossLostResponses: a FIFO queue drops messages that are sent again because the response was lost.
func TestOneCopyAcrossLostResponses(t *testing.T) {
	t.Parallel()
	server := awstest.Fake(t)
	front, queue := awstest.NewFront(t, server.URL), server.Queue("q.fifo", subjectLimit)
	r := sinktest.StartSession(t, open(t, testConfig(front.URL)), sinktest.NewJournal(), sink.WriterConfig{})
	sent := 0
	for range 5 {
		met, heal := front.Begin(awstest.Strike{Lose: true})
		for range 50 {
			sent++
			rec := &sink.Record{
				Seq: uint64(sent), Topic: queue, Partition: sink.AnyPartition, Key: fmt.Append(nil, "key ", sent%7), Value: fmt.Append(nil, "value ", sent),
				Headers: []sink.Header{{Key: idHeader, Value: fmt.Append(nil, "event-", sent)}},
			}
			if err := r.Writer.Send(sinktest.Context(t), rec); err != nil {
				t.Fatal(err)
			}
		}
		r.Writer.Flush()
		wait.Receive(t, "a lost response", met)
		heal()
	}
	r.Drain(sent)
	times := make(map[string]int)
	for _, m := range server.Messages(queue) {
		times[m.Body]++
	}
	for body, n := range times {
		if n != 1 {
			t.Errorf("%s is stored %d times", body, n)
		}
	}
	if len(times) != sent || r.Sink.Stat().Retries == 0 {
		t.Errorf("%d of %d messages are stored, after %d retries", len(times), sent, r.Sink.Stat().Retries)
	}
}

// TestRejectedBatch: if a message makes the service reject the whole batch, only that one is rejected.
func TestRejectedBatch(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, to := range r.to {
		requests := 0
		r.server.SetFault(func(req awstest.Request) *awstest.Answer {
			requests++
			if req.Entries > 1 || requests == 4 { // the third message on its own
				return &awstest.Answer{Status: http.StatusBadRequest, Code: "InvalidParameterValue"}
			}
			return nil
		})
		for i, err := range r.send(t, to, 5) {
			if _, rejected := errors.AsType[*sink.RecordError](err); rejected != (i == 2) || !rejected && err != nil {
				t.Errorf("%s: message %d: %v", to, i, err)
			}
		}
		if n := len(r.server.Messages(to)); n != 4 {
			t.Errorf("%s has %d messages", to, n)
		}
	}
}

// TestClosedFence: a batch is not written if the fence has closed since Publish.
func TestClosedFence(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	closed := errors.New("closed")
	for _, to := range r.to {
		d, _ := ParseDestination(to)
		for open := range 2 { // calls of the fence that return nil: the second one follows the connection
			r.client.http.CloseIdleConnections()
			batch := batchOf(2)
			calls := 0
			for _, p := range batch {
				p.request.Fence = func() error {
					if calls++; calls > open {
						return closed
					}
					return nil
				}
			}
			for _, err := range r.client.send(sinktest.Context(t), d, batch) {
				if !errors.Is(err, closed) {
					t.Errorf("%s: %v", to, err)
				}
			}
		}
		if n := len(r.server.Messages(to)); n > 0 {
			t.Errorf("%s has %d messages", to, n)
		}
	}
}

type credentialsFunc func() (aws.Credentials, error)

func (f credentialsFunc) Retrieve(context.Context) (aws.Credentials, error) { return f() }

// TestFirstContact: rejected credentials and missing ones end Open at once; an error of the service is retried.
func TestFirstContact(t *testing.T) {
	t.Parallel()
	server := awstest.Fake(t)
	for _, destination := range []string{"", awstest.TopicARN("${route}")} {
		cfg := testConfig(server.URL)
		cfg.Destination = destination
		for _, code := range classTable()[unauthenticated] {
			server.SetFault(func(awstest.Request) *awstest.Answer {
				return &awstest.Answer{Status: http.StatusForbidden, Code: code}
			})
			if _, err := cfg.Open(sinktest.Context(t), sinktest.NewJournal().Logger()); !errors.Is(err, sink.ErrAccess) || !strings.Contains(err.Error(), code) {
				t.Errorf("%q, %s: %v", destination, code, err)
			}
		}
		for _, code := range []string{"AccessDenied", "AccessDeniedException", "AuthorizationError", "InvalidParameter", "NotFound"} {
			server.SetFault(func(awstest.Request) *awstest.Answer {
				return &awstest.Answer{Status: http.StatusForbidden, Code: code}
			})
			open(t, cfg) // a role that may only send
		}
		tries := 0
		server.SetFault(func(awstest.Request) *awstest.Answer {
			if tries++; tries > 2 {
				return nil
			}
			return &awstest.Answer{Status: http.StatusServiceUnavailable, Code: "ServiceUnavailable"}
		})
		open(t, cfg)
		server.SetFault(nil)
	}
	none := testConfig(server.URL)
	none.Credentials = credentialsFunc(func() (aws.Credentials, error) { return aws.Credentials{}, errors.New("no role") })
	if _, err := none.Open(sinktest.Context(t), sinktest.NewJournal().Logger()); !errors.Is(err, sink.ErrAccess) || !errors.Is(err, errNoCredentials) {
		t.Errorf("no credentials: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err := testConfig("http://127.0.0.1:1").Open(ctx, sinktest.NewJournal().Logger())
	advised, ok := errors.AsType[sink.Advised](err)
	if !errors.Is(err, sink.ErrUnreachable) || !ok || advised.Advice() == "" {
		t.Errorf("no server: %v", err)
	}
}

// TestCredentialsExpire: after the first contact, credentials are retried.
func TestCredentialsExpire(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	gone := false
	options := r.client.queues.Options()
	options.Credentials = provider{credentialsFunc(func() (aws.Credentials, error) {
		if gone {
			return aws.Credentials{}, errors.New("expired")
		}
		return aws.Credentials{AccessKeyID: "id", SecretAccessKey: "key"}, nil
	})}
	r.client.queues = sqs.New(options)
	if err := r.send(t, r.to[0], 1)[0]; err != nil {
		t.Fatal(err)
	}
	gone = true
	wantClass(t, "no credentials", unauthenticated, r.send(t, r.to[0], 1)[0])
	gone = false
	if err := r.send(t, r.to[0], 1)[0]; err != nil {
		t.Error(err)
	}
}

// TestCheckDestinations: a missing privilege is an error of another class than a missing queue.
func TestCheckDestinations(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	if err := r.client.CheckDestinations(t.Context(), append(r.to, "q.fifo", "arn:aws:sqs:eu-west-1:000000000000:q.fifo")...); err != nil {
		t.Error(err)
	}
	absent := []string{awstest.TopicARN("absent"), r.server.URL + "/" + awstest.Account + "/absent"}
	err := r.client.CheckDestinations(t.Context(), append(absent, r.to...)...)
	if !errors.Is(err, sink.ErrMissing) || !strings.Contains(err.Error(), absent[0]) || !strings.Contains(err.Error(), absent[1]) {
		t.Errorf("absent: %v", err)
	}
	r.server.SetFault(func(awstest.Request) *awstest.Answer {
		return &awstest.Answer{Status: http.StatusForbidden, Code: "AccessDenied"}
	})
	for _, to := range r.to {
		if err := r.client.CheckDestinations(t.Context(), to); !errors.Is(err, sink.ErrAccess) {
			t.Errorf("denied: %v", err)
		}
	}
}

// TestRegions: a request is made in the region of its destination.
func TestRegions(t *testing.T) {
	t.Parallel()
	dialed := ""
	cfg := Config{Region: "eu-central-1", Credentials: credentialsFunc(func() (aws.Credentials, error) {
		return aws.Credentials{AccessKeyID: "id", SecretAccessKey: "key"}, nil
	}), Dial: func(_ context.Context, _, addr string) (net.Conn, error) {
		dialed = addr
		return nil, errors.New("no network")
	}}
	client, err := cfg.newClient(t.Context(), sinktest.NewJournal().Logger())
	if err != nil {
		t.Fatal(err)
	}
	for destination, want := range map[string]string{
		"orders": "sqs.eu-central-1.amazonaws.com:443",
		"https://sqs.us-east-2.amazonaws.com/123456789012/orders": "sqs.us-east-2.amazonaws.com:443",
		"arn:aws:sqs:eu-west-1:123456789012:orders":               "sqs.eu-west-1.amazonaws.com:443",
		"arn:aws:sns:ap-south-1:123456789012:orders":              "sns.ap-south-1.amazonaws.com:443",
	} {
		if _, err := client.attributesOf(t.Context(), destination); err == nil || dialed != want {
			t.Errorf("%s: connects to %s, want %s; %v", destination, dialed, want, err)
		}
	}
}
