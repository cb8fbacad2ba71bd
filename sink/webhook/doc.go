// Package webhook is the sink for HTTP receivers. It sends each record as one POST, in order per key, and resends it until
// the receiver responds.
//
// [Config] is its [sink.Broker]. A destination is a URL: a path below Config.URL, or a complete URL of one of Config.Origins.
// A record becomes a CloudEvent in binary mode: the value is the body, byte for byte, and the headers say what it is. With
// Config.Secrets, requests are signed as Standard Webhooks describes.
//
//	Send ──▶ lane of destination and key ──▶ server (at most Concurrency requests) ──▶ POST
//	                    ▲                                                               │
//	 done(seqs, err) ◀──┴──────────────────────── 2xx, rejected or retry ◀──────────────┘
//
// # Guarantees
//
//   - Order. A key of a destination has at most one request at a time, so its records are acknowledged in order. Records
//     without a key have no order.
//   - At least once. A response with status 2xx acknowledges a record. Until then it is resent: after a timeout, a receiver
//     may have processed the event, and may process it twice at the same time. Each attempt has the same id.
//   - No fencing. An HTTP receiver cannot tell an older relay from a newer one. Only the relay's own fence limits how many
//     events two relays send.
//   - Isolation. A key that waits delays no other one, and a server that hangs delays no other server, unless the window is
//     full. A destination that is missing waits as a whole.
//   - Safety. A row cannot choose a server that the configuration does not name, nor set a header that has a meaning of its own.
//   - Privacy. No key, payload, header value or secret appears in an error or a log line, and nothing that a server has sent
//     except the status code.
//
// What a status code means is in one table, in status.go.
package webhook
