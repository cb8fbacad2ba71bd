package awstest

import (
	"bytes"
	"crypto/md5" //nolint:gosec // the protocol's checksum
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Account is the account of all queues and topics.
const Account = "000000000000"

// Region is the region of all queues and topics.
const Region = "elasticmq"

// A Message is a message that a destination has stored.
type Message struct {
	Body        string               `json:"MessageBody"`
	Attributes  map[string]Attribute `json:"MessageAttributes"`
	Group       string               `json:"MessageGroupId"`
	Duplication string               `json:"MessageDeduplicationId"`
}

// An Attribute is a message attribute.
type Attribute struct {
	DataType    string
	StringValue string
	BinaryValue []byte
}

// A Server is a fake of SQS and SNS, with the operations that a writer needs. It stores the messages of all queues and
// topics in the order of arrival. A destination whose name ends in .fifo drops duplicates.
type Server struct {
	URL string

	mu           sync.Mutex
	destinations map[string]*stored // by name; those of topics begin with topicPrefix
	answer       func(Request) *Answer
}

const topicPrefix = "topic:"

type stored struct {
	messages []Message
	deliver  func(Message)   // instead of messages; nil: none
	seen     map[string]bool // deduplication ids
	maxBytes int
}

// A Request is a request as a fault sees it.
type Request struct {
	Action  string // such as SendMessageBatch
	Entries int    // number of messages of a batch
}

// An Answer is what a fault does to a request.
type Answer struct {
	// Store says that the messages are stored although the response is another one.
	Store bool

	// Status and Code are the response. If Status is 200, Code is the error of the entries for which Fail returns true.
	Status int
	Code   string
	Fail   func(entry int) bool

	// Omit leaves the entries for which it returns true out of the response. They are stored.
	Omit func(entry int) bool
}

// Fake starts a Server and stops it when the test ends.
func Fake(tb testing.TB) *Server {
	tb.Helper()
	s := &Server{destinations: make(map[string]*stored)}
	server := httptest.NewServer(s)
	tb.Cleanup(server.Close)
	s.URL = server.URL
	return s
}

// Queue creates a queue with a limit for the size of a message, and returns its URL.
func (s *Server) Queue(name string, maxBytes int) string {
	s.create(name, maxBytes)
	return s.URL + "/" + Account + "/" + name
}

// Topic creates a topic with a limit for the size of a message, and returns its ARN.
func (s *Server) Topic(name string, maxBytes int) string {
	s.create(topicPrefix+name, maxBytes)
	return TopicARN(name)
}

// TopicARN returns the ARN of a topic.
func TopicARN(name string) string {
	return fmt.Sprintf("arn:aws:sns:%s:%s:%s", Region, Account, name)
}

func (s *Server) create(name string, maxBytes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.destinations[name] = &stored{seen: make(map[string]bool), maxBytes: maxBytes}
}

// Messages returns the messages of a queue or topic, given by its URL or ARN.
func (s *Server) Messages(destination string) []Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.destinations[nameOf(destination)]
	if d == nil {
		return nil
	}
	return slices.Clone(d.messages)
}

// Deliver calls f with each message that a queue or topic, given by its URL or ARN, stores from now on, in their order. The
// server does not keep these messages.
func (s *Server) Deliver(destination string, f func(Message)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.destinations[nameOf(destination)].deliver = f
}

// SetFault makes f decide about each request that follows. It may block. A nil Answer is that of the service. Nil ends the
// fault.
func (s *Server) SetFault(f func(Request) *Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = f
}

// nameOf returns the name of a destination in Server.destinations.
func nameOf(destination string) string {
	if strings.HasPrefix(destination, "arn:aws:sns:") {
		return topicPrefix + destination[strings.LastIndexByte(destination, ':')+1:]
	}
	return destination[strings.LastIndexByte(destination, '/')+1:]
}

// A call is a request, and how its protocol writes the response.
type call struct {
	action      string
	destination string
	entries     []entry
	query       bool // SNS: form in, XML out; otherwise JSON
}

type entry struct {
	ID string `json:"Id"`
	Message
}

