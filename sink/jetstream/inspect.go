package jetstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/lane"
)

// minWindow is the least duplicates window that is expected to span the restart of a relay.
const minWindow = 2 * time.Minute

// An inspection collects findings.
type inspection struct {
	link     *link
	findings []sink.Finding
}

func (i *inspection) add(condition, object string, state sink.State, found, fix string) {
	if state == sink.Met {
		fix = ""
	}
	i.findings = append(i.findings, sink.Finding{Condition: condition, Object: object, State: state, Found: found, Fix: fix})
}

// Inspect implements [sink.Inspector].
func (c Config) Inspect(ctx context.Context, use sink.Use) []sink.Finding {
	i := new(inspection)
	control := newControl(c.withDefaults(), lane.NewStats(lane.Options{Broker: strings.Join(c.hosts(), ",")}), slog.New(slog.DiscardHandler))
	defer control.close()
	if err := control.firstContact(ctx); err != nil {
		i.add("connection", "", sink.Failed, err.Error(), adviceOf(err))
		return i.findings
	}
	err := control.use(ctx, func(ctx context.Context, l *link) error {
		i.link = l
		i.add("connection", "", sink.Met, fmt.Sprintf("%s, version %s", l.server, l.conn.ConnectedServerVersion()), "")
		i.streams(ctx, use)
		i.bucket(ctx, use.Positions)
		return nil
	})
	if err != nil {
		i.add("connection", "", sink.Failed, err.Error(), "")
	}
	return i.findings
}

// adviceOf returns how to fix err, or "" if the error does not say so.
func adviceOf(err error) string {
	if advised, ok := errors.AsType[sink.Advised](err); ok {
		return advised.Advice()
	}
	return ""
}

// streams tests the streams of the destinations and of the dead letters.
func (i *inspection) streams(ctx context.Context, use sink.Use) {
	limits := make(map[string]int) // largest record by stream
	found := make(map[string]*jetstream.StreamInfo)
	ofRecords := make(map[string]bool)
	for _, d := range use.Destinations {
		if info := i.stream(ctx, d.Name); info != nil {
			name := info.Config.Name
			found[name], ofRecords[name], limits[name] = info, true, max(limits[name], d.Largest)
		}
	}
	if use.DeadLetters != "" {
		if info := i.stream(ctx, use.DeadLetters); info != nil {
			found[info.Config.Name] = info
		}
	}
	var names []string
	for name := range found {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		i.lookAt(found[name], limits[name], ofRecords[name])
	}
}

// stream returns the stream that has a subject, or nil after a finding that says why there is none.
func (i *inspection) stream(ctx context.Context, subject string) *jetstream.StreamInfo {
	stream, err := openStream(ctx, i.link, subject)
	switch {
	case err != nil:
		i.add("stream", subject, sink.Failed, "the stream cannot be looked up: "+err.Error(), "allow the user to publish to $JS.API.STREAM.NAMES and $JS.API.STREAM.INFO.*")
		return nil
	case stream == nil:
		i.add("stream", subject, sink.Failed, "no stream has the subject", adviceOf(adviseMissing(subject)))
		return nil
	}
	info := stream.CachedInfo()
	i.add("stream", subject, sink.Met, "stored by "+info.Config.Name, "")
	return info
}

