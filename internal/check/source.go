package check

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

// A sourceChecker checks Postgres.
type sourceChecker struct {
	*checker
	report

	server    *catalog.ServerDetails
	role      *catalog.RoleDetails
	catalog   *catalog.State
	recorded  bool     // there is a position record
	unread    bool     // it is not known whether there is one, because the position store cannot be read
	elsewhere bool     // the position record is of another server
	recovers  string   // how to continue after the loss of the slot; empty: nobody knows whether there is a record
	refused   string   // ": " and why recover would refuse after the loss of the slot; empty: it would not
	provider  provider // of a managed server; otherwise the zero value
}

func (s *sourceChecker) run(ctx context.Context) {
	cfg := s.Relay.Source
	reader := catalog.NewReader(cfg.Conn)
	defer reader.Close(ctx)
	ask := func(name string, question func(context.Context) error) bool {
		return s.ask(ctx, &s.report, name, "", question)
	}
	if !ask("connection", reader.Connect) {
		return
	}
	s.ok("connection", "", fmt.Sprintf("as %s to database %s at %s", cfg.Conn.User, cfg.Conn.Database, reader.Peer()))
	if ask("catalog", func(ctx context.Context) (err error) {
		s.catalog, err = reader.Inspect(ctx, cfg.Publication, cfg.Slot, s.Relay.Tables)
		return err
	}) {
		s.ok("catalog", "", "readable")
		s.catalog.Messages = len(s.Relay.Messages) > 0
		s.recognize(ctx, reader)
		s.version()
		if s.catalog.ServerVersion < oldest {
			return // the other queries need a supported version
		}
		s.position(ctx)
	}
	if !s.short && ask("role", func(ctx context.Context) (err error) { s.role, err = reader.Role(ctx); return err }) {
		s.rights()
	}
	if ask("slots left", func(ctx context.Context) (err error) { s.server, err = reader.Server(ctx); return err }) {
		s.capacity()
		s.synchronous()
		s.clock()
	}
	if !s.short {
		s.walsender(ctx, reader)
	}
	if s.catalog == nil {
		return
	}
	s.publication()
	s.tables(ctx, reader)
	s.slot(ctx)
	s.retention()
	s.transactions()
}

// walsender tries a replication connection, unless the role lacks REPLICATION for it, and reads the errors of pg_hba.conf.
func (s *sourceChecker) walsender(ctx context.Context, reader *catalog.Reader) {
	allowed := s.role == nil || s.role.Replication
	if allowed && s.ask(ctx, &s.report, "replication connection", "", reader.Walsender) {
		s.ok("replication connection", "", "opened and closed")
	}
	var lines []string
	known := false
	if s.ask(ctx, &s.report, "pg_hba.conf", "", func(ctx context.Context) (err error) {
		lines, known, err = reader.HBAErrors(ctx)
		return err
	}) {
		switch {
		case !known:
			s.ok("pg_hba.conf", "", "not readable for the role, but the connections above succeeded")
		case len(lines) > 0:
			s.warn("pg_hba.conf", "", "Postgres does not load the file while it has errors: "+strings.Join(lines, ", "),
				"fix the lines, then SELECT pg_reload_conf()")
		default:
			s.ok("pg_hba.conf", "", "has no errors")
		}
	}
}

// setUp is the fix for what the relay's role may not create.
const setUp = "as the owner of the tables, with CREATE on the database and REPLICATION: " + catalog.InstructSetup

// useRelayRole is the first fix for a role without the relay's rights: it may be that of another program.
const useRelayRole = "set source.dsn to the relay's role, or if this is it: "

func (s *sourceChecker) rights() {
	r := s.role
	if r.Replication {
		s.ok("role", "", r.Name+" has REPLICATION")
	} else {
		s.fail("role", "", r.Name+" lacks REPLICATION", useRelayRole+s.provider.allowReplication(replication.QuoteIdent(r.Name)))
	}
	if r.Superuser {
		s.warn("least privilege", "", r.Name+" is a superuser; LOGIN and REPLICATION are enough for the relay",
			s.provider.createRole()+", and use it in source.dsn")
	} else {
		s.ok("least privilege", "", r.Name+" is not a superuser")
	}
	s.messages()
}

