package redisstreams

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/outbox-cdc/outbox-cdc/sink/lane"
)

const (
	// maxPipelines is the maximum number of pipelines that wait for responses. Each has a connection.
	maxPipelines = 4

	// pipelineRequests is the maximum number of requests of a pipeline.
	pipelineRequests = 64

	// maxLast limits the streams whose last id is remembered: rows may choose any number. Without the id, a resend is
	// recognized by its entry ids only.
	maxLast = 1000

	// idleLimit is the time after which a connection is tested before it is used again. A server (setting timeout) or a
	// network may have closed it.
	idleLimit = 20 * time.Second
)

// A transport is the [lane.Transport] of a Writer. A pipeline has requests for several streams of a server, and a
// connection of its own until it has the responses.
type transport struct {
	cfg   Config
	conns *connections
	base  *lane.Base

	pipelines sync.WaitGroup
	turns     chan struct{} // a token per pipeline
	stop      func() bool   // of the context of Publish; nil before the first call

	mu   sync.Mutex
	idle map[*redis.Client][]*session // of each server
	lost int                          // number of connections that failed and were not replaced
	last map[string]string            // the last id of each stream when its last request was acknowledged, or before its first one; at most maxLast
}

func newTransport(cfg Config, base *lane.Base) *transport {
	return &transport{
		cfg: cfg, conns: cfg.newConnections(), base: base, turns: make(chan struct{}, maxPipelines),
		idle: make(map[*redis.Client][]*session), last: make(map[string]string),
	}
}

