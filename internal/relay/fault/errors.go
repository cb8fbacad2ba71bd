package fault

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/checkpoint"
	"github.com/outbox-cdc/outbox-cdc/decoder"
	"github.com/outbox-cdc/outbox-cdc/internal/advisory"
	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/encode"
	"github.com/outbox-cdc/outbox-cdc/internal/exit"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/position"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/pump"
	"github.com/outbox-cdc/outbox-cdc/internal/relay/refill"
	"github.com/outbox-cdc/outbox-cdc/internal/rows"
	"github.com/outbox-cdc/outbox-cdc/replication"
	"github.com/outbox-cdc/outbox-cdc/sink"
)

// The relay's own errors.
var (
	// ErrDrainTimeout: records were unacknowledged at the end of drain_timeout. The broker may still store
	// requests on the wire, so no session may follow in this process.
	ErrDrainTimeout = errors.New("stopped before every record was acknowledged; the next start resends the others")

	// ErrPositionUnsaved: every record was acknowledged, but the last position could not be saved.
	ErrPositionUnsaved = errors.New("stopped, but could not save the last position; the next start may resend records")

	// ErrCopyAccepted: the server is a copy from before the position record, and the operator has accepted that. The next ownership
	// starts at the slot's own position.
	ErrCopyAccepted = errors.New("the server is an older copy, which was accepted")

	// ErrSlotTaken: the WAL sender that holds the slot is not that of the session.
	ErrSlotTaken = errors.New("another connection has the slot")

	// ErrOtherServer: a host name or a proxy in front of several servers led to another one.
	ErrOtherServer = errors.New("a new connection reached another server than the stream")

	// ErrSuspended: the process or the machine was suspended. Another relay may have had the slot.
	ErrSuspended = errors.New("the process was suspended")

	// ErrLostSender: the server had not detected that the connection of the last session was lost.
	ErrLostSender = errors.New("the WAL sender of the lost connection still held the slot; the relay terminated it")

	// ErrSenderKept: the slot is in use, perhaps by the relay's own lost connection.
	ErrSenderKept = errors.New("it may be the WAL sender of the lost connection, which the relay could not terminate")

	// ErrOlderRow is the reason for an [*encode.ColumnError] that outbox.columns cannot change.
	ErrOlderRow = errors.New("the table has the column now, but the row was written before, or while a column list left it out")
)

// Patience says how long the relay retries after an error.
type Patience int

// How long the relay retries.
const (
	Never   Patience = iota // no retry: only a person can fix it
	Briefly                 // for StartupTimeout, because a change may be in progress (a rotated password); no retry at the first contact
	Outage                  // for ever, because it is transient; at the first contact for StartupTimeout
	Later                   // for ever, but no retry at the first contact
	Standby                 // for ever: another relay has the slot, or prepares a refill
)

// PatienceFor returns how long the relay retries after err.
func PatienceFor(err error) Patience { return faultOf(err).patience }

// A fault is one row of the table that says what an error means for the process. Nothing else
// decides it.
type fault struct {
	is       func(error) bool
	exit     int
	patience Patience
	advice   string
	next     string // see [Next]
}

// faultOf returns the first row of the table that err matches.
func faultOf(err error) fault {
	for _, f := range faults {
		if f.is(err) {
			return f
		}
	}
	return fault{exit: exit.Unexpected, patience: Briefly}
}

