// Package redisstreams is the sink for Redis Streams. A destination is the key of a stream, and a record is an entry.
//
// [Config] is its [sink.Broker], for one server, a primary that Sentinel watches, or a cluster. The Writer is that of
// package lane, with a stream as one lane: at most one request per stream is unacknowledged. A request is one call of the
// script append.lua, which appends up to 500 records atomically and in order. The requests of several streams share a
// pipeline.
//
// # Guarantees
//
//   - Order. The entries of a stream have the order of Send. The script stops at the first error, so no record overtakes
//     another one.
//   - Duplicates. The id of an entry is derived from the position of its row (see appendID). The server so recognizes a
//     row that is sent again, after a lost connection or by another process, and drops it. A record without a position is
//     recognized only in the session that has sent it before, by its fields. The script appends a record if it is not sure.
//   - Acknowledgement. A record is acknowledged when the primary has executed the script and, with Config.Wait, when that
//     many replicas have received it. Redis decides by its settings appendonly and appendfsync when it is on disk, and
//     replicates asynchronously: without Wait, a failover loses acknowledged records that the new primary does not have,
//     and also with Wait if the new primary is a replica that was not among those.
//   - No order of writers. Redis does not reject records of an older relay.
//   - Privacy. No key, value or header value appears in a log line or an error.
package redisstreams
