package jetstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
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

// tokenBytes are the bytes that a token of a key may have, except =, which introduces those that it may not.
const tokenBytes = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"

// IsBucket reports whether a position store can have this name.
func IsBucket(name string) bool { return name != "" && strings.Trim(name, tokenBytes) == "" }

func newBucket(store, name string) (bucket, error) {
	if !IsBucket(store) {
		return bucket{}, fmt.Errorf("%w: %q is not a name for a bucket, which has letters, digits, _ and - only", errFatal, store)
	}
	return bucket{name: store, prefix: bucketSubject + store + "." + keyToken(name) + "."}, nil
}

// keyToken returns name as a token of a key.
func keyToken(name string) string {
	var b strings.Builder
	for _, c := range []byte(name) {
		if strings.IndexByte(tokenBytes, c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "=%02X", c)
		}
	}
	return b.String()
}

// nameOf is the inverse of keyToken. ok is false for a token that no name has.
func nameOf(token string) (name string, ok bool) {
	name, err := url.PathUnescape(strings.ReplaceAll(token, "=", "%"))
	return name, err == nil && keyToken(name) == token
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

// ensureBucket creates a bucket if it is missing.
func (c *client) ensureBucket(ctx context.Context, l *link, bucket string) error {
	_, err := l.stream(ctx, bucketPrefix+bucket)
	if !errors.Is(err, jetstream.ErrStreamNotFound) {
		return err
	}
	replicas := 1
	if l.conn.ConnectedClusterName() != "" {
		replicas = clusterReplicas
	}
	_, err = call(ctx, l, func(ctx context.Context) (jetstream.KeyValue, error) {
		return l.js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
			Bucket: bucket, Description: "positions of outbox-cdc", History: 1, Storage: jetstream.FileStorage,
			Replicas: cmp.Or(c.cfg.BucketReplicas, replicas),
		})
	})
	if errors.Is(err, jetstream.ErrBucketExists) {
		return nil // another process has created it
	}
	return err
}

// retry is [client.retry] for a relay that runs. If somebody has deleted the bucket, the relay does not create it again: the values of
// other relays are lost too.
func (s *positionStore) retry(ctx context.Context, f func(ctx context.Context, l *link) error) error {
	return s.client.RetryDenied(ctx, func(ctx context.Context) error {
		err := s.client.use(ctx, f)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return sink.Advise(fmt.Errorf("bucket %s does not exist: %w", s.name, err), "Find out who has deleted it, then restart the relay, which creates it again and continues at the position of the slot.")
		}
		return err
	})
}

// Read implements [sink.PositionStore].
func (s *positionStore) Read(ctx context.Context) ([]sink.StoredValue, error) {
	return s.values(ctx, s.retry)
}

// ReadPositions implements [sink.PositionReader].
func (c *client) ReadPositions(ctx context.Context, store, name string) ([]sink.StoredValue, error) {
	b, err := newBucket(store, name)
	if err != nil {
		return nil, err
	}
	return b.values(ctx, func(ctx context.Context, f func(ctx context.Context, l *link) error) error {
		return c.retry(ctx, func(ctx context.Context, l *link) error {
			err := f(ctx, l)
			if errors.Is(err, jetstream.ErrStreamNotFound) {
				return nil // the bucket does not exist
			}
			return err
		})
	})
}

// A retrier retries requests: see [client.retry] and [positionStore.retry].
type retrier = func(ctx context.Context, f func(ctx context.Context, l *link) error) error

// values returns the values, in the order in which they were stored. If there is no position, those of other names follow.
func (b bucket) values(ctx context.Context, retry retrier) ([]sink.StoredValue, error) {
	found, err := b.find(ctx, retry, b.prefix+"*")
	values := make(map[uint64]sink.StoredValue)
	for _, m := range found {
		values[m.Sequence] = b.value(m)
	}
	own := sink.InOrder(values)
	if err != nil || slices.ContainsFunc(own, func(v sink.StoredValue) bool { return v.Key == sink.PositionKey }) {
		return own, err
	}
	found, err = b.find(ctx, retry, bucketSubject+b.name+".*."+sink.PositionKey)
	var others []sink.StoredValue
	for _, m := range found {
		v := b.value(m)
		token, _, _ := strings.Cut(strings.TrimPrefix(m.Subject, bucketSubject+b.name+"."), ".")
		if name, ok := nameOf(token); ok && name != "" && !strings.HasPrefix(m.Subject, b.prefix) {
			v.Other = name
			others = append(others, v)
		}
	}
	slices.SortFunc(others, func(a, b sink.StoredValue) int { return strings.Compare(a.Other, b.Other) })
	return append(own, others...), err
}

// value returns what a message of the bucket has.
func (b bucket) value(m *nats.RawStreamMsg) sink.StoredValue {
	path := strings.TrimPrefix(m.Subject, bucketSubject+b.name+".")
	_, key, _ := strings.Cut(path, ".")
	return sink.StoredValue{Key: key, Value: m.Data, Place: fmt.Sprintf("bucket %s, key %s, revision %d", b.name, path, m.Sequence)}
}

