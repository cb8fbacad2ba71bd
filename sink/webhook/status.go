package webhook

import (
	"fmt"
	"net/http"
	"slices"
)

// A class says what a response means for the record.
type class uint8

const (
	accepted  class = iota // stored
	retriable              // back off and resend, for ever
	missing                // no receiver takes the record: somebody has to change something
	denied                 // as missing, and it is about the credentials of the relay
	rejected               // the receiver rejects this record for good
)

// A meaning is a status code, or all others of its hundred, and what they mean.
type meaning struct {
	code   int // 0: the others from first to first+99
	first  int
	class  class
	detail string
}

// statusTable is the only place that decides what a status code means.
// https://www.iana.org/assignments/http-status-codes
func statusTable() []meaning {
	return []meaning{
		{first: 200, class: accepted, detail: "accepted"},

		{first: 300, class: missing, detail: "the receiver redirects, and the relay does not follow: use the new URL as the destination"},

		{code: 401, class: denied, detail: "the receiver does not accept the credentials or the signature"},
		{code: 402, class: denied, detail: "the receiver asks for a payment"},
		{code: 403, class: denied, detail: "the receiver denies access"},
		{code: 404, class: missing, detail: "there is no receiver at this URL"},
		{code: 405, class: missing, detail: "the URL does not accept POST"},
		{code: 407, class: denied, detail: "the proxy does not accept the credentials"},
		{code: 410, class: missing, detail: "the receiver has been removed"},
		{code: 426, class: missing, detail: "the receiver asks for another protocol"},
		{code: 511, class: denied, detail: "the network asks for a login"},

		{code: 408, class: retriable, detail: "the receiver did not get the request in time"},
		// The draft of Idempotency-Key: an earlier request with the same key is in progress.
		{code: 409, class: retriable, detail: "the receiver is still processing an earlier request with this event"},
		{code: 421, class: retriable, detail: "the connection leads to another server"},
		{code: 425, class: retriable, detail: "the receiver wants the request again, after the TLS handshake"},
		{code: 429, class: retriable, detail: "the receiver limits the rate"},
		{first: 500, class: retriable, detail: "the receiver failed"},
		{code: 503, class: retriable, detail: "the receiver is not available"},

		{code: 413, class: rejected, detail: "the payload is too large"},
		{code: 431, class: rejected, detail: "the headers are too large"},
		{first: 400, class: rejected, detail: "the receiver rejects the event"},
	}
}

// lookup returns what a status code means. A code that is no final response is not known to have stored anything.
func lookup(code int) meaning {
	table := statusTable()
	if i := slices.IndexFunc(table, func(m meaning) bool { return m.first == 0 && m.code == code }); i >= 0 {
		return table[i]
	}
	if i := slices.IndexFunc(table, func(m meaning) bool { return m.first > 0 && code/100 == m.first/100 }); i >= 0 {
		return table[i]
	}
	return meaning{class: missing, detail: "the response is not one to an HTTP request"}
}

// statusText returns a status code with its name in the standard. The text that a server sends with it is not shown.
func statusText(code int) string {
	if name := http.StatusText(code); name != "" {
		return fmt.Sprintf("HTTP %d %s", code, name)
	}
	return fmt.Sprintf("HTTP %d", code)
}

// isTooLarge reports whether a smaller record may be accepted.
func isTooLarge(code int) bool {
	return code == http.StatusRequestEntityTooLarge || code == http.StatusRequestHeaderFieldsTooLarge
}
