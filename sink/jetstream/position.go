package jetstream

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

const (
	bucketPrefix    = "KV_"
	bucketSubject   = "$KV."
	clusterReplicas = 3
)

// A bucket has the values of a name in a key-value bucket. The key of a value follows the name and a dot. Its methods read from the
// leader of the bucket's stream, because a replica may be behind.
type bucket struct {
	name   string
	prefix string // subject of a value, without its key
}

func newBucket(store, name string) (bucket, error) {
	if !IsBucket(store) {
		return bucket{}, fmt.Errorf("%w: %q is not a name for a bucket, which has letters, digits, _ and - only", errFatal, store)
	}
	return bucket{name: store, prefix: bucketSubject + store + "." + keyToken(name) + "."}, nil
}

// A positionStore is the [sink.PositionStore] in a bucket.
type positionStore struct {
	bucket

	client *client
}

// OpenPositions implements [sink.PositionOpener].
func (c *client) OpenPositions(ctx context.Context, store, name string) (sink.PositionStore, error) {
	b, err := newBucket(store, name)
	if err != nil {
		return nil, err
	}
	err = c.retry(ctx, func(ctx context.Context, l *link) error { return c.ensureBucket(ctx, l, store) })
	if err != nil {
		return nil, fmt.Errorf("open bucket %s: %w", store, err)
	}
	return &positionStore{client: c, bucket: b}, nil
}

// IsBucket reports whether a position store can have this name.
func IsBucket(name string) bool {
	for _, c := range []byte(name) {
		if !isTokenByte(c) || c == '=' {
			return false
		}
	}
	return name != ""
}

// keyToken returns name as a token of a key.
func keyToken(name string) string {
	var b strings.Builder
	for _, c := range []byte(name) {
		if isTokenByte(c) && c != '=' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "=%02X", c)
		}
	}
	return b.String()
}

func isTokenByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-' || c == '='
}

// ensureBucket creates a bucket if it is missing.
func (c *client) ensureBucket(ctx context.Context, l *link, bucket string) error {
	err := l.call(ctx, func(ctx context.Context) error {
		_, err := l.js.Stream(ctx, bucketPrefix+bucket)
		return err
	})
	if !errors.Is(err, jetstream.ErrStreamNotFound) {
		return err
	}
	replicas := c.cfg.BucketReplicas
	if replicas == 0 {
		replicas = 1
		if l.conn.ConnectedClusterName() != "" {
			replicas = clusterReplicas
		}
	}
	return l.call(ctx, func(ctx context.Context) error {
		_, err := l.js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
			Bucket: bucket, Description: "positions of outbox-cdc", History: 1, Storage: jetstream.FileStorage, Replicas: replicas,
		})
		if errors.Is(err, jetstream.ErrBucketExists) {
			return nil // another process has created it
		}
		return err
	})
}

// retry calls f until it succeeds or ctx ends. It also retries if the server rejects the login or the request: the relay runs and
// must hold its slot, and a rejected login may be one whose secret is being replaced.
func (s *positionStore) retry(ctx context.Context, f func(ctx context.Context, l *link) error) error {
	return s.client.Retry(ctx, func(ctx context.Context) error {
		err := s.client.use(ctx, f)
		if errors.Is(err, sink.ErrAccess) || errors.Is(err, sink.ErrFatal) {
			return errors.New(err.Error())
		}
		return err
	})
}

