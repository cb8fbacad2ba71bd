package redisstreams

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/lane"
)

// The error classes of package sink with texts for Redis.
var (
	errAccess      = sink.NewError(sink.ErrAccess, "no access to Redis", accessAdvice)
	errMissing     = sink.NewError(sink.ErrMissing, "stream does not exist", "Set sink.redis_streams.create_streams, or create it: XGROUP CREATE <stream> <group> 0 MKSTREAM")
	errUnusable    = sink.NewError(sink.ErrMissing, "key cannot be written", "")
	errFatal       = sink.NewError(sink.ErrFatal, "cannot continue writing to Redis", "")
	errUnreachable = sink.NewError(lane.ErrConnection, "Redis cannot be reached", "")
)

const reachAdvice = "Start the server, or correct sink.redis_streams.addresses, as the reason says."

const accessAdvice = "Check sink.redis_streams.user, its password and sink.redis_streams.tls. docs/redis-streams.md has the ACL rules that the relay needs."

// A class says what the response to a request means.
type class uint8

const (
	retriable   class = iota // back off, resend the request
	unavailable              // as retriable over a new connection; all streams wait
	moved                    // as retriable after the cluster's slots were read again
	denied                   // as retriable, and the operator has to grant a privilege or fix a password
	missing                  // the stream does not exist; somebody has to create it
	unusable                 // the stream cannot be written; somebody has to fix it
	rejected                 // the server never accepts the record
	fatal                    // nothing can be written
)

// A response is an error of a server: its first word, a text that it contains, its class, and what it means.
type response struct {
	code, contains string
	class          class
	detail         string
}

// deniedKey is what a refusal of a key means.
const deniedKey = "the user may not write the key: its ACL rules need a pattern for it, such as ~outbox.*"

// responses returns the table that decides what an error of a server means. The first row that matches counts. Any other
// error is retriable.
func responses() []response {
	return []response{
		{"OOM", "", retriable, "the server has reached maxmemory and may not evict keys; free memory, trim streams or raise maxmemory"},
		{"MISCONF", "", retriable, "the server cannot save its data to disk, and rejects writes until it can"},
		{"NOREPLICAS", "", retriable, "fewer replicas are connected than min-replicas-to-write requires"},
		{"TRYAGAIN", "", retriable, "the slot of the stream is being moved to another node"},
		{"NOCONFIRM", "", retriable, "the records are stored, and the user may not run XSETID, which sink.redis_streams.wait needs"},
		{"WAIT", "", retriable, "fewer replicas than sink.redis_streams.wait.replicas have the records in time; they are stored on the primary"},
		{"BUSY", "", retriable, "the server runs another script"},
		{"READONLY", "", unavailable, "the server is a replica: a failover is in progress, or the address is that of a replica"},
		{"LOADING", "", unavailable, "the server loads its data"},
		{"MASTERDOWN", "", unavailable, "the server is a replica without its primary"},
		{"CLUSTERDOWN", "", unavailable, "the cluster does not serve the slot of the stream"},
		{"UNBLOCKED", "", unavailable, "the server has become a replica"},
		{"ERR", "max number of clients", unavailable, "the server has reached maxclients"},
		{"MOVED", "", moved, "another node of the cluster serves the stream"},
		{"ASK", "", moved, "the slot of the stream is being moved to another node"},
		{"CROSSSLOT", "", fatal, "the server is in a cluster, and does not serve the request as one slot"},
		{"NOAUTH", "", denied, "the server requires a password"},
		{"WRONGPASS", "", denied, "user name or password are wrong, or the user is disabled"},
		{"ERR", "invalid password", denied, "the password is wrong"},
		{"ERR", "without any password configured", denied, "the server has a user default without a password, and a password was sent"},
		{"NOPERM", "one of the keys", unusable, deniedKey},
		{"NOPERM", "access a key", unusable, deniedKey},
		{"NOPERM", "", denied, "the user may not run a command that the relay needs"},
		{"ERR", "executing the script can't access", unusable, deniedKey},
		{"ERR", "executing the script can't run", denied, "the user may not run a command that the relay needs"},
		{"ERR", "ACL failure", denied, "the user may not run a command that the relay needs"},
		{"DENIED", "", denied, "the server is in protected mode: it accepts no connections from other hosts"},
		{"NOSTREAM", "", missing, "the stream does not exist, and sink.redis_streams.create_streams is false"},
		{"WRONGTYPE", "", unusable, "the key has another type"},
		{"ERR", "exhausted the last possible ID", unusable, "the stream has an entry with the highest possible id, so nothing can follow; rename it"},
		{"ERR", "too large to be stored", rejected, "the record is larger than an entry can be"},
		{"ERR", "string exceeds maximum allowed size", rejected, "the record is larger than proto-max-bulk-len of the server"},
		{"ERR", "invalid bulk length", rejected, "the record is larger than proto-max-bulk-len of the server"},
		{"ERR", "unknown command", fatal, "the server does not have a command that the relay needs: the oldest supported version is Redis 6.2"},
		{"ERR", "not allowed from script", fatal, "the server does not allow a command in scripts that the relay needs"},
		{"ERR", "syntax error", fatal, "the server does not know an option that the relay needs: the oldest supported version is Redis 6.2"},
		{"ERR", "DB index is out of range", fatal, "sink.redis_streams.database does not exist"},
		{"ERR", "SELECT is not allowed", fatal, "the server is in a cluster, which has only database 0"},
	}
}