// lookAt tests the settings of a stream.
func (i *inspection) lookAt(info *jetstream.StreamInfo, largest int, ofRecords bool) {
	cfg := info.Config
	name := cfg.Name
	edit := "nats stream edit " + name
	switch {
	case cfg.NoAck:
		i.add("acknowledgements", name, sink.Failed, "the stream does not acknowledge messages, so the relay sends each one for ever", edit+" --ack")
	case cfg.Sealed:
		i.add("acknowledgements", name, sink.Failed, "the stream is sealed", sealedAdvice)
	}
	clustered := i.link.conn.ConnectedClusterName() != ""
	switch {
	case cfg.Storage == jetstream.MemoryStorage:
		i.add("storage", name, sink.Doubt, "messages are in memory only, and are lost when the server restarts", "create the stream with file storage")
	case cfg.Replicas < clusterReplicas && clustered:
		i.add("replicas", name, sink.Doubt, fmt.Sprintf("%d: messages that were acknowledged are lost with the disk of a node, and the stream does not work without it", cfg.Replicas), edit+" --replicas 3")
	case cfg.Replicas < clusterReplicas:
		i.add("replicas", name, sink.Doubt, "1: a server writes messages to disk up to sync_interval (2 minutes) after it has acknowledged them", "set sync_interval: always in the jetstream block of the server, or use a cluster of three")
	default:
		i.add("replicas", name, sink.Met, fmt.Sprint(cfg.Replicas), "")
	}
	switch {
	case cfg.Duplicates < minWindow:
		i.add("duplicates window", name, sink.Doubt, fmt.Sprintf("%s: a relay or a server that is away for longer may store records twice", cfg.Duplicates), edit+" --dupe-window 2m")
	default:
		i.add("duplicates window", name, sink.Met, cfg.Duplicates.String(), "")
	}
	i.retention(cfg, edit)
	if limit := int(cfg.MaxMsgSize); ofRecords && limit > 0 && largest > limit {
		i.add("message size", name, sink.Failed, fmt.Sprintf("a record has %d bytes, max_msg_size is %d", largest, limit), edit+fmt.Sprintf(" --max-msg-size %d", 2*largest))
	} else if limit := int(i.link.conn.MaxPayload()); ofRecords && largest > limit {
		i.add("message size", name, sink.Failed, fmt.Sprintf("a record has %d bytes, max_payload of the server is %d", largest, limit), "increase max_payload in the configuration of the servers")
	}
}

// retention tests which messages a stream keeps.
func (i *inspection) retention(cfg jetstream.StreamConfig, edit string) {
	limited := cfg.MaxMsgs > 0 || cfg.MaxBytes > 0 || cfg.MaxMsgsPerSubject > 0
	switch {
	case cfg.Retention == jetstream.InterestPolicy:
		i.add("retention", cfg.Name, sink.Doubt, "interest: the stream acknowledges messages and drops them while it has no consumer", "use the retention limits or workqueue, or create the consumers first")
	case cfg.Discard == jetstream.DiscardNew && limited:
		i.add("retention", cfg.Name, sink.Doubt, "discard new: when the stream is full, the relay waits and Postgres retains WAL", "watch the space of the stream")
	case limited:
		i.add("retention", cfg.Name, sink.Doubt, "discard old: when the stream is full, it drops its oldest messages, also if no consumer has read them", edit+" --discard new, and watch its space")
	case cfg.MaxAge > 0:
		i.add("retention", cfg.Name, sink.Met, fmt.Sprintf("messages are kept for %s", cfg.MaxAge), "")
	default:
		i.add("retention", cfg.Name, sink.Met, "messages are kept without limit of time and space", "")
	}
}

// bucket tests the position store.
func (i *inspection) bucket(ctx context.Context, name string) {
	if name == "" {
		return
	}
	var info *jetstream.StreamInfo
	err := i.link.call(ctx, func(ctx context.Context) error {
		stream, err := i.link.js.Stream(ctx, bucketPrefix+name)
		if err == nil {
			info = stream.CachedInfo()
		}
		return err
	})
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		i.add("bucket", name, sink.Met, "does not exist yet; the relay creates it", "")
	case err != nil:
		i.add("bucket", name, sink.Failed, err.Error(), "allow the user to publish to $JS.API.STREAM.INFO."+bucketPrefix+name)
	case info.Config.MaxAge > 0:
		i.add("bucket", name, sink.Failed, fmt.Sprintf("values expire after %s, and the relay then forgets its position", info.Config.MaxAge), "create the bucket without a TTL")
	case info.Config.Storage == jetstream.MemoryStorage:
		i.add("bucket", name, sink.Doubt, "is in memory only: the relay forgets its position when the server restarts", "create the bucket with file storage")
	case i.link.conn.ConnectedClusterName() != "" && info.Config.Replicas < clusterReplicas:
		i.add("bucket", name, sink.Doubt, fmt.Sprintf("has %d replicas: without its node the relay cannot store its position", info.Config.Replicas), "nats stream edit "+bucketPrefix+name+" --replicas 3")
	default:
		i.add("bucket", name, sink.Met, fmt.Sprintf("replicas: %d", info.Config.Replicas), "")
	}
}
