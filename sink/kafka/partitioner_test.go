package kafka

import (
	"math/rand/v2"
	"testing"

	"github.com/IBM/sarama"
)

// TestPartitioners compares each partitioner with sarama's of the same kind.
func TestPartitioners(t *testing.T) {
	for _, tc := range []struct {
		name string
		want sarama.PartitionerConstructor
	}{
		{"murmur2", sarama.NewMurmur2Partitioner},
		{"fnv1a", sarama.NewHashPartitioner},
		{"crc32", sarama.NewConsistentCRCHashPartitioner},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ours, err := partitionerOf(tc.name)
			if err != nil {
				t.Fatal(err)
			}
			theirs := tc.want("topic")
			rng := rand.New(rand.NewPCG(1, 2))
			for range 5000 {
				key := make([]byte, rng.IntN(70))
				for i := range key {
					key[i] = byte(rng.Uint32())
				}
				n := 1 + rng.Int32N(200)
				want, err := theirs.Partition(&sarama.ProducerMessage{Key: sarama.ByteEncoder(key)}, n)
				if err != nil {
					t.Fatal(err)
				}
				if got := ours(key, n); got != want {
					t.Fatalf("key %x of %d partitions: %d, sarama says %d", key, n, got, want)
				}
			}
		})
	}
	if _, err := partitionerOf("random"); err == nil {
		t.Error("an unknown partitioner is accepted")
	}
}
