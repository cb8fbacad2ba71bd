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

// The classes of responses that are no errors of package sink.
var (
	errMoved    = errors.New("another node of the cluster has the slot")
	errRejected = errors.New("the server never accepts the record")
)

// A response is an error of a server: its first word, a text that it contains, its class, and what it means. The request is sent again
// after a back-off if the class is nil, over a new connection if it is errUnreachable, and after the slots of the cluster were read
// again if it is errMoved. The other classes are the errors that they are.
type response struct {
	code, contains string
	class          error
	detail         string
}

// deniedKey is what a refusal of a key means.
const deniedKey = "the user may not write the key: its ACL rules need a pattern for it, such as ~outbox.*"

// responses returns the table that decides what an error of a server means. The first row that matches counts. Any other
// error is retriable.
func responses() []response {
	return []response{
		{"OOM", "", nil, "the server has reached maxmemory and may not evict keys; free memory, trim streams or raise maxmemory"},
		{"MISCONF", "", nil, "the server cannot save its data to disk, and rejects writes until it can"},
		{"NOREPLICAS", "", nil, "fewer replicas are connected than min-replicas-to-write requires"},
		{"TRYAGAIN", "", nil, "the slot of the stream is being moved to another node"},
		{"NOCONFIRM", "", nil, "the records are stored, and the user may not run XSETID, which sink.redis_streams.wait needs"},
		{"WAIT", "", nil, "fewer replicas than sink.redis_streams.wait.replicas have the records in time; they are stored on the primary"},
		{"BUSY", "", nil, "the server runs another script"},
		{"READONLY", "", errUnreachable, "the server is a replica: a failover is in progress, or the address is that of a replica"},
		{"LOADING", "", errUnreachable, "the server loads its data"},
		{"MASTERDOWN", "", errUnreachable, "the server is a replica without its primary"},
		{"CLUSTERDOWN", "", errUnreachable, "the cluster does not serve the slot of the stream"},
		{"UNBLOCKED", "", errUnreachable, "the server has become a replica"},
		{"ERR", "max number of clients", errUnreachable, "the server has reached maxclients"},
		{"MOVED", "", errMoved, "another node of the cluster serves the stream"},
		{"ASK", "", errMoved, "the slot of the stream is being moved to another node"},
		{"CROSSSLOT", "", errFatal, "the server is in a cluster, and does not serve the request as one slot"},
		{"NOAUTH", "", errAccess, "the server requires a password"},
		{"WRONGPASS", "", errAccess, "user name or password are wrong, or the user is disabled"},
		{"ERR", "invalid password", errAccess, "the password is wrong"},
		{"ERR", "without any password configured", errAccess, "the server has a user default without a password, and a password was sent"},
		{"NOPERM", "one of the keys", errUnusable, deniedKey},
		{"NOPERM", "access a key", errUnusable, deniedKey},
		{"NOPERM", "", errAccess, "the user may not run a command that the relay needs"},
		{"ERR", "executing the script can't access", errUnusable, deniedKey},
		{"ERR", "executing the script can't run", errAccess, "the user may not run a command that the relay needs"},
		{"ERR", "ACL failure", errAccess, "the user may not run a command that the relay needs"},
		{"DENIED", "", errAccess, "the server is in protected mode: it accepts no connections from other hosts"},
		{"NOSTREAM", "", errMissing, "the stream does not exist, and sink.redis_streams.create_streams is false"},
		{"WRONGTYPE", "", errUnusable, "the key has another type"},
		{"ERR", "exhausted the last possible ID", errUnusable, "the stream has an entry with the highest possible id, so nothing can follow; rename it"},
		{"ERR", "too large to be stored", errRejected, "the record is larger than an entry can be"},
		{"ERR", "string exceeds maximum allowed size", errRejected, "the record is larger than proto-max-bulk-len of the server"},
		{"ERR", "invalid bulk length", errRejected, "the record is larger than proto-max-bulk-len of the server"},
		{"ERR", "unknown command", errFatal, "the server does not have a command that the relay needs: the oldest supported version is Redis 6.2"},
		{"ERR", "not allowed from script", errFatal, "the server does not allow a command in scripts that the relay needs"},
		{"ERR", "syntax error", errFatal, "the server does not know an option that the relay needs: the oldest supported version is Redis 6.2"},
		{"ERR", "DB index is out of range", errFatal, "sink.redis_streams.database does not exist"},
		{"ERR", "SELECT is not allowed", errFatal, "the server is in a cluster, which has only database 0"},
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
	if m := deniedCommand.FindStringSubmatch(text); m != nil && errors.Is(e.class, errAccess) {
		e.detail += ": " + m[1]
	}
	switch {
	case e.class == nil, errors.Is(e.class, errMoved):
		return e
	case errors.Is(e.class, errRejected):
		return &sink.RecordError{Code: e.code, TooLarge: true, Reason: e}
	}
	return fmt.Errorf("%w: %w", e.class, e)
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
