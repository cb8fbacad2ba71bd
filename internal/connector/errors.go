package connector

import (
	"errors"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/decoder"
	"github.com/outbox-cdc/outbox-cdc/internal/route"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// Exit codes of the process. Usage, SlotLost, NoDelivery, BadRecord, Continuity and Fenced
// need a person; a supervisor must not restart on them.
const (
	ExitOK         = 0
	ExitUnexpected = 1
	ExitUsage      = 2
	ExitSource     = 10 // the source refuses us: credentials, pg_hba.conf, wal_level, privileges
	ExitSlotLost   = 11 // the slot is missing or its WAL is gone
	ExitSlotInUse  = 12 // the slot is held by another, and waiting for it was not wanted
	ExitNoDelivery = 13 // publication or table do not deliver (any more)
	ExitBadRecord  = 14 // a row or record that cannot be delivered
	ExitContinuity = 15 // positions do not continue
	ExitSink       = 20 // the sink refuses us, or was not reached at the start
	ExitFenced     = 21 // another instance has taken over
)

// errDrainTimeout: records were still unanswered when the time for stopping was over.
// Requests on the wire may yet be appended, so no session may follow in this process.
var errDrainTimeout = errors.New("stopped before every record was acknowledged; what was not is sent again by the next start")

// errLeftBehind: everything was acknowledged, but that could not be kept.
var errLeftBehind = errors.New("stopped; the next start may repeat what was acknowledged at last")

// patience says how long an error is waited out.
type patience int

const (
	never   patience = iota // only a person can mend it
	briefly                 // may be a change in progress (a rotated password): StartupTimeout, and not at the first contact
	outage                  // heals by itself: for ever, but at the first contact StartupTimeout
	standby                 // another instance is at work: for ever
)

// A fault is one row of the table that says what an error means for the process. This is
// the only place that decides it.
type fault struct {
	is       func(error) bool
	exit     int
	patience patience
	advice   string
}

// faultOf returns the first row that err matches. The order matters: what a person must
// mend comes before what is waited for, since one error may wrap both.
func faultOf(err error) fault {
	for _, f := range faults() {
		if f.is(err) {
			return f
		}
	}
	return fault{exit: ExitUnexpected, patience: briefly}
}

func faults() []fault {
	return []fault{
		{is(errDrainTimeout), ExitOK, never, ""},
		{is(errLeftBehind), ExitOK, never, ""},

		{as[*route.RowError], ExitBadRecord, never, adviseRow},
		{as[*sink.RecordError], ExitBadRecord, never, adviseRow},
		{is(replication.ErrRow), ExitBadRecord, never, adviseRow},
		{as[*decoder.Error], ExitUnexpected, never, adviseDecoder},

		{as[*route.ColumnError], ExitNoDelivery, never, adviseColumns},
		{as[*ChangeError], ExitNoDelivery, never, adviseChange},
		{is(replication.ErrPublication), ExitNoDelivery, never, ""},
		{is(replication.ErrSlotMissing), ExitSlotLost, never, ""},
		{is(replication.ErrSlotLost), ExitSlotLost, never, ""},
		{is(replication.ErrConfig), ExitSource, never, ""},
		{as[*checkpoint.GapError], ExitContinuity, never, adviseGap},
		{is(errRecord), ExitContinuity, never, adviseRecord},

		{is(sink.ErrFenced), ExitFenced, never, ""},
		{is(sink.ErrAccess), ExitSink, never, ""},
		{is(sink.ErrTopicMissing), ExitSink, never, ""},
		{is(sink.ErrUnreachable), ExitSink, never, adviseBrokers},
		{is(sink.ErrFatal), ExitSink, never, ""},

		{is(replication.ErrSlotInUse), ExitSlotInUse, standby, ""},
		{is(replication.ErrAccess), ExitSource, briefly, ""},
		{is(replication.ErrBusy), ExitSource, outage, ""},
		{is(replication.ErrServerStopping), ExitSource, outage, ""},
		{is(replication.ErrUnreachable), ExitSource, outage, adviseServer},
	}
}

// What to do, where the error does not say it itself.
const (
	adviseRow = "Nothing behind it is confirmed; what came before it is delivered. Correct what the reason names and start again:\n" +
		"the transaction comes again whole. To have such rows put aside: on_bad_record: dead-letter. To give this one up, save it,\n" +
		"move the slot behind its transaction with pg_replication_slot_advance(), and start once with --accept-gap."
	adviseDecoder = "The server sent what this version cannot read. Nothing behind it is confirmed. Please report it, with the server's version."
	adviseColumns = "Name the table's columns in outbox.columns (outbox-cdc config shows what is in force), or add the column to the table\n" +
		"and, if the publication lists columns, to the publication."
	adviseChange = "Let the publication send inserts only: ALTER PUBLICATION … SET (publish = 'insert'). Changes that are in the log already\n" +
		"come once more; pg_replication_slot_advance() moves the slot behind their transaction, to be started once with --accept-gap."
	adviseGap = "What was committed between the two positions may never have been delivered. Find out who moved or made the slot, or which\n" +
		"server this is. To go on behind the gap: run once with --accept-gap; rows still in the table can be sent again later."
	adviseRecord = "Another program, or a later version of this one, has written to position_topic under this name. Correct name or\n" +
		"position_topic; with position_topic: \"\" nothing is kept."
	adviseBrokers = "Check sink.kafka.brokers, and that the addresses the brokers advertise can be reached from here."
	adviseServer  = "Check source.dsn, and that the server listens there."
)

func is(target error) func(error) bool {
	return func(err error) bool { return errors.Is(err, target) }
}

func as[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// ExitCode returns the exit code for the error Run returned.
func ExitCode(err error) int {
	if err == nil {
		return ExitOK
	}
	return faultOf(err).exit
}

// Advice says what to do about the error Run returned; empty where the error itself says
// it.
func Advice(err error) string {
	if err == nil {
		return ""
	}
	return faultOf(err).advice
}
