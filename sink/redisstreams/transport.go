package redisstreams

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/outbox-cdc/outbox-cdc/sink/lane"
	"github.com/outbox-cdc/outbox-cdc/sink/network"
)

const (
	// maxPipelines is the maximum number of pipelines that wait for responses. Each has a connection.
	maxPipelines = 4

	// pipelineRequests is the maximum number of requests of a pipeline.
	pipelineRequests = 64

	// maxLast limits the streams whose last id is remembered: rows may choose any number. Without the id, a resend is
	// recognized by its entry ids only.
	maxLast = 1000
)

// A transport is the [lane.Transport] of a Writer. A pipeline has requests for several streams of a server.
type transport struct {
	cfg   Config
	conns *connections
	base  *lane.Base

	pipelines sync.WaitGroup
	turns     chan *pipeline // those that do not wait for responses
	stop      func() bool    // of the context of Publish; nil before the first call

	mu   sync.Mutex
	last map[string]string // the last id of each stream when its last request was acknowledged, or before its first one; at most maxLast
}

func newTransport(cfg Config, base *lane.Base) *transport {
	t := &transport{cfg: cfg, conns: cfg.newConnections(), base: base, turns: make(chan *pipeline, maxPipelines), last: make(map[string]string)}
	t.conns.network.Connected = base.ConnectionMade
	for range maxPipelines {
		t.turns <- new(pipeline)
	}
	return t
}

// A pipeline is the memory of the requests of a pipeline.
type pipeline struct {
	records [][]byte // the encoded records of each request
}

// Publish implements [lane.Transport]. It blocks while there are too many pipelines.
func (t *transport) Publish(ctx context.Context, requests []*lane.Request) {
	if t.stop == nil {
		t.stop = context.AfterFunc(ctx, t.conns.network.Abort)
		t.conns.network.Fence = requests[0].Fence // that of all requests
	}
	byNode := make(map[*redis.Client][]*lane.Request, 1)
	for _, r := range requests {
		node, err := t.conns.node(ctx, r.Records[0].Topic)
		if err != nil {
			t.conns.reload(ctx)
			r.Done(0, t.failure(err))
			continue
		}
		byNode[node] = append(byNode[node], r)
	}
	for node, requests := range byNode {
		for part := range slices.Chunk(requests, pipelineRequests) {
			select {
			case p := <-t.turns:
				t.pipelines.Go(func() {
					defer func() { t.turns <- p }()
					t.write(ctx, p, node, part, false, false)
				})
			case <-ctx.Done():
				fail(part, t.failure(context.Cause(ctx)))
			}
		}
	}
}

// Close implements [lane.Transport].
func (t *transport) Close() error {
	t.pipelines.Wait()
	if t.stop != nil {
		t.stop()
	}
	return t.conns.Close()
}

// fail ends requests with an error.
func fail(requests []*lane.Request, err error) {
	for _, r := range requests {
		r.Done(0, err)
	}
}

// failure returns the error of a request without a response, or with an error for the whole connection.
func (t *transport) failure(err error) error { return t.scope(errorOf(err)) }

// scope returns err as one for which all streams wait if the user lacks access, and as one for which the streams of the node wait if
// one of a cluster cannot be reached.
func (t *transport) scope(err error) error {
	if t.conns.cluster != nil && errors.Is(err, lane.ErrConnection) {
		return errors.New(err.Error()) // which is not lane.ErrConnection, for which all streams would wait
	}
	if errors.Is(err, errAccess) {
		return &refusedError{err}
	}
	return err
}

// A refusedError is an error because the user lacks access, for which all streams wait like one of the connection.
type refusedError struct{ error }

// Unwrap returns [lane.ErrConnection] and the error.
func (e *refusedError) Unwrap() []error { return []error{lane.ErrConnection, e.error} }

// write sends requests to a server in one pipeline and reports their outcomes. If asking is true, the server does not own
// the slots of the streams yet. It sends the hash of the script, or the source if the server does not have the script.
func (t *transport) write(ctx context.Context, p *pipeline, node *redis.Client, requests []*lane.Request, asking, source bool) {
	pipe := node.Pipeline()
	requests = slices.DeleteFunc(slices.Clone(requests), func(r *lane.Request) bool {
		err := r.Fence()
		if err != nil {
			r.Done(0, err)
		}
		return err != nil
	})
	if len(requests) == 0 {
		return
	}
	responses := make([]*redis.Cmd, len(requests))
	for i, r := range requests {
		if asking {
			_ = pipe.Do(ctx, "asking")
		}
		run := appendScript.EvalSha
		if source {
			run = appendScript.Eval
		}
		responses[i] = run(ctx, pipe, []string{r.Records[0].Topic}, t.arguments(p, i, r)...)
	}
	var replicas *redis.Cmd
	if t.cfg.Wait.Replicas > 0 {
		replicas = pipe.Do(ctx, "wait", t.cfg.Wait.Replicas, t.cfg.Wait.Timeout.Milliseconds())
	}
	_, err := pipe.Exec(ctx)
	rejected := err != nil && responses[0].Err() == nil && responses[0].Val() == nil // by the login of a new connection
	if rejected || err != nil && !isReply(err) {
		if _, unsent := errors.AsType[*network.DialError](err); !unsent {
			t.base.ConnectionLost()
		}
		t.conns.reload(ctx)
		fail(requests, t.failure(err))
		return
	}
	var unknown []*lane.Request // those for which the server does not have the script
	confirmed := t.confirmed(replicas)
	for i, r := range requests {
		switch err := responses[i].Err(); {
		case redis.HasErrorPrefix(err, "NOSCRIPT") && !source:
			unknown = append(unknown, r)
		case redis.HasErrorPrefix(err, "ASK ") && !asking:
			t.follow(ctx, p, err.Error(), r)
		default:
			t.report(ctx, r, responses[i], confirmed)
		}
	}
	if isReadOnly(responses) {
		t.conns.network.Abort()
	}
	if len(unknown) > 0 {
		t.write(ctx, p, node, unknown, asking, true)
	}
}