// A failure is an entry of a response that was not stored.
type failure struct {
	ID          string `json:"Id"`
	Code        string
	Message     string
	SenderFault bool
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	c, err := parse(r, body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	decide := s.answer
	s.mu.Unlock()
	var answer *Answer
	if decide != nil {
		answer = decide(Request{Action: c.action, Entries: len(c.entries)})
	}
	if answer != nil && answer.Status != http.StatusOK {
		if answer.Store {
			s.store(c, &Answer{})
		}
		c.fail(w, answer.Status, answer.Code)
		return
	}
	s.serve(w, c, answer)
}

// serve responds as the service does, except for the entries that answer names.
func (s *Server) serve(w http.ResponseWriter, c *call, answer *Answer) {
	s.mu.Lock()
	d := s.destinations[c.destination]
	s.mu.Unlock()
	switch {
	case d == nil && c.query:
		c.fail(w, http.StatusNotFound, "NotFound")
	case d == nil:
		c.fail(w, http.StatusBadRequest, "com.amazonaws.sqs#QueueDoesNotExist")
	case c.action == "GetQueueUrl":
		c.respond(w, map[string]string{"QueueUrl": s.URL + "/" + Account + "/" + c.destination})
	case c.action == "GetQueueAttributes":
		c.respond(w, map[string]any{"Attributes": map[string]string{"MaximumMessageSize": strconv.Itoa(d.maxBytes)}})
	case c.action == "GetTopicAttributes":
		fmt.Fprintf(w, `<GetTopicAttributesResponse><GetTopicAttributesResult><Attributes>`+
			`<entry><key>MaximumMessageSize</key><value>%d</value></entry></Attributes></GetTopicAttributesResult></GetTopicAttributesResponse>`, d.maxBytes)
	default:
		if answer == nil {
			answer = &Answer{}
		}
		c.outcomes(w, s.store(c, answer), answer)
	}
}

// store stores the entries of a batch and returns those that fail.
func (s *Server) store(c *call, answer *Answer) []failure {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.destinations[c.destination]
	if d == nil {
		return nil
	}
	var failed []failure
	for i, e := range c.entries {
		switch {
		case answer.Fail != nil && answer.Fail(i):
			failed = append(failed, failure{ID: e.ID, Code: answer.Code})
		case e.size() > d.maxBytes:
			failed = append(failed, failure{
				ID: e.ID, Code: "InvalidParameterValue", SenderFault: true,
				Message: fmt.Sprintf("One or more parameters are invalid. Reason: Message must be shorter than %d bytes.", d.maxBytes),
			})
		case e.Duplication != "" && d.seen[e.Duplication]:
		default:
			d.seen[e.Duplication] = true
			if d.deliver != nil {
				d.deliver(e.Message)
			} else {
				d.messages = append(d.messages, e.Message)
			}
		}
	}
	return failed
}

func (e *entry) size() int {
	n := len(e.Body)
	for name, a := range e.Attributes {
		n += len(name) + len(a.DataType) + len(a.StringValue) + len(a.BinaryValue)
	}
	return n
}

// parse reads a request of the JSON protocol of SQS or the query protocol of SNS.
func parse(r *http.Request, body []byte) (*call, error) {
	target := r.Header.Get("X-Amz-Target")
	if target == "" {
		return parseQuery(body)
	}
	_, action, _ := strings.Cut(target, ".")
	var in struct {
		QueueUrl, QueueName string //nolint:revive // the names of the protocol
		Entries             []entry
	}
	if err := json.NewDecoder(bytes.NewReader(body)).Decode(&in); err != nil {
		return nil, err
	}
	name := in.QueueName
	if in.QueueUrl != "" {
		name = nameOf(in.QueueUrl)
	}
	return &call{action: action, destination: name, entries: in.Entries}, nil
}

func parseQuery(body []byte) (*call, error) {
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, err
	}
	c := &call{action: form.Get("Action"), destination: nameOf(form.Get("TopicArn")), query: true}
	for i := 1; ; i++ {
		at := fmt.Sprintf("PublishBatchRequestEntries.member.%d.", i)
		if !form.Has(at + "Id") {
			return c, nil
		}
		e := entry{ID: form.Get(at + "Id"), Message: Message{
			Body: form.Get(at + "Message"), Group: form.Get(at + "MessageGroupId"), Duplication: form.Get(at + "MessageDeduplicationId"),
			Attributes: make(map[string]Attribute),
		}}
		for j := 1; form.Has(fmt.Sprintf("%sMessageAttributes.entry.%d.Name", at, j)); j++ {
			entryAt := fmt.Sprintf("%sMessageAttributes.entry.%d.", at, j)
			a := Attribute{DataType: form.Get(entryAt + "Value.DataType"), StringValue: form.Get(entryAt + "Value.StringValue")}
			if err := json.Unmarshal([]byte(`"`+form.Get(entryAt+"Value.BinaryValue")+`"`), &a.BinaryValue); err != nil {
				return nil, err
			}
			e.Attributes[form.Get(entryAt+"Name")] = a
		}
		c.entries = append(c.entries, e)
	}
}

// fail writes an error response.
func (c *call) fail(w http.ResponseWriter, status int, code string) {
	if c.query {
		w.WriteHeader(status)
		fmt.Fprintf(w, `<ErrorResponse><Error><Type>Sender</Type><Code>%s</Code><Message>text</Message></Error><RequestId>1</RequestId></ErrorResponse>`, code)
		return
	}
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"__type":%q,"message":"text"}`, code)
}

func (c *call) respond(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	_ = json.NewEncoder(w).Encode(v)
}

// outcomes writes the response to a batch.
func (c *call) outcomes(w http.ResponseWriter, failed []failure, answer *Answer) {
	type success struct {
		ID  string `json:"Id"`
		MID string `json:"MessageId"`
		MD5 string `json:"MD5OfMessageBody"`
	}
	var successful []success
	for i, e := range c.entries {
		named := answer.Omit == nil || !answer.Omit(i)
		if named && !slices.ContainsFunc(failed, func(f failure) bool { return f.ID == e.ID }) {
			successful = append(successful, success{e.ID, "m", md5Of(e.Body)})
		}
	}
	if !c.query {
		c.respond(w, map[string]any{"Successful": successful, "Failed": failed})
		return
	}
	fmt.Fprint(w, `<PublishBatchResponse><PublishBatchResult><Successful>`)
	for _, s := range successful {
		fmt.Fprintf(w, `<member><Id>%s</Id><MessageId>m</MessageId></member>`, s.ID)
	}
	fmt.Fprint(w, `</Successful><Failed>`)
	for _, f := range failed {
		fmt.Fprintf(w, `<member><Id>%s</Id><Code>%s</Code><Message>%s</Message><SenderFault>%t</SenderFault></member>`, f.ID, f.Code, f.Message, f.SenderFault)
	}
	fmt.Fprint(w, `</Failed></PublishBatchResult></PublishBatchResponse>`)
}

// md5Of returns the checksum that the client compares.
func md5Of(body string) string {
	sum := md5.Sum([]byte(body)) //nolint:gosec // the protocol's checksum
	return hex.EncodeToString(sum[:])
}
