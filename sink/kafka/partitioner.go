package kafka

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// A partitioner maps a non-null key to one of n partitions.
type partitioner func(key []byte, n int32) int32

// partitionerOf returns the partitioner called name. Each is compatible with another client, so that a key stays
// in the partition to which that client has written it.
func partitionerOf(name string) (partitioner, error) {
	switch name {
	case "murmur2":
		return byMurmur2, nil
	case "fnv1a":
		return byFNV1a, nil
	case "crc32":
		return byCRC32, nil
	}
	return nil, fmt.Errorf("sink: Partitioner %q is not one of murmur2, fnv1a, crc32", name)
}

// byMurmur2 is the default partitioner of the Java client, and so of Kafka Connect.
func byMurmur2(key []byte, n int32) int32 {
	return int32(murmur2(key)&0x7fffffff) % n
}

// byFNV1a is sarama's NewHashPartitioner: the absolute value of the signed remainder of FNV-1a.
func byFNV1a(key []byte, n int32) int32 {
	h := uint32(2166136261)
	for _, b := range key {
		h = (h ^ uint32(b)) * 16777619
	}
	p := int32(h) % n
	if p < 0 {
		return -p
	}
	return p
}

// byCRC32 is librdkafka's consistent partitioner.
func byCRC32(key []byte, n int32) int32 {
	return int32(crc32.ChecksumIEEE(key) % uint32(n))
}

// murmur2 is Austin Appleby's MurmurHash2, 32 bit, with the seed and the byte order of the Java client
// (org.apache.kafka.common.utils.Utils.murmur2).
func murmur2(key []byte) uint32 {
	const (
		seed = 0x9747b28c
		m    = 0x5bd1e995
		r    = 24
	)
	h := uint32(seed) ^ uint32(len(key))
	for len(key) >= 4 {
		k := binary.LittleEndian.Uint32(key) * m
		k ^= k >> r
		h = h*m ^ k*m
		key = key[4:]
	}
	switch len(key) {
	case 3:
		h ^= uint32(key[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(key[1]) << 8
		fallthrough
	case 1:
		h = (h ^ uint32(key[0])) * m
	}
	h = (h ^ h>>13) * m
	return h ^ h>>15
}