// mayPublish checks that the relay may create the publication. owns says that it owns the tables.
func (s *sourceChecker) mayPublish(owns bool) {
	if !s.creates() || s.role == nil || s.role.Create {
		return
	}
	database, fix := s.catalog.Database, setUp
	if owns {
		fix = "as the owner of the database: GRANT CREATE ON DATABASE " + replication.QuoteIdent(database) + " TO " + replication.QuoteIdent(s.role.Name)
	}
	s.fail("create", "", fmt.Sprintf("run would create the publication and the slot, but %s lacks CREATE on database %s", s.role.Name, database), fix)
}

// messages checks that the relay may write logical messages, and, if it reads events from them, who else may: by default
// every role.
func (s *sourceChecker) messages() {
	const name = "messages"
	r := s.role
	grant := r.GrantMessages()
	switch {
	case !r.EmitsMessages:
		s.warn(name, "", r.Name+" may not execute pg_logical_emit_message: the position record gets no snapshots, which say what to resend if the slot is lost", s.superuserOnly(grant))
	case s.catalog == nil || !s.catalog.Messages:
		s.ok(name, "", r.Name+" may execute pg_logical_emit_message")
	case len(r.OpenEmit) > 0:
		s.warn(name, "", "every role of the database may write events: outbox.messages reads them from logical messages, and pg_logical_emit_message is granted to PUBLIC",
			s.superuserOnly(grant+"; REVOKE EXECUTE ON FUNCTION "+strings.Join(r.OpenEmit, ", ")+
				" FROM PUBLIC; or first grant it to the other roles that run prune or write events with it"))
	default:
		s.ok(name, "", "only roles that were granted pg_logical_emit_message may write logical messages")
	}
}

// creates reports whether a start of the relay creates the publication.
func (s *sourceChecker) creates() bool {
	return s.createsSlot() && s.catalog.Publication == nil
}

// createsSlot reports whether a start of the relay creates the slot: only the first one does.
func (s *sourceChecker) createsSlot() bool {
	return s.Relay.Create.Allows(s.catalog) && !s.recorded
}

// capacity checks that the server has a free slot and a free WAL sender.
func (s *sourceChecker) capacity() {
	v := s.server
	text := fmt.Sprintf("%d of max_replication_slots = %d", v.MaxSlots-v.Slots, v.MaxSlots)
	if s.catalog != nil && s.catalog.Slot == nil && v.Slots >= v.MaxSlots {
		s.fail("slots left", "", text, s.provider.set("max_replication_slots", strconv.Itoa(v.MaxSlots+10), true)+"; or drop an unused slot of pg_replication_slots")
	} else {
		s.ok("slots left", "", text)
	}
	streaming := s.catalog != nil && s.catalog.Slot != nil && s.catalog.Slot.Active
	text = fmt.Sprintf("%d of max_wal_senders = %d", v.MaxSenders-v.Senders, v.MaxSenders)
	if !streaming && v.Senders >= v.MaxSenders {
		s.fail("senders left", "", text, s.provider.set("max_wal_senders", strconv.Itoa(v.MaxSenders+10), true)+"; or stop a client of pg_stat_replication")
	} else {
		s.ok("senders left", "", text)
	}
}

// synchronous checks that Postgres does not take the relay for a synchronous standby. A name in the list may be of any client that streams
// WAL, and * matches each.
// https://www.postgresql.org/docs/current/runtime-config-replication.html#GUC-SYNCHRONOUS-STANDBY-NAMES
func (s *sourceChecker) synchronous() {
	const name = "synchronous standbys"
	application := replication.Walsender(s.Relay.Source.Conn).RuntimeParams["application_name"]
	for _, standby := range standbyNames(s.server.SyncStandbys) {
		if standby != "*" && !strings.EqualFold(standby, application) {
			continue
		}
		s.warn(name, "", fmt.Sprintf("synchronous_standby_names has %s, which matches the relay (%s): commits may wait until it has delivered their rows, and while it is stopped", standby, application),
			"name the standbys in synchronous_standby_names, each as its application_name in primary_conninfo, then SELECT pg_reload_conf()")
		return
	}
	s.ok(name, "", "the relay is none")
}

