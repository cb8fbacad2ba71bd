package sqs

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
)

// The forms of a region, and of the URL of an endpoint.
const (
	RegionPattern   = `^[a-z0-9-]+$`
	EndpointPattern = `^https?://[^\s@?#\\]+$`
)

// A service is the one that a destination belongs to.
type service uint8

const (
	queues service = iota // Amazon SQS
	topics                // Amazon SNS
)

// String returns the name of the service, as in an ARN.
func (s service) String() string {
	if s == topics {
		return "sns"
	}
	return "sqs"
}

// A Destination is a queue or a topic.
type Destination struct {
	service service
	region  string // empty: that of the Config
	url     string // URL of a queue; empty if it has to be looked up
	arn     string // of a topic
	name    string // of the queue or topic
	account string // of a queue without url; empty: that of the credentials
	fifo    bool
}

var (
	namePattern = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.fifo)?$`)

	// arnPattern matches arn:PARTITION:SERVICE:REGION:ACCOUNT:NAME.
	arnPattern = regexp.MustCompile(`^arn:([a-z0-9-]+):(sqs|sns):([a-z0-9-]+):(\d{12}):([^:]+)$`)

	// hostPattern matches the hosts of the service's own endpoints, the legacy ones included.
	hostPattern = regexp.MustCompile(`^(?:sqs(?:-fips)?\.([a-z0-9-]+)|([a-z0-9-]+)\.queue)\.amazonaws\.com(?:\.cn)?$`)
)

const (
	longestQueue = 80
	longestTopic = 256
)

// ParseDestination returns the destination that s denotes. s is one of:
//
//   - the URL of a queue: https://sqs.eu-central-1.amazonaws.com/123456789012/orders.fifo
//   - the ARN of a queue: arn:aws:sqs:eu-central-1:123456789012:orders.fifo
//   - the name of a queue of the account and the region of the Config: orders.fifo
//   - the ARN of a topic: arn:aws:sns:eu-central-1:123456789012:orders.fifo
//
// An error is the predicate of a sentence about s, which is not in it.
//
// The relay looks up the URL of a queue that is given by its ARN or its name, which needs the privilege sqs:GetQueueUrl.
func ParseDestination(s string) (Destination, error) {
	var d Destination
	switch {
	case strings.HasPrefix(s, "arn:"):
		m := arnPattern.FindStringSubmatch(s)
		if m == nil {
			return d, errors.New("is not the ARN of an SQS queue or an SNS topic")
		}
		d = Destination{region: m[3], account: m[4], name: m[5]}
		if m[2] == topics.String() {
			d.service, d.arn = topics, s
		}
	case strings.HasPrefix(s, "https://"), strings.HasPrefix(s, "http://"):
		u, err := url.Parse(s)
		if err != nil || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
			return d, errors.New("is not the URL of an SQS queue")
		}
		path := strings.Split(u.Path, "/")
		d = Destination{url: s, name: path[len(path)-1]}
		if m := hostPattern.FindStringSubmatch(u.Hostname()); m != nil {
			d.region = m[1] + m[2]
		}
	default:
		d = Destination{name: s}
	}
	longest := longestQueue
	if d.service == topics {
		longest = longestTopic
	}
	if !namePattern.MatchString(d.name) || len(d.name) > longest {
		return d, fmt.Errorf("does not name a queue or topic: a name has at most %d letters, digits, - and _, and may end in .fifo", longest)
	}
	d.fifo = strings.HasSuffix(d.name, ".fifo")
	return d, nil
}

// Names are the rules for destinations.
type Names struct{}

// Illegal returns why a record cannot be sent to a destination, or "".
func (Names) Illegal(destination string) string {
	if _, err := ParseDestination(destination); err != nil {
		return err.Error()
	}
	return ""
}