// faults is the table of errors. Errors that only a person can fix come before those that the relay
// retries, because an error may wrap both.
//
//nolint:gochecknoglobals // a table
var faults = []fault{
	{is(ErrDrainTimeout), exit.OK, Never, "", ""},
	{is(ErrPositionUnsaved), exit.OK, Never, "", ""},

	{is(pump.ErrParkedFull), exit.BadRecord, Never, "", nextParkedFull},
	{isCopiedRow, exit.BadRecord, Never, adviseCopiedRow, nextCopiedRow},
	{is(pump.ErrDeadLetter), exit.BadRecord, Never, adviseDeadLetter, nextDeadLetter},
	{as[*encode.RowError], exit.BadRecord, Never, adviseRow, ""},
	{as[*sink.RecordError], exit.BadRecord, Never, adviseRow, ""},
	{is(replication.ErrRow), exit.BadRecord, Never, adviseUnread, nextUnread},
	{as[*decoder.Error], exit.Unexpected, Never, adviseDecoder, ""},

	{is(rows.ErrColumnList), exit.NoDelivery, Never, "", nextUnlisted},
	{is(ErrOlderRow), exit.NoDelivery, Never, adviseOlderRow, nextOlderRow},
	{as[*encode.ColumnError], exit.NoDelivery, Never, adviseColumns, nextColumns},
	{isUpdate, exit.NoDelivery, Never, adviseUpdate, nextUpdate},
	{as[*pump.ChangeError], exit.NoDelivery, Never, adviseChange, nextChange},
	{is(position.ErrLeftOut), exit.NoDelivery, Never, "", nextLeftOut},
	{is(replication.ErrUnpublished), exit.NoDelivery, Never, adviseUnpublished, nextPublication},
	{is(catalog.ErrNoTable), exit.NoDelivery, Never, "", nextNoTable},
	{is(replication.ErrPublication), exit.NoDelivery, Never, "", nextPublication},
	{isUnrefillableGap, exit.Continuity, Never, "", nextGapByHand},
	{as[*catalog.UnrefillableError], exit.SlotLost, Never, "", nextByHand},
	{isLoss(catalog.ErrPruned), exit.SlotLost, Never, "", nextLostPruned},
	{isLoss(catalog.ErrNoWitness), exit.SlotLost, Never, "", nextLostWitness},
	{isLoss(catalog.ErrParts), exit.SlotLost, Never, "", nextLostParts},
	{isLoss(catalog.ErrRefill), exit.SlotLost, Never, "", nextLostByHand},
	{is(replication.ErrSlotMissing), exit.SlotLost, Never, "", nextNoSlot},
	{is(replication.ErrSlotLost), exit.SlotLost, Never, "", ""},
	{as[*catalog.WALLevelError], exit.Source, Never, "", nextWALLevel},
	{replication.FromPooler, exit.Source, Never, "", nextPooler},
	{is(replication.ErrConfig), exit.Source, Never, "", nextConfig},
	{is(checkpoint.ErrOtherSystem), exit.Continuity, Never, adviseOtherSystem, nextOtherSystem},
	{is(checkpoint.ErrOtherSlot), exit.Continuity, Never, adviseOtherSlot, nextOtherSlot},
	{is(checkpoint.ErrEarlierTimeline), exit.Continuity, Never, adviseEarlier, nextEarlier},
	{as[*checkpoint.HistoryError], exit.Continuity, Never, adviseCopiedServer, nextOtherWAL},
	{is(checkpoint.ErrOtherWAL), exit.Continuity, Never, adviseOtherWAL, nextOtherWAL},
	{is(catalog.ErrPruned), exit.Continuity, Never, "", nextPruned},
	{is(catalog.ErrNoWitness), exit.Continuity, Never, "", nextNoWitness},
	{is(catalog.ErrParts), exit.Continuity, Never, "", nextParts},
	{isUnrefilledGap, exit.Continuity, Never, "", nextNoRefill},
	{as[*checkpoint.GapError], exit.Continuity, Never, adviseGap, nextGap},
	{is(position.ErrRecord), exit.Continuity, Never, adviseRecord, nextRecord},
	{is(position.ErrKeysParked), exit.Continuity, Never, adviseParked, nextParked},
	{is(position.ErrParkedLost), exit.Continuity, Never, adviseParkedLost, nextParkedLost},
	{is(refill.ErrCopyUnfinished), exit.Continuity, Never, adviseCopy, nextCopy},
	{is(refill.ErrUnfinished), exit.Continuity, Never, adviseRefill, nextRefill},
	{is(catalog.ErrRefill), exit.Continuity, Never, "", nextNoRefill},
	{is(refill.ErrNothingLost), exit.OK, Never, "", ""},
	{as[*checkpoint.RereadError], exit.Continuity, Never, adviseGap, nextGap},
	{is(pump.ErrSkip), exit.Usage, Never, "", ""},

	{is(ErrCopyAccepted), exit.Source, Outage, "", ""},
	{is(position.ErrReplaced), exit.SlotInUse, Standby, "", ""},
	{is(sink.ErrSuperseded), exit.Fenced, Outage, "", nextFenced},
	{is(ErrSlotTaken), exit.SlotInUse, Standby, "", ""},
	{is(ErrOtherServer), exit.Source, Outage, "", ""},
	{is(ErrSuspended), exit.Source, Outage, "", ""},
	{is(position.ErrPromoted), exit.Source, Outage, "", ""},
	{is(ErrLostSender), exit.Source, Outage, "", ""},
	{as[*checkpoint.PrefixError], exit.Continuity, Outage, "", ""},
	{is(position.ErrNoStore), exit.Sink, Outage, "", nextBroker},

	{is(position.ErrFile), exit.Sink, Briefly, "", nextFile},
	{is(position.ErrFileFailed), exit.Sink, Outage, "", nextFileFailed},
	{is(sink.ErrAccess), exit.Sink, Briefly, "", nextBrokerLogin},
	{is(sink.ErrMissing), exit.Sink, Never, "", nextDestination},
	{is(sink.ErrUnreachable), exit.Sink, Never, "", nextBroker},
	{is(sink.ErrFatal), exit.Sink, Never, "", ""},

	{is(replication.ErrWALRemoved), exit.SlotLost, Briefly, "", ""},
	{is(replication.ErrSlotInUse), exit.SlotInUse, Standby, "", ""},
	{mayNotCreate, exit.Source, Briefly, "", nextMayNotCreate},
	{isPrivilege, exit.Source, Briefly, "", NextPrivilege},
	{is(replication.ErrAccess), exit.Source, Briefly, "", nextLogin},
	{as[*replication.CredentialsError], exit.Source, Later, "", nextCredentials},
	{as[*advisory.HeldError], exit.Unexpected, Standby, adviseHeld, ""},
	{is(catalog.ErrOlderTransactions), exit.Source, Outage, "", nextTransactions},
	{as[*catalog.LockError], exit.Source, Outage, adviseLock, nextLock},
	{replication.IsDiskFull, exit.Source, Outage, "", nextDiskFull},
	{is(replication.ErrBusy), exit.Source, Outage, "", nextBusy},
	{is(replication.ErrServerStopping), exit.Source, Outage, "", nextServer},
	{replication.IsReadOnly, exit.Source, Outage, "", nextReadOnly},
	{isTerminated, exit.Source, Outage, adviseTerminated, nextServer},
	{is(replication.ErrUnreachable), exit.Source, Outage, adviseServer, nextServer},
	{isDamaged, exit.Unexpected, Briefly, "", nextDamaged},
}

