package kafka

import (
	"context"
	"log/slog"
	"time"

	"github.com/IBM/sarama"
)

// ensureCompacted creates the topic with cleanup.policy=compact if it does not exist. It returns nil when the
// topic has a leader.
func (c *cluster) ensureCompacted(ctx context.Context, topic string, log *slog.Logger) error {
	if err := c.refresh(ctx, []string{topic}); err != nil {
		return err
	}
	info := c.topic(topic)
	if info.err == sarama.ErrUnknownTopicOrPartition {
		if err := c.createCompacted(ctx, topic); err != nil {
			return err
		}
		log.InfoContext(ctx, "topic created", slog.String("topic", topic), slog.String("cleanup_policy", compact))
		return c.awaitLeader(ctx, topic)
	}
	if err := info.leaderError(0); err != nil {
		return err
	}
	return c.checkCompacted(ctx, topic, log)
}

// awaitLeader waits for the leader of a topic that was just created.
func (c *cluster) awaitLeader(ctx context.Context, topic string) error {
	for attempt := range 8 {
		if !sleepUntil(ctx, time.Now().Add(time.Millisecond<<attempt)) {
			return context.Cause(ctx)
		}
		if err := c.refresh(ctx, []string{topic}); err != nil {
			return err
		}
		if info := c.topic(topic); info.leaderError(0) == nil {
			return nil
		}
	}
	return errorOf(sarama.ErrLeaderNotAvailable)
}

const (
	cleanupPolicy = "cleanup.policy"
	compact       = "compact"
)

// createCompacted creates topic with settings that keep it small. Compaction ignores the active segment, which
// by default lasts a week.
func (c *cluster) createCompacted(ctx context.Context, topic string) error {
	policy, segment, dirty := compact, "3600000", "0.1"
	failed, err := c.createTopics(ctx, map[string]*sarama.TopicDetail{topic: {
		NumPartitions: 1, ReplicationFactor: -1,
		ConfigEntries: map[string]*string{cleanupPolicy: &policy, "segment.ms": &segment, "min.cleanable.dirty.ratio": &dirty},
	}})
	if err != nil {
		return err
	}
	return failed[topic]
}

// checkCompacted logs a warning if values of the topic may expire.
func (c *cluster) checkCompacted(ctx context.Context, topic string, log *slog.Logger) error {
	return c.control.do(ctx, func(l *link) error {
		values, err := describeTopics(l, cleanupPolicy, topic)
		if policy, told := values[topic]; told && policy != compact {
			log.WarnContext(ctx, "cleanup.policy of the topic is not compact, its records may expire",
				slog.String("topic", topic), slog.String("cleanup_policy", policy))
		}
		return err
	})
}
