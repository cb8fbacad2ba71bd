package jetstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// minWindow is the least duplicates window that is expected to span the restart of a relay.
const minWindow = 2 * time.Minute

// An inspection collects findings.
type inspection struct {
	sink.Findings

	link  *link
	short bool // [sink.Use.Short]
}

// Conditions implements [sink.Inspector].
func (Config) Conditions() []sink.Condition {
	return []sink.Condition{
		{Name: "connection", Met: "A server responds, accepts the login, and has JetStream.", Short: true},
		{Name: "stream", Object: "subject", Met: "A stream stores the subject.", Short: true},
		{Name: "acknowledgements", Object: "stream", Met: "The stream acknowledges messages, and is not sealed.", Short: true},
		{Name: "storage", Object: "stream", Met: "Messages are stored in files.", Short: true},
		{Name: "replicas", Object: "stream", Met: "The stream has three replicas, so that messages survive the loss of a disk and a power failure."},
		{Name: "duplicates window", Object: "stream", Met: "The window is at least two minutes."},
		{Name: "retention", Object: "stream", Met: "The stream drops no message before a consumer has read it, and does not fill up.", Short: true},
		{Name: "message size", Object: "stream", Met: "The stream and the server accept a message as large as the largest of the last rows.", Short: true},
		{Name: "bucket", Object: "bucket", Met: "The key-value bucket of the position store keeps values for ever, in files, and in a cluster with three replicas; or the relay creates it.", Short: true},
	}
}

// Inspect implements [sink.Inspector].
func (c Config) Inspect(ctx context.Context, use sink.Use) []sink.Finding {
	i := &inspection{short: use.Short}
	cl, err := c.newClient(slog.New(slog.DiscardHandler))
	if err == nil {
		defer func() { _ = cl.Close() }()
		err = cl.retry(ctx, findJetStream)
	}
	if err != nil {
		i.Failed("connection", "", err.Error(), sink.AdviceOf(err))
		return i.Findings
	}
	err = cl.use(ctx, func(ctx context.Context, l *link) error {
		i.link = l
		i.Met("connection", "", fmt.Sprintf("%s, version %s", l.server, l.conn.ConnectedServerVersion()))
		i.streams(ctx, use)
		i.bucket(ctx, use.Positions)
		return nil
	})
	if err != nil {
		i.Failed("connection", "", err.Error(), "")
	}
	return i.Findings
}

// streams tests the streams of the destinations and of the dead letters.
func (i *inspection) streams(ctx context.Context, use sink.Use) {
	found := make(map[string]*jetstream.StreamInfo)
	largest := make(map[string]int) // record, by stream
	for _, d := range use.Destinations {
		if info := i.stream(ctx, d.Name); info != nil {
			name := info.Config.Name
			found[name], largest[name] = info, max(largest[name], d.Largest.Size())
		}
	}
	if use.DeadLetters != "" {
		if info := i.stream(ctx, use.DeadLetters); info != nil {
			found[info.Config.Name] = info
		}
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		i.lookAt(found[name], largest[name])
	}
}

// stream returns the stream that has a subject, or nil after a finding that says why there is none.
func (i *inspection) stream(ctx context.Context, subject string) *jetstream.StreamInfo {
	stream, err := openStream(ctx, i.link, subject)
	switch {
	case err != nil:
		i.Failed("stream", subject, "the stream cannot be looked up: "+err.Error(), "allow the user to publish to $JS.API.STREAM.NAMES and $JS.API.STREAM.INFO.*")
		return nil
	case stream == nil:
		i.Failed("stream", subject, "no stream has the subject", sink.AdviceOf(adviseMissing(subject)))
		return nil
	}
	info := stream.CachedInfo()
	i.Met("stream", subject, "stored by "+info.Config.Name)
	return info
}