// Advice for errors whose text does not say how to fix them. The caller that prints it replaces <slot>
// and <publication>.
const (
	adviseRow = "Nothing after it is confirmed; everything before it is delivered. Correct the cause and start the relay again: Postgres\n" +
		"resends the transaction. To send such rows to the dead-letter topic: --set on_bad_record=dead-letter." + adviseGiveUp
	adviseCopiedRow = "Every row before it is delivered, and none after it. Correct the row in its table, or let its destination accept it, and run the same\n" +
		"command again. To send such rows to the dead-letter topic: --set on_bad_record=dead-letter. Do not skip anything: that leaves out all\n" +
		"remaining rows of the table."
	adviseDeadLetter = "Nothing after it is confirmed; everything before it is delivered. Let the destination dead_letter_topic accept every dead letter, or set\n" +
		"another one, and start the relay again: Postgres resends the transaction." + adviseGiveUp
	adviseUnread = "Nothing after it is confirmed; everything before it is delivered. Such a row fits into no record. The relay cannot send it\n" +
		"to the dead-letter topic either, whatever on_bad_record is." + adviseGiveUp

	// adviseGiveUp is appended to the advice if the transaction is known. Its argument is the commit LSN.
	adviseGiveUp = "\nTo skip the whole transaction: SELECT pg_replication_slot_advance('<slot>', '%s'::pg_lsn + 1),\n" +
		"and start once with --accept-gap."
	adviseUndelivered = "Do not skip anything yet: an earlier transaction is not delivered and would be lost. Nothing after it is confirmed. Correct\n" +
		"the cause, or the reason why the broker does not accept the earlier transaction, and start the relay again."
	adviseDecoder = "Postgres sent a message that this version cannot read. Nothing after it is confirmed. Please report it, with the version of Postgres."
	adviseColumns = "Correct the key that the error names, such as a name in outbox.columns (outbox-cdc config shows the current values), or the table.\n" +
		"If a column was renamed, name both in the key that the error names, because older rows have the old name: [old name, new name]."
	adviseOlderRow = "If the column is new in outbox.columns, start the relay without it until these rows are delivered."
	adviseUpdate   = "Let the publication send inserts only, as its owner: ALTER PUBLICATION <publication> SET (publish = 'insert'). Postgres\n" +
		"still sends what is already in the WAL; to ignore those changes: --set outbox.on_update=warn." + adviseGiveUp
	adviseChange = "Start the relay again with the publication unchanged: it then ignores what the publication sends. When the slot has caught up,\n" +
		"as the owner of the publication: ALTER PUBLICATION <publication> SET (publish = 'insert')."
	adviseOtherSystem = "Another relay may use this name, which is that of the slot by default: then set a name of its own (name). Or source.dsn leads to the\n" +
		"wrong server: then correct it. If this server replaces the recorded one after a pg_upgrade or from a dump, recover can continue here.\n" +
		"To continue here without the missing rows: run once with --accept-gap; rows still in the table can be resent later."
	adviseOtherSlot = "Another relay uses this name: set a name of its own (name). If this relay has changed its slot: set source.slot to the old one until\n" +
		"it is delivered, then return to the new one, and run once with --accept-gap."
	adviseEarlier = "Nothing was sent from this server. After a promotion: let source.dsn lead to the new primary, or list both hosts with\n" +
		"target_session_attrs=primary. If this server is a restored copy that is to stay: run once with --accept-gap, which leaves out the\n" +
		"rows that it lacks."
	adviseOtherWAL = "Nothing was sent from this server. If it is the wrong one, correct source.dsn. If it is to stay: run once with --accept-gap, which leaves\n" +
		"out the rows that it lacks; rows still in the table can be resent later."
	adviseCopiedServer = "Nothing was sent from this server. If it is the wrong one, correct source.dsn. If it is to stay: run once with --accept-gap. The relay then\n" +
		"starts at the slot's own position, so it sends every row that was written to this server; rows that were delivered before\n" +
		"the backup was made may be duplicated, with the same ids."
	adviseGap = "Rows that were committed between the two positions may not have been delivered, or the broker has lost them. Find out who\n" +
		"advanced or re-created the slot, whether the broker has older data, or which server this is. To refill the gap from the table:\n" +
		catalog.InstructRecover + ". To continue after it without these rows, because a relay has sent them to another broker\n" +
		"meanwhile, or to resend rows of the table later: run once with --accept-gap."
	adviseRecord = "A later version of this program has stored a position record under this name. Start that version again, or give this\n" +
		"relay a name or a position store of its own (position_topic, position.file)."
	adviseCopy = "Set source.initial_copy: true again to start the copy over, or run once with --accept-gap to continue without it: the relay\n" +
		"then does not send the rows from before the slot."
	adviseParked = "Start the relay with on_bad_record: park, and release the keys: dead-letter list shows them. Later records of\n" +
		"these keys would otherwise overtake the parked ones."
	adviseParkedLost = "Somebody has deleted the position topic, or the relay's name has changed. If it has, set the old name. If all keys were\n" +
		"released, or if the records are of another relay with a slot of the same name in another database, run once with\n" +
		"--accept-gap. Otherwise first send the parked records, in order, while the relay is stopped:\n" +
		"outbox-cdc dead-letter resend --all --again --since 48h\n" +
		"with a time that leaves out keys that were released earlier: their records would be duplicated."
	adviseRefill = "Continue it: " + catalog.InstructRecover + ", with the same configuration. To continue without the rest of the rows, run\n" +
		"once with --accept-gap."
	adviseUnpublished = "If the publication exists, run " + catalog.InstructRecover + ".\n" +
		"If it does not, or if the relay has never run: " + catalog.InstructStartOver + "."
	adviseTerminated = "Somebody has ended the connection, for example by dropping the slot. The relay connects again."
	adviseServer     = "Check source.dsn, and that the server listens there."
	adviseLock       = "source.dsn is right: Postgres has answered. If the lock must be held for so long: run waits longer for it at its start with\n" +
		"--set startup_timeout=5m, and prune with --wait 5m."
	adviseHeld = "If these sessions are a setup, migrate, prune, recover or relay that is running, wait for it and try again. Any role of the database\n" +
		"can take the lock; terminate a session that should not have it: SELECT pg_terminate_backend(<process>)."
)