// find returns the messages that have the values of some subjects.
func (b bucket) find(ctx context.Context, retry retrier, subjects string) (found []*nats.RawStreamMsg, err error) {
	err = retry(ctx, func(ctx context.Context, l *link) error {
		stream, err := l.stream(ctx, bucketPrefix+b.name)
		if err != nil {
			return err
		}
		info, err := call(ctx, l, func(ctx context.Context) (*jetstream.StreamInfo, error) {
			return stream.Info(ctx, jetstream.WithSubjectFilter(subjects))
		})
		if err != nil {
			return err
		}
		found = nil
		for subject := range info.State.Subjects {
			m, err := b.last(ctx, l, subject)
			if err != nil {
				return err
			}
			if isValue(m) {
				found = append(found, m)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read positions: %w", err)
	}
	return found, nil
}

// last returns the last message of a subject of the bucket; its Sequence is 0 if there is none. Package jetstream of nats.go would
// ask any replica.
func (b bucket) last(ctx context.Context, l *link, subject string) (*nats.RawStreamMsg, error) {
	leader, err := l.conn.JetStream()
	if err != nil {
		return nil, err
	}
	m, err := call(ctx, l, func(ctx context.Context) (*nats.RawStreamMsg, error) {
		return leader.GetLastMsg(bucketPrefix+b.name, subject, nats.Context(ctx))
	})
	api, rejected := errors.AsType[*nats.APIError](err)
	switch {
	case errors.Is(err, nats.ErrMsgNotFound):
		return new(nats.RawStreamMsg), nil
	case rejected: // as package jetstream has it
		return nil, fmt.Errorf("read bucket %s: %w", b.name, &jetstream.APIError{Code: api.Code, ErrorCode: jetstream.ErrorCode(api.ErrorCode), Description: api.Description})
	case err != nil:
		return nil, fmt.Errorf("read bucket %s: %w", b.name, err)
	}
	return m, nil
}

// isValue reports whether a message has a key of a store, and no headers but those of a value that put has stored.
func isValue(m *nats.RawStreamMsg) bool {
	for name := range m.Header {
		if name != jetstream.ExpectedLastSubjSeqHeader && name != ownerHeader {
			return false
		}
	}
	return m.Sequence > 0 && sink.IsStoreKey(m.Subject[strings.LastIndexByte(m.Subject, '.')+1:])
}

const (
	// ownerHeader has the id of the owner that has stored a value.
	ownerHeader = "Outbox-Cdc-Owner"

	operationHeader = "KV-Operation"
)

// Post implements [sink.PositionStore].
func (s *positionStore) Post(ctx context.Context, key string, value []byte) error {
	return s.write(ctx, key, "", func(*nats.RawStreamMsg) ([]byte, error) { return value, nil })
}

// An owner is a [sink.Owner]. Its values carry its id, and each names the revision that it replaces. So a new owner shuts out the one
// before by storing the values again, and a Write that was given up and arrives late is rejected.
type owner struct {
	store *positionStore
	id    string
}

// Own implements [sink.PositionStore].
func (s *positionStore) Own(ctx context.Context) (sink.Owner, error) {
	o := &owner{store: s, id: uuid.NewString()}
	for _, key := range []string{sink.PositionKey, sink.ParkedKey} {
		err := s.write(ctx, key, o.id, func(last *nats.RawStreamMsg) ([]byte, error) {
			if last.Header.Get(operationHeader) != "" {
				return nil, nil
			}
			return last.Data, nil
		})
		if err != nil {
			return nil, fmt.Errorf("own the positions: %w", err)
		}
	}
	return o, nil
}

// Write implements [sink.Owner].
func (o *owner) Write(ctx context.Context, key string, value []byte) error {
	return o.store.write(ctx, key, o.id, func(last *nats.RawStreamMsg) ([]byte, error) {
		if last.Header.Get(ownerHeader) != o.id {
			return nil, fmt.Errorf("%w: bucket %s has another owner", sink.ErrSuperseded, o.store.name)
		}
		return value, nil
	})
}

// write replaces a value by the one that next returns for its last message, with retries. If that message is replaced meanwhile, write
// calls next again.
func (s *positionStore) write(ctx context.Context, key, owner string, next func(last *nats.RawStreamMsg) ([]byte, error)) error {
	err := s.retry(ctx, func(ctx context.Context, l *link) error {
		for {
			m, err := s.last(ctx, l, s.prefix+key)
			if err != nil {
				return err
			}
			value, err := next(m)
			if err != nil {
				return err
			}
			if err := s.put(ctx, l, key, owner, value, m.Sequence); !isReplaced(err) {
				return err
			}
		}
	})
	if err != nil {
		return fmt.Errorf("write %s: %w", key, err)
	}
	return nil
}

// put stores a value, or a marker that it was removed, in place of a revision.
func (s *positionStore) put(ctx context.Context, l *link, key, owner string, value []byte, revision uint64) error {
	m := &nats.Msg{Subject: s.prefix + key, Data: value, Header: make(nats.Header)}
	if value == nil {
		m.Header.Set(operationHeader, "DEL")
	}
	if owner != "" {
		m.Header.Set(ownerHeader, owner)
	}
	_, err := call(ctx, l, func(ctx context.Context) (*jetstream.PubAck, error) {
		return l.js.PublishMsg(ctx, m, jetstream.WithExpectLastSequencePerSubject(revision))
	})
	return err
}

// isReplaced reports whether err of put says that the value has another revision.
func isReplaced(err error) bool {
	api, ok := errors.AsType[*jetstream.APIError](err)
	return ok && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant)
}

// CheckOrder implements [sink.PositionStore].
func (s *positionStore) CheckOrder(context.Context) error {
	return fmt.Errorf("%w: JetStream does not order writers", errors.ErrUnsupported)
}