// deniedCommand matches the command in the text of an error about the rights of the user.
var deniedCommand = regexp.MustCompile(`run the '([a-z|]+)' command`)

// explain returns the row of the table for the text of an error.
func explain(text string) response {
	text = strings.TrimPrefix(text, "-")
	code, _, _ := strings.Cut(text, " ")
	for _, r := range responses() {
		if r.code == code && strings.Contains(text, r.contains) {
			return r
		}
	}
	// The texts of other errors of Redis have no keys or values, except those that repeat arguments.
	text, _, _ = strings.Cut(text, ", with args")
	return response{code: code, detail: text}
}

// A codeError is the error of a server. It contains no part of a record.
type codeError struct{ response }

// Error returns the code and what it means.
func (e *codeError) Error() string {
	if strings.HasPrefix(e.detail, e.code) {
		return e.detail
	}
	return e.code + ": " + e.detail
}

// serverError returns the text of an error of a server as the error that the class requires.
func serverError(text string) error {
	e := &codeError{explain(text)}
	if m := deniedCommand.FindStringSubmatch(text); m != nil && e.class == denied {
		e.detail += ": " + m[1]
	}
	switch e.class {
	case unavailable:
		return fmt.Errorf("%w: %w", errUnreachable, e)
	case denied:
		return fmt.Errorf("%w: %w", errAccess, e)
	case missing:
		return fmt.Errorf("%w: %w", errMissing, e)
	case unusable:
		return fmt.Errorf("%w: %w", errUnusable, e)
	case rejected:
		return &sink.RecordError{Code: e.code, TooLarge: true, Reason: e}
	case fatal:
		return fmt.Errorf("%w: %w", errFatal, e)
	case retriable, moved:
	}
	return e
}

// errorOf returns the error of a command as the error that its class requires.
func errorOf(err error) error {
	if errors.Is(err, sink.ErrAccess) {
		return err
	}
	if reply, ok := errors.AsType[redis.Error](err); ok {
		return serverError(reply.Error())
	}
	if reason := sink.TLSReason(err, "server"); reason != "" {
		return fmt.Errorf("%w: %s: %w", errAccess, reason, err)
	}
	return fmt.Errorf("%w: %w", errUnreachable, err)
}

// isReply reports whether err is the response of a server. Otherwise the connection has failed.
func isReply(err error) bool {
	_, ok := errors.AsType[redis.Error](err)
	return ok
}

// causeOf returns the cause of ctx if it has ended, and otherwise err.
func causeOf(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}