// NextPrivilege is the next step if the role lacks a privilege, unless the command is for another role than the relay's.
const NextPrivilege = "grant the role what the error names, then run the command again (docs/roles.md#which-role-runs-which-command)"

// Next steps of errors for which that of the exit code would say too much or too little, each with its section of the
// documentation.
const (
	nextWALLevel     = "set wal_level and restart Postgres, then run the command again (docs/access.md#postgres)"
	nextLock         = "wait for the end of the transactions that the error names, or end them (docs/access.md#a-transaction-locks-a-table-55p03)"
	nextTransactions = "wait for the end of the transactions that the error names, or end them (docs/access.md#setup-waits-for-other-transactions-55p03)"
	nextPooler       = "a pooler has answered; connect to Postgres itself (docs/clouds.md#poolers)"
	nextConfig       = "change the setting that the error names, then run the command again (docs/access.md#postgres)"
	nextMayNotCreate = "create what is missing as the owner: " + catalog.InstructSetup + ", then start the relay (docs/roles.md#create-them)"
	nextLogin        = "fix source.dsn, the role or pg_hba.conf, as the error says, then run the command again (docs/access.md#postgres)"
	nextCredentials  = "fix the command or login that gets the password, then run the command again (docs/clouds.md#passwords-that-expire)"
	nextBusy         = "make room as the error says, or wait, then run the command again (docs/access.md#postgres)"
	nextDiskFull     = "free space on the disk of Postgres, then run the command again (docs/access.md#postgres)"
	nextReadOnly     = "let source.dsn lead to the primary, or let the server accept writes, then run the command again (docs/access.md#postgres)"
	nextServer       = "start Postgres, or fix host and port in source.dsn, then run the command again (docs/access.md#postgres)"

	nextDamaged = "check the log and the disk of Postgres, and do not advance the slot: its rows arrive when Postgres can read them (docs/runbook.md#exit-1)"

	nextUndelivered = "correct the cause, or let the broker accept the earlier transaction, then start the relay (docs/bad-rows.md)"
	nextUnread      = "skip its transaction, as above (docs/bad-rows.md#skip-the-transaction)"
	nextColumns     = "correct the key that the error names, or the table, then start the relay (docs/runbook.md#a-column-is-missing)"
	nextUnlisted    = "publish the table without the column list, as the error says (docs/runbook.md#a-column-is-missing)"
	nextOlderRow    = "recover the rows from the table, as the error says (docs/runbook.md#a-column-is-missing)"
	nextUpdate      = "start the relay with --set outbox.on_update=warn, or skip the transaction (docs/runbook.md#an-update-delete-or-truncate-stopped-the-relay)"
	nextChange      = "start the relay again, then let the publication send inserts only (docs/runbook.md#an-update-delete-or-truncate-stopped-the-relay)"
	nextPublication = "do what the error says (docs/runbook.md#the-publication-has-changed)"
	nextLeftOut     = "send what the last relay has left out: " + catalog.InstructRecover + " (docs/recover.md#recover)"
	nextNoTable     = "name the table in outbox.tables, or, if it was not renamed, create it; then run the command again (docs/tables.md)"
	nextNoSlot      = "find out why the slot is gone, then " + catalog.InstructRecover + "; if the relay has never run, " + catalog.InstructSetup + " (docs/runbook.md#exit-11)"
	nextByHand      = "find out why the slot is gone, then do what the error says (docs/recover.md#recover-refuses)"
	nextGapByHand   = "find out who advanced or re-created the slot, then do what the error says (docs/recover.md#recover-refuses)"
	nextLostPruned  = "find out why the slot is gone, then, if only prune deletes rows, " + catalog.InstructUnpruned + " (docs/recover.md#rows-were-removed-from-the-table)"
	nextLostParts   = "find out why the slot is gone, then publish the partitions as the error says, and " + catalog.InstructRecover + " (docs/recover.md#prepare-for-it)"
	nextParts       = "publish the partitions as the error says, then " + catalog.InstructRecover + " (docs/recover.md#prepare-for-it)"
	nextLostByHand  = "find out why the slot is gone, then do by hand what recover cannot do (docs/recover.md#recover-refuses)"
	nextPruned      = "if only prune deletes rows, " + catalog.InstructUnpruned + " (docs/recover.md#rows-were-removed-from-the-table)"
	nextLostWitness = "find out why the slot is gone, and which server this is (docs/recover.md#the-last-delivered-row-is-missing)"
	nextNoWitness   = "find out which server this is before anything else (docs/recover.md#the-last-delivered-row-is-missing)"
	nextOtherSystem = "give this relay a name of its own, or correct source.dsn; after an upgrade or a restore, recover (docs/recover.md#the-database-was-upgraded-or-restored-from-a-dump)"
	nextOtherSlot   = "give this relay a name of its own: set name (docs/runbook.md#exit-15)"
	nextEarlier     = "let source.dsn lead to the new primary, then start the relay (docs/recover.md#which-server-this-is)"
	nextOtherWAL    = "find out which server this is before you start the relay again (docs/recover.md#which-server-this-is)"
	nextGap         = "find out which server this is; if it is the right one, " + catalog.InstructRecover + " (docs/runbook.md#exit-15)"
	nextRecord      = "start the later version again, or give this relay a name of its own (docs/runbook.md#exit-15)"
	nextParked      = "set on_bad_record: park, start the relay and release the keys (docs/park.md#release-a-key)"
	nextCopiedRow   = "correct the row, or what its destination accepts, then run the same command again (docs/bad-rows.md)"
	nextDeadLetter  = "let dead_letter_topic accept dead letters (docs/bad-rows.md#send-the-row-to-the-dead-letter-topic)"
	nextParkedFull  = "raise max_parked_keys and start the relay; then fix the cause and release keys (docs/park.md#release-a-key)"
	nextParkedLost  = "see whether the name or the topic has changed, before anything else (docs/park.md#after-the-loss-of-the-position-topic)"
	nextCopy        = "set source.initial_copy again, then start the relay (docs/runbook.md#exit-15)"
	nextRefill      = catalog.InstructRecover + " (docs/recover.md#recover)"
	nextNoRefill    = "do by hand what recover cannot do (docs/recover.md#recover-refuses)"

	nextBroker      = "start the broker, or fix its address or TLS settings as the error says, then run the command again (docs/access.md#no-broker-can-be-reached)"
	nextBrokerLogin = "fix what the error names: the TLS settings, the login, or the rights of the relay's user at the broker, then run the command again (docs/access.md#broker)"
	nextFile        = "let the operating-system user of the relay use that directory, then start the relay (docs/access.md#position-file)"
	nextFileFailed  = "free space on its disk, or mend what the error names, then start the relay (docs/access.md#position-file)"
	nextFenced      = "stop the other process that uses the relay's identity at the broker, then start the relay (docs/runbook.md#another-process-uses-the-relays-identity)"
	nextDestination = "create the destination, or let the relay's user write it, as the error says, then start the relay (docs/access.md#broker)"
)

