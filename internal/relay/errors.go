package relay

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/decoder"
	"github.com/outbox-cdc/outbox-cdc/internal/advisory"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// Exit codes of the process. Usage, SlotLost, NoDelivery, BadRecord, Continuity and Fenced
// need a person; a supervisor must not restart on them.
const (
	ExitOK         = 0
	ExitUnexpected = 1
	ExitUsage      = 2
	ExitSource     = 10 // the source rejects us: credentials, pg_hba.conf, wal_level, privileges
	ExitSlotLost   = 11 // the slot is missing or its WAL is gone
	ExitSlotInUse  = 12 // another process streams from the slot, and FailIfSlotInUse is set
	ExitNoDelivery = 13 // publication or table do not deliver (any more)
	ExitBadRecord  = 14 // a row or record that cannot be delivered
	ExitContinuity = 15 // positions do not continue
	ExitSink       = 20 // the sink rejects us, or was not reached at the start
	ExitFenced     = 21 // a newer writer has fenced this one
)

// errDrainTimeout: records were unacknowledged when drain_timeout was over. The broker may still
// append requests on the wire, so no session may follow in this process.
var errDrainTimeout = errors.New("stopped before every record was acknowledged; the next start resends the others")

// errPositionUnsaved: everything was acknowledged, but the last position could not be saved.
var errPositionUnsaved = errors.New("stopped; the next start may resend records that were acknowledged last")

// errPositionRecord: a later version has written to the position topic.
var errPositionRecord = errors.New("the position record cannot be read")

// patience says how long the relay retries after an error.
type patience int

const (
	never   patience = iota // only a person can fix it
	briefly                 // may be a change in progress (a rotated password): StartupTimeout, but not at the first contact
	outage                  // heals by itself: for ever, but at the first contact StartupTimeout
	standby                 // another instance has the slot: for ever
)

// A fault is one row of the table that says what an error means for the process. Nothing else
// decides it.
type fault struct {
	is       func(error) bool
	exit     int
	patience patience
	advice   string
}

// faultOf returns the first row that err matches.
func faultOf(err error) fault {
	for _, f := range faults {
		if f.is(err) {
			return f
		}
	}
	return fault{exit: ExitUnexpected, patience: briefly}
}

// faults is sorted: an error that only a person can fix comes before one that the relay retries,
// since one error may wrap both.
//
//nolint:gochecknoglobals // a table
var faults = []fault{
	{is(errDrainTimeout), ExitOK, never, ""},
	{is(errPositionUnsaved), ExitOK, never, ""},

	{as[*encode.RowError], ExitBadRecord, never, adviseRow},
	{as[*sink.RecordError], ExitBadRecord, never, adviseRow},
	{is(replication.ErrRow), ExitBadRecord, never, adviseUnread},
	{as[*decoder.Error], ExitUnexpected, never, adviseDecoder},

	{as[*encode.ColumnError], ExitNoDelivery, never, adviseColumns},
	{isUpdate, ExitNoDelivery, never, adviseUpdate},
	{as[*changeError], ExitNoDelivery, never, adviseChange},
	{is(replication.ErrPublication), ExitNoDelivery, never, ""},
	{is(replication.ErrSlotMissing), ExitSlotLost, never, ""},
	{is(replication.ErrSlotLost), ExitSlotLost, never, ""},
	{is(replication.ErrConfig), ExitSource, never, ""},
	{as[*checkpoint.GapError], ExitContinuity, never, adviseGap},
	{is(errPositionRecord), ExitContinuity, never, adviseRecord},
	{is(errCopyUnfinished), ExitContinuity, never, adviseCopy},
	{as[*checkpoint.RereadError], ExitContinuity, never, adviseGap},
	{is(errSkip), ExitUsage, never, ""},

	{is(errForeignClaim), ExitSlotInUse, standby, ""},
	{is(sink.ErrSuperseded), ExitSlotInUse, standby, ""},
	{is(errSlotTaken), ExitSlotInUse, standby, ""},
	{is(errOtherServer), ExitSource, outage, ""},
	{is(errStoodStill), ExitSource, outage, ""},
	{is(errLostSender), ExitSource, outage, ""},
	{as[*checkpoint.PrefixError], ExitContinuity, outage, ""},
	{is(errNoStore), ExitSink, outage, ""},
	{is(sink.ErrIdentityUsed), ExitSink, outage, ""},

	{is(sink.ErrFenced), ExitFenced, never, ""},
	{is(sink.ErrAccess), ExitSink, briefly, ""},
	{is(sink.ErrMissing), ExitSink, never, ""},
	{is(sink.ErrUnreachable), ExitSink, never, ""},
	{is(sink.ErrFatal), ExitSink, never, ""},

	{is(replication.ErrWALRemoved), ExitSlotLost, briefly, ""},
	{is(replication.ErrSlotInUse), ExitSlotInUse, standby, ""},
	{is(replication.ErrAccess), ExitSource, briefly, ""},
	{as[*advisory.HeldError], ExitUnexpected, outage, adviseHeld},
	{is(replication.ErrBusy), ExitSource, outage, ""},
	{is(replication.ErrServerStopping), ExitSource, outage, ""},
	{is(replication.ErrUnreachable), ExitSource, outage, adviseServer},
}

