package inboxfranz

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A logger logs what happens to the group: one line when trouble starts, one when it is over.
type logger struct {
	log *slog.Logger

	mu      sync.Mutex
	failing map[any]bool // addresses of brokers, places and topics that have been logged
}

func (l *logger) joining(ctx context.Context, topics []string) {
	l.log.InfoContext(ctx, "inbox: joining the consumer group", slog.Any("topics", topics))
}

// assigned logs partitions, none of them too: the group works, but has more members than partitions.
func (l *logger) assigned(ctx context.Context, partitions map[string][]int32) {
	l.ends(groupSession{})
	l.log.InfoContext(ctx, "inbox: partitions assigned", slog.Any("partitions", partitions))
}

func (l *logger) revoked(ctx context.Context, partitions map[string][]int32) {
	if len(partitions) > 0 {
		l.log.InfoContext(ctx, "inbox: partitions revoked", slog.Any("partitions", partitions))
	}
}

func (l *logger) lost(ctx context.Context, partitions map[string][]int32) {
	if len(partitions) > 0 {
		l.log.WarnContext(ctx, "inbox: partitions lost", slog.Any("partitions", partitions))
	}
}

func (l *logger) commitFailed(ctx context.Context, err error) {
	l.log.WarnContext(ctx, "inbox: offsets not committed, records will be delivered again", slog.Any("err", err))
}

// fetchErrors logs the errors that the client retries, and returns one that it does not.
func (l *logger) fetchErrors(ctx context.Context, fetches kgo.Fetches) (failure error) {
	fetches.EachError(func(topic string, partition int32, err error) {
		known, answered := errors.AsType[*kerr.Error](err)
		_, isSession := errors.AsType[*kgo.ErrGroupSession](err)
		switch {
		case ctx.Err() != nil, errors.Is(err, context.Canceled): // Run ends
		case errors.Is(err, kgo.ErrClientClosed), answered && !known.Retriable:
			failure = fmt.Errorf("inboxfranz: fetch %s[%d]: %w", topic, partition, err)
		case isSession && l.starts(groupSession{}):
			l.log.WarnContext(ctx, "inbox: consumer group unavailable, retrying", slog.Any("err", err))
		case !isSession && l.starts(place{topic, partition}):
			l.log.WarnContext(ctx, "inbox: fetch failed, retrying",
				slog.String("topic", topic), slog.Int("partition", int(partition)), slog.Any("err", err))
		}
	})
	return failure
}

// fetched logs that a partition has records again.
func (l *logger) fetched(ctx context.Context, at place) {
	if l.ends(at) {
		l.log.InfoContext(ctx, "inbox: fetch works again", slog.String("topic", at.topic), slog.Int("partition", int(at.partition)))
	}
}

// OnBrokerConnect implements [kgo.HookBrokerConnect].
func (l *logger) OnBrokerConnect(broker kgo.BrokerMetadata, _ time.Duration, _ net.Conn, err error) {
	addr := net.JoinHostPort(broker.Host, strconv.Itoa(int(broker.Port)))
	switch {
	case errors.Is(err, context.Canceled):
	case err != nil && l.starts(addr):
		l.log.Warn("inbox: broker unavailable, retrying", slog.String("broker", addr), slog.Any("err", err))
	case err == nil && l.ends(addr):
		l.log.Info("inbox: broker available again", slog.String("broker", addr))
	}
}

// starts reports whether what has not been failing until now.
func (l *logger) starts(what any) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	known := l.failing[what]
	if l.failing == nil {
		l.failing = make(map[any]bool)
	}
	l.failing[what] = true
	return !known
}

// ends reports whether what was failing until now.
func (l *logger) ends(what any) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	known := l.failing[what]
	delete(l.failing, what)
	return known
}

// topicInterval is how often watchTopics looks for a missing topic.
const topicInterval = 5 * time.Second

// watchTopics logs topics that do not exist, until all of them do or ctx is done. The client itself
// waits for them without a word.
func (l *logger) watchTopics(ctx context.Context, client *kgo.Client, topics []string) {
	if regex, _ := client.OptValue(kgo.ConsumeRegex).(bool); regex {
		return
	}
	ticker := time.NewTicker(topicInterval)
	defer ticker.Stop()
	for {
		missing, err := missingTopics(ctx, client, topics)
		if err == nil {
			l.logTopics(ctx, topics, missing)
			if len(missing) == 0 {
				return
			}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// What can fail, besides a broker's address and a place.
type (
	groupSession struct{}
	topicName    string
)

func (l *logger) logTopics(ctx context.Context, topics []string, missing map[string]bool) {
	for _, topic := range topics {
		switch {
		case missing[topic] && l.starts(topicName(topic)):
			l.log.WarnContext(ctx, "inbox: topic does not exist, waiting for it", slog.String("topic", topic))
		case !missing[topic] && l.ends(topicName(topic)):
			l.log.InfoContext(ctx, "inbox: topic exists now", slog.String("topic", topic))
		}
	}
}

func missingTopics(ctx context.Context, client *kgo.Client, topics []string) (map[string]bool, error) {
	request := kmsg.NewPtrMetadataRequest()
	request.AllowAutoTopicCreation = false
	for _, topic := range topics {
		request.Topics = append(request.Topics, kmsg.MetadataRequestTopic{Topic: new(topic)})
	}
	response, err := request.RequestWith(ctx, client)
	if err != nil {
		return nil, err
	}
	missing := make(map[string]bool)
	for _, t := range response.Topics {
		if t.Topic != nil && t.ErrorCode == kerr.UnknownTopicOrPartition.Code {
			missing[*t.Topic] = true
		}
	}
	return missing, nil
}