func is(target error) func(error) bool {
	return func(err error) bool { return errors.Is(err, target) }
}

func as[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// isLoss reports for an error whether it is about a slot that is lost, and wraps target.
func isLoss(target error) func(error) bool {
	return func(err error) bool {
		return errors.Is(err, target) && (errors.Is(err, replication.ErrSlotMissing) || errors.Is(err, replication.ErrSlotLost))
	}
}

// isCopiedRow reports whether a row of an initial copy or a refill cannot be delivered.
func isCopiedRow(err error) bool {
	row, ok := errors.AsType[*pump.DeliveryError](err)
	return ok && row.Copied && (as[*encode.RowError](err) || as[*sink.RecordError](err))
}

// isUnrefillableGap reports for a gap whether a table lacks the columns for a refill.
func isUnrefillableGap(err error) bool {
	return as[*checkpoint.GapError](err) && as[*catalog.UnrefillableError](err)
}

// isUnrefilledGap reports for a gap whether recover would refuse to refill it.
func isUnrefilledGap(err error) bool {
	return as[*checkpoint.GapError](err) && errors.Is(err, catalog.ErrRefill)
}

func isUpdate(err error) bool {
	change, ok := errors.AsType[*pump.ChangeError](err)
	return ok && change.Kind == "UPDATE"
}

// isTerminated reports whether an administrator has ended the connection.
func isTerminated(err error) bool {
	const adminShutdown = "57P01"
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == adminShutdown && errors.Is(err, replication.ErrUnreachable)
}

// isDamaged reports whether Postgres cannot read its files, or has found a fault of its own.
func isDamaged(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (strings.HasPrefix(pg.Code, "XX") || strings.HasPrefix(pg.Code, "58"))
}

// isPrivilege reports whether the role lacks a privilege that err names.
func isPrivilege(err error) bool {
	const insufficientPrivilege = "42501"
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return as[*catalog.RightError](err) || as[*catalog.ReadError](err) || ok && pg.Code == insufficientPrivilege && replication.Classified(pg)
}

// mayNotCreate reports whether the role lacks a privilege to create the publication or the slot.
func mayNotCreate(err error) bool {
	return as[*refill.CreationError](err) && isPrivilege(err) && !as[*catalog.ReadError](err) // not the copy's right to read
}

// Undelivered returns err, which stops the relay while the transaction at oldest is not delivered. If the advice for err would be to
// skip a later transaction, the result says that the operator must not.
func Undelivered(err error, oldest pglogrepl.LSN) error {
	givesUp := strings.HasSuffix(faultOf(err).advice, adviseGiveUp)
	if lsn := transactionOf(err); !givesUp || lsn != 0 && oldest >= lsn {
		return err
	}
	return &undeliveredError{err, oldest}
}

// An undeliveredError is an error about a transaction while an earlier one is not delivered.
type undeliveredError struct {
	error

	oldest pglogrepl.LSN // commit LSN of the oldest undelivered transaction
}

// Error also names the earlier transaction.
func (e *undeliveredError) Error() string {
	return fmt.Sprintf("%v; the earlier transaction %s is not delivered yet", e.error, e.oldest)
}

// Unwrap returns the error about the transaction itself.
func (e *undeliveredError) Unwrap() error { return e.error }

// ExitCode returns the exit code for an error of the relay.
func ExitCode(err error) int {
	if err == nil {
		return exit.OK
	}
	return faultOf(err).exit
}

// Next returns the next step after err in a few words, with the section of the documentation that explains it. It is
// empty if that of the exit code is right.
func Next(err error) string {
	if as[*undeliveredError](err) {
		return nextUndelivered
	}
	return faultOf(err).next
}

// section returns the section of the documentation about err: that of the next step, or of the exit code if err ends the relay. It is
// empty if the relay retries and the text of the error is all that there is to say.
func section(err error) string {
	if next := Next(err); next != "" {
		return next[strings.LastIndex(next, "(")+1 : len(next)-1]
	}
	if f := faultOf(err); f.patience == Never {
		return exitSection(f.exit)
	}
	return ""
}

// Advice returns how to fix an error of the relay. It is empty if the text of the error says it. The
// caller must replace <slot> and <publication> with the names. Advice about a broker comes from its errors:
// see [sink.Advised].
func Advice(err error) string {
	if err == nil {
		return ""
	}
	if as[*undeliveredError](err) {
		return adviseUndelivered
	}
	advice, givesUp := strings.CutSuffix(cmp.Or(faultOf(err).advice, sink.AdviceOf(err)), adviseGiveUp)
	if lsn := transactionOf(err); givesUp && lsn != 0 {
		advice += fmt.Sprintf(adviseGiveUp, lsn)
	}
	return advice
}

// Recovers reports whether err, with which the relay stops, means that the WAL may not have rows as the table has them, which
// [catalog.InstructRecover] can send: they were committed while the publication left out them or a column, or before the table had a
// column. No start goes on before that.
func Recovers(err error) bool {
	return errors.Is(err, rows.ErrColumnList) || errors.Is(err, ErrOlderRow) || errors.Is(err, replication.ErrPublication)
}

// transactionOf returns the commit LSN of the transaction that err is about, or 0 if err is not about a
// transaction that could be skipped.
func transactionOf(err error) pglogrepl.LSN {
	if row, ok := errors.AsType[*pump.DeliveryError](err); ok && !row.Copied {
		return row.CommitLSN
	}
	if row, ok := errors.AsType[*replication.RowError](err); ok {
		return row.CommitLSN
	}
	if change, ok := errors.AsType[*pump.ChangeError](err); ok {
		return change.CommitLSN
	}
	return 0
}
