package kafka

import "github.com/outbox-cdc/outbox-cdc/sink"

// Conditions implements [sink.Inspector].
func (Config) Conditions() []sink.Condition {
	return []sink.Condition{
		{Name: "broker", Object: "broker", Met: "Each of `sink.kafka.brokers` responds after TLS and login."},
		{Name: "cluster", Met: "The cluster lists its brokers."},
		{Name: "advertised", Object: "address", Met: "Each broker of the cluster responds at the address that it advertises."},
		{Name: "idempotent write", Met: "The user may write with a producer id. The check requests one, as each start does."},
		{Name: "transactional id", Met: "The user has Write and Describe on the transactional id `<position_topic>/<name>`. Otherwise about a second of records is duplicated after a crash. The check does not disturb a running relay."},
		{Name: "topic", Object: "topic", Met: "The topic exists or can be created. The check asks the cluster to validate the creation only.", Short: true},
		{Name: "leaders", Object: "topic", Met: "Every partition has a leader.", Short: true},
		{Name: "rights", Object: "topic", Met: "The user has Describe and Write on the topic, and Read on `position_topic`; with `on_bad_record: park`, also Read on `dead_letter_topic`.", Short: true},
		{Name: "read back", Object: "topic", Met: "The user has Read on the topic, so that a relay that takes over does not send again what is stored there."},
		{Name: "settings", Object: "topic", Met: "The user may read the topic's configuration."},
		{Name: "min.insync.replicas", Object: "topic", Met: "The topic has at least this many replicas (with fewer, Kafka 4 waits for all of them, and older versions acknowledge nothing), and this many are in sync.", Short: true},
		{Name: "durability", Object: "topic", Met: "An acknowledged record survives the loss of a broker, and the topic stays writable without one."},
		{Name: "cleanup.policy", Object: "topic", Met: "The topic keeps every event and accepts records without a key. `position_topic` is compacted.", Short: true},
		{Name: "retention", Object: "topic", Met: "With `on_bad_record: park`: records in `dead_letter_topic` do not expire.", Short: true},
		{Name: "max.message.bytes", Object: "topic", Met: "The topic accepts a record as large as the largest of the last rows.", Short: true},
		{Name: "message.timestamp.before.max.ms", Object: "topic", Met: "The topic accepts commit times of an outage of a day."},
		{Name: "batches", Met: "`sink.kafka.window.bytes` has at least 4 KiB for each partition of the topics of the last rows. Otherwise a backlog leaves in small batches, and Kafka stores fewer records per second."},
		{Name: "other relays", Object: "topic", Met: "`position_topic` contains positions of this relay only. A user with write access to it can affect every relay that uses it."},
		{Name: "older writer", Met: "With `--probe`: the broker rejects records of an older relay after a newer one has written."},
		{Name: "probe topic", Met: "With `--probe`: the user may create and delete the topic of the test."},
	}
}