// isReadOnly reports whether a server has become a replica. The connections are then closed, because the address may lead to
// another server now.
func isReadOnly(responses []*redis.Cmd) bool {
	return slices.ContainsFunc(responses, func(r *redis.Cmd) bool { return redis.HasErrorPrefix(r.Err(), "READONLY") })
}

// follow sends a request to the node to which its slot is being moved: the last word of the server's error.
func (t *transport) follow(ctx context.Context, p *pipeline, text string, r *lane.Request) {
	addr := text[strings.LastIndexByte(text, ' ')+1:]
	node, err := t.conns.nodeAt(ctx, addr)
	if err != nil {
		t.conns.reload(ctx)
		r.Done(0, t.failure(err))
		return
	}
	t.write(ctx, p, node, []*lane.Request{r}, true, false)
}

// arguments returns the arguments of the script for a request, the i-th of a pipeline.
func (t *transport) arguments(p *pipeline, i int, r *lane.Request) []any {
	stream := r.Records[0].Topic
	items := 0
	for _, rec := range r.Records {
		items += itemsOf(rec)
	}
	if len(p.records) == i {
		p.records = append(p.records, nil)
	}
	b := appendArray(p.records[i][:0], items)
	for _, rec := range r.Records {
		b = appendEntry(b, rec)
	}
	p.records[i] = b
	create, confirm := "", ""
	if t.cfg.CreateStreams {
		create = "create"
	}
	if t.cfg.Wait.Replicas > 0 {
		confirm = "confirm"
	}
	before := ""
	if r.Resent {
		before = t.lastID(stream)
	}
	how, threshold := t.cfg.Trim.of(stream, r.Records[len(r.Records)-1].Position.CommitLSN)
	return []any{b, create, how, threshold, before, confirm}
}

// of returns the option of XADD for a stream, and its threshold, when a row with that commit LSN is appended.
func (t Trim) of(stream string, lsn uint64) (option, threshold string) {
	switch {
	case slices.Contains(t.Keep, stream):
	case t.MaxLen > 0:
		return "MAXLEN", strconv.FormatInt(t.MaxLen, 10)
	case t.MaxWAL > 0 && lsn > t.MaxWAL:
		return "MINID", strconv.FormatUint(lsn-t.MaxWAL, 10)
	}
	return "", ""
}

// confirmed returns an error if too few replicas have the records.
func (t *transport) confirmed(replicas *redis.Cmd) error {
	if replicas == nil {
		return nil
	}
	n, err := replicas.Int()
	if err != nil {
		return serverError(err.Error())
	}
	if n < t.cfg.Wait.Replicas {
		return serverError("WAIT")
	}
	return nil
}

// report reports the outcome of a request from the response of the script.
func (t *transport) report(ctx context.Context, r *lane.Request, response *redis.Cmd, confirmed error) {
	got, err := parseResponse(response)
	if err == nil && got.failure != "" {
		err = serverError(got.failure)
	}
	if e, ok := errors.AsType[*codeError](err); ok && (errors.Is(e.class, errMoved) || errors.Is(e.class, errUnreachable)) {
		t.conns.reload(ctx)
	}
	err = t.scope(err)
	stream := r.Records[0].Topic
	if got.stored > 0 && confirmed != nil {
		if got.began != "" && t.lastID(stream) == "" {
			t.remember(stream, got.began)
		}
		r.Done(0, confirmed)
		return
	}
	if got.last != "" {
		t.remember(stream, got.last)
	}
	r.Done(got.stored, err)
}

// remember notes the last id of a stream.
func (t *transport) remember(stream, last string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	lane.MakeRoom(t.last, stream, maxLast)
	t.last[stream] = last
}

// lastID returns the last id that was noted of a stream, or "".
func (t *transport) lastID(stream string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last[stream]
}

// An answer has the results of append.lua.
type answer struct {
	stored               int
	failure, last, began string
}

func parseResponse(response *redis.Cmd) (answer, error) {
	if err := response.Err(); err != nil {
		return answer{}, errorOf(err)
	}
	fields, ok := response.Val().([]any)
	if ok && len(fields) == 4 {
		n, isNumber := fields[0].(int64)
		failure, isFailure := fields[1].(string)
		last, isLast := fields[2].(string)
		began, isBegan := fields[3].(string)
		if isNumber && isFailure && isLast && isBegan {
			return answer{int(n), failure, last, began}, nil
		}
	}
	return answer{}, fmt.Errorf("%w: the response to the script is a %T", errFatal, response.Val())
}