// lookAt tests the settings of a stream.
func (i *inspection) lookAt(info *jetstream.StreamInfo, largest int) {
	cfg := info.Config
	name := cfg.Name
	edit := "nats stream edit " + name
	switch {
	case cfg.NoAck:
		i.Failed("acknowledgements", name, "the stream does not acknowledge messages, so the relay sends each one for ever", edit+" --ack")
	case cfg.Sealed:
		i.Failed("acknowledgements", name, "the stream is sealed", sealedAdvice)
	}
	clustered := i.link.conn.ConnectedClusterName() != ""
	switch {
	case cfg.Storage == jetstream.MemoryStorage:
		i.Doubt("storage", name, "messages are in memory only, and are lost when the server restarts", "create the stream with file storage")
	case cfg.Replicas < clusterReplicas && clustered:
		i.Doubt("replicas", name, fmt.Sprintf("%d: messages that were acknowledged are lost with the disk of a node, and the stream does not work without it", cfg.Replicas), edit+" --replicas 3")
	case cfg.Replicas < clusterReplicas:
		i.Doubt("replicas", name, "1: a server writes messages to disk up to sync_interval (2 minutes) after it has acknowledged them", "set sync_interval: always in the jetstream block of the server, or use a cluster of three")
	default:
		i.Met("replicas", name, fmt.Sprint(cfg.Replicas))
	}
	switch {
	case cfg.Duplicates < minWindow:
		i.Doubt("duplicates window", name, fmt.Sprintf("%s: a relay or a server that is away for longer may store records twice", cfg.Duplicates), edit+" --dupe-window 2m")
	default:
		i.Met("duplicates window", name, cfg.Duplicates.String())
	}
	i.retention(cfg, edit)
	if limit := int(cfg.MaxMsgSize); limit > 0 && largest > limit {
		i.Failed("message size", name, fmt.Sprintf("a record has %d bytes, max_msg_size is %d", largest, limit), edit+fmt.Sprintf(" --max-msg-size %d", 2*largest))
	} else if limit := int(i.link.conn.MaxPayload()); largest > limit {
		i.Failed("message size", name, fmt.Sprintf("a record has %d bytes, max_payload of the server is %d", largest, limit), "increase max_payload in the configuration of the servers")
	}
}

// retention tests which messages a stream keeps.
func (i *inspection) retention(cfg jetstream.StreamConfig, edit string) {
	limited := cfg.MaxMsgs > 0 || cfg.MaxBytes > 0 || cfg.MaxMsgsPerSubject > 0
	switch {
	case cfg.Retention == jetstream.InterestPolicy:
		i.Doubt("retention", cfg.Name, "interest: the stream acknowledges messages and drops them while it has no consumer", "use the retention limits or workqueue, or create the consumers first")
	case cfg.Discard == jetstream.DiscardNew && limited && i.short: // a relay that has to wait says so
	case cfg.Discard == jetstream.DiscardNew && limited:
		i.Doubt("retention", cfg.Name, "discard new: when the stream is full, the relay waits and Postgres retains WAL", "watch the space of the stream")
	case limited:
		i.Doubt("retention", cfg.Name, "discard old: when the stream is full, it drops its oldest messages, also if no consumer has read them", edit+" --discard new, and watch its space")
	case cfg.MaxAge > 0:
		i.Met("retention", cfg.Name, fmt.Sprintf("messages are kept for %s", cfg.MaxAge))
	default:
		i.Met("retention", cfg.Name, "messages are kept without limit of time and space")
	}
}

// bucket tests the position store.
func (i *inspection) bucket(ctx context.Context, name string) {
	if name == "" {
		return
	}
	stream, err := i.link.stream(ctx, bucketPrefix+name)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		i.Met("bucket", name, "does not exist yet; the relay creates it")
		return
	case err != nil:
		i.Failed("bucket", name, err.Error(), "allow the user to publish to $JS.API.STREAM.INFO."+bucketPrefix+name)
		return
	}
	switch cfg := stream.CachedInfo().Config; {
	case cfg.MaxAge > 0:
		i.Failed("bucket", name, fmt.Sprintf("values expire after %s, and the relay then forgets its position", cfg.MaxAge), "create the bucket without a TTL")
	case cfg.Storage == jetstream.MemoryStorage:
		i.Doubt("bucket", name, "is in memory only: the relay forgets its position when the server restarts", "create the bucket with file storage")
	case i.link.conn.ConnectedClusterName() != "" && cfg.Replicas < clusterReplicas && !i.short:
		i.Doubt("bucket", name, fmt.Sprintf("has %d replicas: without its node the relay cannot store its position", cfg.Replicas), "nats stream edit "+bucketPrefix+name+" --replicas 3")
	default:
		i.Met("bucket", name, fmt.Sprintf("replicas: %d", cfg.Replicas))
	}
}