// Read implements [sink.PositionStore].
func (s *positionStore) Read(ctx context.Context) (values []sink.StoredValue, err error) {
	err = s.retry(ctx, func(ctx context.Context, l *link) error {
		values, err = s.values(ctx, l)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read positions: %w", err)
	}
	return values, nil
}

// ReadPositions implements [sink.PositionReader].
func (c *client) ReadPositions(ctx context.Context, store, name string) (values []sink.StoredValue, err error) {
	b, err := newBucket(store, name)
	if err != nil {
		return nil, err
	}
	err = c.retry(ctx, func(ctx context.Context, l *link) error {
		values, err = b.values(ctx, l)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return nil // the bucket does not exist
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read positions: %w", err)
	}
	return values, nil
}

// values returns the values, in the order in which they were stored.
func (b bucket) values(ctx context.Context, l *link) ([]sink.StoredValue, error) {
	subjects, err := b.subjects(ctx, l)
	if err != nil {
		return nil, err
	}
	var found []*jetstream.RawStreamMsg
	for _, subject := range subjects {
		m, err := b.last(ctx, l, subject)
		if err != nil {
			return nil, err
		}
		if isValue(m) && sink.IsStoreKey(strings.TrimPrefix(subject, b.prefix)) {
			found = append(found, m)
		}
	}
	slices.SortFunc(found, func(a, b *jetstream.RawStreamMsg) int { return cmp.Compare(a.Sequence, b.Sequence) })
	var values []sink.StoredValue
	for _, m := range found {
		place := fmt.Sprintf("bucket %s, key %s, revision %d", b.name, strings.TrimPrefix(m.Subject, bucketSubject+b.name+"."), m.Sequence)
		values = append(values, sink.StoredValue{Key: strings.TrimPrefix(m.Subject, b.prefix), Value: m.Data, Place: place})
	}
	return values, nil
}

// subjects returns the subjects of the values.
func (b bucket) subjects(ctx context.Context, l *link) ([]string, error) {
	var subjects []string
	err := l.call(ctx, func(ctx context.Context) error {
		stream, err := l.js.Stream(ctx, bucketPrefix+b.name)
		if err != nil {
			return err
		}
		info, err := stream.Info(ctx, jetstream.WithSubjectFilter(b.prefix+"*"))
		if err != nil {
			return err
		}
		for subject := range info.State.Subjects {
			subjects = append(subjects, subject)
		}
		return nil
	})
	return subjects, err
}

// last returns the last message of a subject of the bucket; its Sequence is 0 if there is none. The client library would ask
// any replica.
func (b bucket) last(ctx context.Context, l *link, subject string) (*jetstream.RawStreamMsg, error) {
	request, err := json.Marshal(struct {
		Last string `json:"last_by_subj"`
	}{subject})
	if err != nil {
		return nil, err
	}
	var response struct {
		Message struct {
			Subject  string `json:"subject"`
			Sequence uint64 `json:"seq"`
			Header   []byte `json:"hdrs"`
			Data     []byte `json:"data"`
		} `json:"message"`
		Error *jetstream.APIError `json:"error"`
	}
	err = l.call(ctx, func(ctx context.Context) error {
		answer, err := l.conn.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+bucketPrefix+b.name, request)
		if err != nil {
			return err
		}
		return json.Unmarshal(answer.Data, &response)
	})
	switch failed := response.Error; {
	case err != nil:
		return nil, fmt.Errorf("read bucket %s: %w", b.name, err)
	case failed != nil && failed.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return new(jetstream.RawStreamMsg), nil
	case failed != nil:
		return nil, failed
	}
	m := &jetstream.RawStreamMsg{Subject: response.Message.Subject, Sequence: response.Message.Sequence, Data: response.Message.Data}
	if len(response.Message.Header) > 0 {
		m.Header, err = nats.DecodeHeadersMsg(response.Message.Header)
	}
	return m, err
}

// isValue reports whether a message has no headers but those of a value that put has stored.
func isValue(m *jetstream.RawStreamMsg) bool {
	for name := range m.Header {
		if name != jetstream.ExpectedLastSubjSeqHeader && name != ownerHeader {
			return false
		}
	}
	return m.Sequence > 0
}

// Post implements [sink.PositionStore].
func (s *positionStore) Post(ctx context.Context, key string, value []byte) error {
	err := s.retry(ctx, func(ctx context.Context, l *link) error {
		for {
			m, err := s.last(ctx, l, s.prefix+key)
			if err != nil {
				return err
			}
			_, err = s.put(ctx, l, key, "", value, m.Sequence)
			if !errors.Is(err, errReplaced) {
				return err
			}
		}
	})
	if err != nil {
		return fmt.Errorf("write %s: %w", key, err)
	}
	return nil
}

const (
	// ownerHeader has the id of the owner that has stored a value.
	ownerHeader = "Outbox-Cdc-Owner"

	operationHeader = "KV-Operation"
)

// An owner is a [sink.Owner]. It names the revision that each of its values replaces, and its values carry its id. So a new owner
// shuts out the one before by storing the values again, and a Write that was given up and arrives late is rejected.
type owner struct {
	store *positionStore
	id    string

	writing   chan struct{}     // cap 1: held by Write
	revisions map[string]uint64 // of the values
}

// Own implements [sink.PositionStore].
func (s *positionStore) Own(ctx context.Context) (sink.Owner, error) {
	o := &owner{store: s, id: uuid.NewString(), writing: make(chan struct{}, 1), revisions: make(map[string]uint64)}
	for _, key := range []string{sink.PositionKey, sink.ParkedKey} {
		if err := s.retry(ctx, func(ctx context.Context, l *link) error { return o.take(ctx, l, key) }); err != nil {
			return nil, fmt.Errorf("own the positions: %w", err)
		}
	}
	return o, nil
}

// take stores a value again.
func (o *owner) take(ctx context.Context, l *link, key string) error {
	for {
		m, err := o.store.last(ctx, l, o.store.prefix+key)
		if err != nil {
			return err
		}
		value := m.Data
		if m.Sequence == 0 || m.Header.Get(operationHeader) != "" {
			value = nil
		}
		stored, err := o.store.put(ctx, l, key, o.id, value, m.Sequence)
		if err == nil {
			o.revisions[key] = stored
			return nil
		}
		if !errors.Is(err, errReplaced) {
			return err
		}
	}
}

// Write implements [sink.Owner].
func (o *owner) Write(ctx context.Context, key string, value []byte) error {
	select {
	case o.writing <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-o.writing }()
	err := o.store.retry(ctx, func(ctx context.Context, l *link) error { return o.replace(ctx, l, key, value) })
	if err != nil {
		return fmt.Errorf("write %s: %w", key, err)
	}
	return nil
}

// replace stores a value. If a message of this owner was stored whose answer was lost, it replaces that one.
func (o *owner) replace(ctx context.Context, l *link, key string, value []byte) error {
	for {
		stored, err := o.store.put(ctx, l, key, o.id, value, o.revisions[key])
		if err == nil {
			o.revisions[key] = stored
			return nil
		}
		if !errors.Is(err, errReplaced) {
			return err
		}
		m, err := o.store.last(ctx, l, o.store.prefix+key)
		if err != nil {
			return err
		}
		if m.Header.Get(ownerHeader) != o.id {
			return fmt.Errorf("%w: bucket %s has another owner", sink.ErrSuperseded, o.store.name)
		}
		o.revisions[key] = m.Sequence
	}
}

// errReplaced: the value has another revision than the one that was to be replaced.
var errReplaced = errors.New("the position has another revision")

// put stores a value, or a marker that it was removed, and returns its revision.
func (s *positionStore) put(ctx context.Context, l *link, key, owner string, value []byte, revision uint64) (stored uint64, err error) {
	m := &nats.Msg{Subject: s.prefix + key, Data: value, Header: make(nats.Header)}
	if value == nil {
		m.Header.Set(operationHeader, "DEL")
	}
	if owner != "" {
		m.Header.Set(ownerHeader, owner)
	}
	err = l.call(ctx, func(ctx context.Context) error {
		ack, err := l.js.PublishMsg(ctx, m, jetstream.WithExpectLastSequencePerSubject(revision))
		if err == nil {
			stored = ack.Sequence
		}
		return err
	})
	api, ok := errors.AsType[*jetstream.APIError](err)
	if ok && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant) {
		return 0, errReplaced
	}
	return stored, err
}

// CheckOrder implements [sink.PositionStore].
func (s *positionStore) CheckOrder(context.Context) error {
	return fmt.Errorf("%w: JetStream does not order writers", errors.ErrUnsupported)
}
