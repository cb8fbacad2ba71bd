// Package jetstream writes records to the streams of NATS JetStream. [Config] implements [sink.Broker].
//
// A destination is a subject. The stream that has the subject stores the record. Records of one key of a subject are in
// order, because at most one of them is outstanding; records of different keys are written concurrently.
//
// # A record as a message
//
//   - The value is the payload, byte for byte. If it is null, the payload is empty and the message has the header
//     [NullHeader].
//   - The key is the header [KeyHeader], and the timestamp the header [sink.TimestampHeader].
//   - The headers are headers. NATS headers are lines of text. A value that is none has the suffix [Base64Suffix] on
//     its name, and a null value the suffix [NullSuffix]. A name that NATS does not allow, or that begins with Nats-, is
//     written in hexadecimal behind [NamePrefix]. Headers with the same name keep their order.
//   - If the row was streamed and the header id is a UUID, it is also the header Nats-Msg-Id. JetStream then
//     drops a message that it has already stored within the duplicates window of the stream.
//
// A record that is not a streamed row has no Nats-Msg-Id, because the operator wants it stored again: of a replay, a refill,
// an initial copy, or a dead letter that is resent.
package jetstream