// countedStandbys matches a list with the number of standbys, and standbyName one name of a list.
var (
	countedStandbys = regexp.MustCompile(`(?is)^\s*(?:(?:FIRST|ANY)\s+)?\d+\s*\((.*)\)\s*$`)
	standbyName     = regexp.MustCompile(`"(?:[^"]|"")*"|[^\s,"]+`)
)

// standbyNames returns the names in a value of synchronous_standby_names.
func standbyNames(setting string) (names []string) {
	if m := countedStandbys.FindStringSubmatch(setting); m != nil {
		setting = m[1]
	}
	for _, name := range standbyName.FindAllString(setting, -1) {
		if quoted, ok := strings.CutPrefix(name, `"`); ok {
			name = strings.ReplaceAll(strings.TrimSuffix(quoted, `"`), `""`, `"`)
		}
		names = append(names, name)
	}
	return names
}

// maxClockError is the allowed difference of the clocks.
const maxClockError = 5 * time.Second

// clock compares the clock of the database server with this machine's: records have the commit time.
func (s *sourceChecker) clock() {
	v := s.server
	off := v.ClockAhead.Round(time.Millisecond)
	text := fmt.Sprintf("the server's is %s ahead of this machine's, ±%s", off, (v.ClockTrip / 2).Round(time.Millisecond))
	if off < 0 {
		text = fmt.Sprintf("the server's is %s behind this machine's, ±%s", -off, (v.ClockTrip / 2).Round(time.Millisecond))
	}
	if v.ClockAhead.Abs()-v.ClockTrip/2 > maxClockError {
		s.warn("clock", "", text+": lag and timestamps of records are wrong by that much", "synchronize both clocks (NTP)")
		return
	}
	s.ok("clock", "", text)
}

// transactions looks for long transactions: Postgres retains WAL for them, and creating a slot waits for them.
func (s *sourceChecker) transactions() {
	c := s.catalog
	patience := s.Relay.LongTransaction
	if patience == 0 {
		patience = catalog.LongTransaction
	}
	switch t := c.Oldest; {
	case t == nil:
		s.ok("open transactions", "", "none has written")
	case t.Age >= patience:
		text := fmt.Sprintf("%s, open for %s: Postgres retains WAL from its start on for every slot, and decodes it again after a reconnect", t, t.Age.Round(time.Second))
		if s.createsSlot() {
			text = fmt.Sprintf("%s, open for %s: creating the slot waits for its end", t, t.Age.Round(time.Second))
		}
		s.warn("open transactions", "", text, t.Remedy())
	default:
		s.ok("open transactions", "", fmt.Sprintf("the oldest has been open for %s", t.Age.Round(time.Millisecond)))
	}
}

// synchronized checks the standbys that the slot waits for.
func (s *sourceChecker) synchronized() {
	const name = "synchronized_standby_slots"
	slot := s.catalog.Slot
	if s.catalog.ServerVersion < 170000 || slot == nil {
		return
	}
	var streaming []string
	for _, standby := range s.catalog.StandbySlots {
		if standby.Active {
			streaming = append(streaming, standby.Name)
		}
	}
	switch missing, names := s.catalog.MissingStandbys(), strings.Join(streaming, ", "); {
	case !slot.Failover:
		s.ok(name, "", "not used: the slot has no failover")
	case len(missing) > 0:
		s.fail(name, "", fmt.Sprintf("Postgres sends nothing to the relay while no standby streams from %s", strings.Join(missing, ", ")),
			"start the standby, or remove it: "+s.provider.set(name, names, false))
	case names == "":
		s.warn(name, "", "empty: after a failover, the broker may have records of rows that the new primary does not have",
			s.provider.set(name, "<the standby's physical slot>", false))
	default:
		s.ok(name, "", names)
	}
}