// Advice for errors that do not say themselves how to fix them. The caller that prints it replaces
// <slot> and <publication>.
const (
	adviseRow = "Nothing after it is confirmed; everything before it is delivered. Correct the cause and start the relay again: Postgres\n" +
		"resends the transaction. To send such rows to the dead-letter topic: --set on_bad_record=dead-letter." + adviseGiveUp
	adviseUnread = "Nothing after it is confirmed; everything before it is delivered. Such a row fits into no record. The relay cannot send it\n" +
		"to the dead-letter topic either, whatever on_bad_record is." + adviseGiveUp

	// adviseGiveUp ends an advice if the transaction is known, and has its position as argument.
	adviseGiveUp = "\nTo skip the whole transaction: SELECT pg_replication_slot_advance('<slot>', '%s'::pg_lsn + 1),\n" +
		"and start once with --accept-gap."
	adviseUndelivered = "Do not skip anything yet: what is not delivered would be lost. Nothing after it is confirmed. Correct the cause, or what\n" +
		"keeps Kafka from accepting the transaction before it, and start the relay again."
	adviseDecoder = "The server sent a message that this version cannot read. Nothing after it is confirmed. Please report it, with the server's version."
	adviseColumns = "Name the table's columns in outbox.columns (outbox-cdc config shows the current values), or add the column to the table\n" +
		"and, if the publication lists columns, to the publication."
	adviseUpdate = "Let the publication send inserts only: ALTER PUBLICATION <publication> SET (publish = 'insert'). Postgres still sends what\n" +
		"is already in the WAL; to ignore those changes: --set outbox.on_update=warn." + adviseGiveUp
	adviseChange = "Start the relay again with the publication unchanged: it then ignores what the publication sends. When the slot has caught up:\n" +
		"ALTER PUBLICATION <publication> SET (publish = 'insert')."
	adviseGap = "What was committed between the two positions may never have been delivered. Find out who advanced or re-created the\n" +
		"slot, or which server this is. To continue after the gap: run once with --accept-gap; rows still in the table can be resent later."
	adviseRecord = "A later version of this program has written to position_topic under this name. Start that version again, or give this\n" +
		"relay a name or position_topic of its own."
	adviseCopy = "Set source.initial_copy: true again to start the copy over, or run once with --accept-gap to continue without it: the relay\n" +
		"then does not send the rows from before the slot."
	adviseServer = "Check source.dsn, and that the server listens there."
	adviseHeld   = "If these sessions are setup, migrate or prune at work, wait until they are done and try again. Any role of the database can take\n" +
		"the lock; end a session that should not have it: SELECT pg_terminate_backend(<process>)."
)

func is(target error) func(error) bool {
	return func(err error) bool { return errors.Is(err, target) }
}

func as[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

func isUpdate(err error) bool {
	change, ok := errors.AsType[*changeError](err)
	return ok && change.kind == "UPDATE"
}

// mayGiveUp reports whether the advice about err is to skip its transaction.
func mayGiveUp(err error) bool { return strings.HasSuffix(faultOf(err).advice, adviseGiveUp) }

// An undeliveredError is an error about a transaction before which another one is not delivered yet.
type undeliveredError struct {
	error

	oldest pglogrepl.LSN // of the commit record of the oldest transaction that is not delivered
}

// Error names the transaction.
func (e *undeliveredError) Error() string {
	return fmt.Sprintf("%v; the transaction %s before it is not delivered yet", e.error, e.oldest)
}

// Unwrap returns the error without what precedes it.
func (e *undeliveredError) Unwrap() error { return e.error }

// ExitCode returns the exit code for the error Run returned.
func ExitCode(err error) int {
	if err == nil {
		return ExitOK
	}
	return faultOf(err).exit
}

// Advice returns what to do about the error that Run returned, empty if the error says it itself.
// <slot> and <publication> stand for the names of these. Advice about a broker comes with its errors:
// see [sink.Advised].
func Advice(err error) string {
	if err == nil {
		return ""
	}
	if as[*undeliveredError](err) {
		return adviseUndelivered
	}
	advice := faultOf(err).advice
	if advised, ok := errors.AsType[sink.Advised](err); ok && advice == "" {
		advice = advised.Advice()
	}
	advice, givesUp := strings.CutSuffix(advice, adviseGiveUp)
	if lsn := transactionOf(err); givesUp && lsn != 0 {
		advice += fmt.Sprintf(adviseGiveUp, lsn)
	}
	return advice
}

// transactionOf returns the commit position of the transaction that err is about, 0 if err names no
// transaction that could be skipped.
func transactionOf(err error) pglogrepl.LSN {
	if row, ok := errors.AsType[*deliveryError](err); ok {
		return row.commitLSN
	}
	if row, ok := errors.AsType[*replication.RowError](err); ok {
		return row.CommitLSN
	}
	if change, ok := errors.AsType[*changeError](err); ok {
		return change.commitLSN
	}
	return 0
}

// A deliveryError is an outbox row that cannot be delivered.
type deliveryError struct {
	commitLSN pglogrepl.LSN // of its transaction
	row       int           // its index in the transaction
	id        string        // of the event, if Err does not contain it
	err       error         // an *encode.RowError, *encode.ColumnError, *sink.RecordError or what ended the writer
}

// Error says which row it is and why.
func (e *deliveryError) Error() string {
	id := ""
	if e.id != "" {
		id = ", id " + e.id
	}
	return fmt.Sprintf("transaction %s, row %d%s: %v", e.commitLSN, e.row, id, e.err)
}

// Unwrap returns why.
func (e *deliveryError) Unwrap() error { return e.err }