// Publish implements [lane.Transport]. It blocks while there are too many pipelines.
func (t *transport) Publish(ctx context.Context, requests []*lane.Request) {
	if t.stop == nil {
		t.stop = context.AfterFunc(ctx, t.conns.network.Abort)
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
			case t.turns <- struct{}{}:
			case <-ctx.Done():
				fail(part, t.failure(context.Cause(ctx)))
				continue
			}
			t.pipelines.Go(func() {
				defer func() { <-t.turns }()
				t.write(ctx, node, part, false)
			})
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

// failure returns the error of a request without a response, or with an error for the whole connection. In a cluster, only
// the streams of the node wait.
func (t *transport) failure(err error) error {
	err = errorOf(err)
	if t.conns.cluster != nil && errors.Is(err, lane.ErrConnection) {
		return &nodeError{err}
	}
	if errors.Is(err, errAccess) {
		return fmt.Errorf("%w: %w", lane.ErrConnection, err)
	}
	return err
}

// A nodeError is the error of one node. It does not wrap [lane.ErrConnection], which all streams would wait for.
type nodeError struct{ err error }

func (e *nodeError) Error() string { return e.err.Error() }

// A session is a connection that one pipeline at a time uses.
type session struct {
	conn    *redis.Conn
	node    *redis.Client
	records [][]byte // memory for the records of each request
	used    time.Time
}

// ping establishes the connection, or tests it.
func (s *session) ping(ctx context.Context) error {
	if err := s.conn.Ping(ctx).Err(); err != nil && !redis.HasErrorPrefix(err, "NOPERM") {
		return err
	}
	return nil
}

// take returns a connection to a server that is logged in.
func (t *transport) take(ctx context.Context, node *redis.Client) (*session, error) {
	for s := t.takeIdle(node); s != nil; s = t.takeIdle(node) {
		if time.Since(s.used) < idleLimit || s.ping(ctx) == nil {
			return s, nil
		}
		t.release(s, true)
	}
	s := &session{conn: node.Conn(), node: node}
	if err := s.ping(ctx); err != nil {
		_ = s.conn.Close()
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lost > 0 {
		t.lost--
		t.base.Reconnected()
	}
	return s, nil
}

// takeIdle returns the connection to a server that was used last, or nil if there is none.
func (t *transport) takeIdle(node *redis.Client) *session {
	t.mu.Lock()
	defer t.mu.Unlock()
	free := t.idle[node]
	if len(free) == 0 {
		return nil
	}
	t.idle[node] = free[:len(free)-1]
	return free[len(free)-1]
}

// release makes a connection available for the next pipeline, or closes it if it has failed.
func (t *transport) release(s *session, failed bool) {
	s.used = time.Now()
	t.mu.Lock()
	if failed {
		t.lost++
	} else {
		t.idle[s.node] = append(t.idle[s.node], s)
	}
	t.mu.Unlock()
	if failed {
		_ = s.conn.Close()
	}
}

// write sends requests to a server in one pipeline and reports their outcomes. If asking is true, the server does not own
// the slots of the streams yet.
func (t *transport) write(ctx context.Context, node *redis.Client, requests []*lane.Request, asking bool) {
	s, err := t.take(ctx, node)
	if err != nil {
		t.conns.reload(ctx)
		fail(requests, t.failure(err))
		return
	}
	var again []*lane.Request
	if again, err = t.exec(ctx, s, requests, asking, false); err == nil && len(again) > 0 {
		_, err = t.exec(ctx, s, again, asking, true)
	}
	t.release(s, err != nil)
}

// exec sends requests over a connection, by the hash of the script or with its source, and reports their outcomes. It
// returns the requests whose server does not have the script, or an error if the connection cannot be used any more.
func (t *transport) exec(ctx context.Context, s *session, requests []*lane.Request, asking, source bool) (unknown []*lane.Request, err error) {
	pipe := s.conn.Pipeline()
	requests = slices.DeleteFunc(slices.Clone(requests), func(r *lane.Request) bool {
		err := r.Fence()
		if err != nil {
			r.Done(0, err)
		}
		return err != nil
	})
	if len(requests) == 0 {
		return nil, nil
	}
	responses := make([]*redis.Cmd, len(requests))
	for i, r := range requests {
		if asking {
			_ = pipe.Do(ctx, "asking")
		}
		responses[i] = pipe.Do(ctx, t.command(s, i, r, source)...)
	}
	var replicas *redis.Cmd
	if t.cfg.Wait.Replicas > 0 {
		replicas = pipe.Do(ctx, "wait", t.cfg.Wait.Replicas, t.cfg.Wait.Timeout.Milliseconds())
	}
	if _, err := pipe.Exec(ctx); err != nil && !isReply(err) {
		t.conns.reload(ctx)
		fail(requests, t.failure(err))
		return nil, err
	}
	confirmed := t.confirmed(replicas)
	for i, r := range requests {
		text := ""
		if err := responses[i].Err(); err != nil {
			text = err.Error()
		}
		switch code, rest, _ := strings.Cut(text, " "); {
		case code == errNoScript && !source:
			unknown = append(unknown, r)
		case code == "ASK" && !asking:
			t.follow(ctx, rest, r)
		default:
			t.report(ctx, r, responses[i], confirmed)
		}
	}
	if err := readOnly(responses); err != nil {
		fail(unknown, t.failure(err))
		return nil, err
	}
	return unknown, nil
}

// readOnly returns the error of a server that has become a replica. The connection is then closed, because the address may
// lead to another server now.
func readOnly(responses []*redis.Cmd) error {
	for _, r := range responses {
		if err := r.Err(); err != nil && redis.HasErrorPrefix(err, "READONLY") {
			return err
		}
	}
	return nil
}

// follow sends a request to the node to which its slot is being moved. rest has the slot and the address of the node.
func (t *transport) follow(ctx context.Context, rest string, r *lane.Request) {
	_, addr, _ := strings.Cut(rest, " ")
	node, err := t.conns.nodeAt(ctx, addr)
	if err != nil {
		t.conns.reload(ctx)
		r.Done(0, &nodeError{errorOf(err)})
		return
	}
	t.write(ctx, node, []*lane.Request{r}, true)
}

// command returns the call of the script for a request, the i-th of a pipeline.
func (t *transport) command(s *session, i int, r *lane.Request, source bool) []any {
	stream := r.Records[0].Topic
	items := 0
	for _, rec := range r.Records {
		items += itemsOf(rec)
	}
	if len(s.records) == i {
		s.records = append(s.records, nil)
	}
	b := appendArray(s.records[i][:0], items)
	for _, rec := range r.Records {
		b = appendEntry(b, rec)
	}
	s.records[i] = b
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
	name, what := "evalsha", appendScript.hash
	if source {
		name, what = "eval", appendScript.source
	}
	return []any{name, what, 1, stream, b, create, how, threshold, before, confirm}
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
	e, isCode := errors.AsType[*codeError](err)
	switch {
	case isCode && (e.class == moved || e.class == unavailable):
		t.conns.reload(ctx)
	case isCode && e.class == denied:
		err = fmt.Errorf("%w: %w", lane.ErrConnection, err)
	}
	if t.conns.cluster != nil && errors.Is(err, lane.ErrConnection) {
		err = &nodeError{err}
	}
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
