// Package runbook tests the documentation: it follows the runbook and the pages about operations on real
// servers, runs their statements, resolves links and compiles Go code.
package runbook

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outbox-cdc/outbox-cdc/test/kit/doctest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
	"github.com/outbox-cdc/outbox-cdc/test/kit/wait"
)

// TestOperations follows each section of the followed pages, with servers in the state that the section
// describes, as the roles that the section names. A section with statements but without a recipe is an error, and so is
// a recipe without a section.
func TestOperations(t *testing.T) {
	t.Parallel()
	page := readPages(t)
	recipes := maps.Clone(exitRecipes)
	maps.Copy(recipes, jobRecipes)
	maps.Copy(recipes, parkRecipes)
	srv := pgtest.Server(t)
	createRoles(t, srv)
	for _, s := range page {
		recipe := recipes[s.title]
		delete(recipes, s.title)
		if recipe == nil {
			if len(s.blocks) > 0 {
				t.Errorf("section %q has statements but no recipe", s.title)
			}
			continue
		}
		t.Run(s.title, func(t *testing.T) {
			t.Parallel()
			o := &operation{page: page, section: s, names: map[string]string{}}
			recipe(t, o, srv)
			if left := len(o.section.blocks) - o.next; left != 0 {
				t.Errorf("the recipe did not run %d blocks", left)
			}
		})
	}
	for title := range recipes {
		t.Errorf("no page has section %q", title)
	}
}

// A section is a heading of a page and the code under it, or a row of a table and the code in it: the title of the row
// is its first cell.
type section struct {
	title  string
	blocks []block
}

// A block is fenced code, or a whole statement or command in a table.
type block struct {
	lang, text string
	role       string // that the text before names, such as "owner", or empty
}

// readPages returns the sections of the pages that are followed.
func readPages(t *testing.T) []section {
	t.Helper()
	var all []section
	for _, page := range doctest.FollowedPages() {
		all = append(all, readPage(t, "../../docs/"+page)...)
	}
	return all
}

func readPage(t *testing.T, file string) []section {
	t.Helper()
	data, err := os.ReadFile(file)
	rig.Must(t, err)
	var page, rows []section
	var open *block
	role := ""
	for line := range strings.Lines(string(data)) {
		heading, isHeading := strings.CutPrefix(strings.TrimLeft(line, "#"), " ")
		lang, isFence := strings.CutPrefix(line, "```")
		switch {
		case isFence && open == nil:
			s := &page[len(page)-1]
			s.blocks = append(s.blocks, block{lang: strings.TrimSpace(lang), role: role})
			open = &s.blocks[len(s.blocks)-1]
		case isFence:
			open = nil
		case open != nil:
			open.text += line
		case strings.HasPrefix(line, "#") && isHeading:
			page, role = append(page, section{title: strings.TrimSpace(heading)}), ""
		case strings.HasPrefix(line, "| "):
			if row := readRow(line, role); len(row.blocks) > 0 {
				rows = append(rows, row)
			}
		default:
			if named := namedRole.FindAllStringSubmatch(line, -1); named != nil {
				role = named[len(named)-1][1]
			}
		}
	}
	return append(page, rows...)
}

var (
	// namedRole matches the role that runs the next statements.
	namedRole = regexp.MustCompile(`\b[Aa]s (?:the |a )(owner|operator|superuser|relay's role)\b`)

	// tableCode matches a whole statement or command in a cell.
	tableCode = regexp.MustCompile("`((?:ALTER|BEGIN;|CREATE|GRANT|SELECT) [^`…]+|outbox-cdc [^`…]+ -c outbox-cdc.yaml [^`…]+)`")
)

// readRow returns a row of a table as a section.
func readRow(line, role string) section {
	title, rest, _ := strings.Cut(strings.TrimPrefix(line, "| "), " |")
	row := section{title: title}
	for _, code := range tableCode.FindAllStringSubmatch(rest, -1) {
		b := block{lang: "sql", text: code[1], role: role}
		if strings.HasPrefix(code[1], "outbox-cdc ") {
			b.lang = "sh"
		}
		row.blocks = append(row.blocks, b)
	}
	return row
}

// secret is the password of role cdc.
const secret = "the-right-one"

// hba admits the superuser, the owner and the operator without a password, and cdc with one.
const hba = trusted + "host all cdc 127.0.0.1/32 scram-sha-256\n"

const trusted = "host all postgres,owner,outbox_operator 127.0.0.1/32 trust\n"

// startSource starts a server with the roles owner, operator and cdc.
func startSource(t *testing.T, settings map[string]string) *pgserver.Server {
	t.Helper()
	return prepareSource(t, pgtest.Start(t, pgserver.Config{Settings: settings}))
}

func prepareSource(t *testing.T, srv *pgserver.Server) *pgserver.Server {
	t.Helper()
	createRoles(t, srv)
	rig.Must(t, srv.WriteFile("pg_hba.conf", []byte(hba)))
	(&pgtest.DB{DSN: srv.DSN("postgres")}).Exec(t, `SELECT pg_reload_conf()`)
	return srv
}

func createRoles(t *testing.T, srv *pgserver.Server) {
	t.Helper()
	(&pgtest.DB{DSN: srv.DSN("postgres")}).Exec(t,
		`CREATE ROLE owner LOGIN REPLICATION; CREATE ROLE outbox_operator LOGIN REPLICATION; CREATE ROLE cdc LOGIN REPLICATION PASSWORD '`+secret+`'`)
}

// A recipe brings servers into the state that a section describes, and follows the section.
type recipe func(t *testing.T, o *operation, srv *pgserver.Server)

// long returns a recipe that only a full run follows.
func long(follow recipe) recipe {
	return func(t *testing.T, o *operation, srv *pgserver.Server) {
		t.Helper()
		need.FullRun(t, "it takes seconds")
		follow(t, o, srv)
	}
}

// An operation follows a page: it has a database, a Kafka cluster, a configuration, and the next block of
// a section. names maps names on the page to those in the test.
type operation struct {
	page    []section
	section section
	next    int // block

	db        *pgtest.DB
	kafka     *kafkatest.Cluster
	fake      *kafkatest.FakeCluster // set if kafka is the test's own
	dir       string                 // directory of outbox-cdc.yaml
	slot      string                 // also the name of the publication
	aggregate string                 // type of the events
	names     map[string]string
	events    *events

	source, password, broker, login, more string // values of the configuration

	patience time.Duration // startup_timeout
}

// order is the aggregate type of events, and topic is their topic, on a Kafka cluster of the test's own.
const (
	order = "order"
	topic = "outbox.event." + order
)

// on creates an outbox with publication and slot on srv, and writes the relay's configuration.
func (o *operation) on(t *testing.T, srv *pgserver.Server) *operation {
	t.Helper()
	o.fake = kafkatest.Fake(t)
	return o.filled(t, srv, o.fake.Cluster)
}

// filled is like on, with the given cluster. The database is a copy of one in which migrate and setup have run.
func (o *operation) filled(t *testing.T, srv *pgserver.Server, cluster *kafkatest.Cluster) *operation {
	t.Helper()
	o.in(t, pgtest.FilledDatabase(t, srv, "set up", func(db *pgtest.DB) {
		first := &operation{
			db: db, kafka: cluster, dir: t.TempDir(), slot: db.Name, names: map[string]string{"outbox_cdc": db.Name},
			source: srv.Addr(), password: secret, broker: cluster.Addrs[0],
		}
		first.exec(t, `ALTER DATABASE `+db.Name+` OWNER TO owner`)
		first.configure(t)
		first.setup(t)
		first.exec(t, "ALTER PUBLICATION \""+db.Name+"\" RENAME TO set_up;\nSELECT pg_drop_replication_slot('"+db.Name+"')")
	}), cluster)
	o.exec(t, "ALTER PUBLICATION set_up RENAME TO outbox_cdc;\nSELECT pg_create_logical_replication_slot('outbox_cdc', 'pgoutput')")
	return o
}

// onBroker is like on, with the real broker that all tests share.
func (o *operation) onBroker(t *testing.T, srv *pgserver.Server) *operation {
	t.Helper()
	o.aggregate = kafkatest.UniqueName(t)
	dead := "dead-" + o.aggregate
	maps.Copy(o.names, map[string]string{topic: "outbox.event." + o.aggregate, "outbox.dead-letter": dead})
	o.more = "dead_letter_topic: " + dead + "\n"
	broker := kafkatest.Broker(t)
	broker.DeleteTopics(t, dead)
	return o.filled(t, srv, broker)
}

// with is like on, without outbox, publication and slot, and with the given cluster.
func (o *operation) with(t *testing.T, srv *pgserver.Server, cluster *kafkatest.Cluster) *operation {
	t.Helper()
	return o.in(t, pgtest.DatabaseOn(t, srv), cluster)
}

// in is like with, in a database that exists.
func (o *operation) in(t *testing.T, db *pgtest.DB, cluster *kafkatest.Cluster) *operation {
	t.Helper()
	o.db, o.kafka, o.dir = db, cluster, t.TempDir()
	o.db.Exec(t, `ALTER DATABASE `+o.db.Name+` OWNER TO owner`)
	o.slot = o.db.Name
	maps.Copy(o.names, map[string]string{"outbox_cdc": o.slot, "DATABASE app": "DATABASE " + o.db.Name, "host app": "host " + o.db.Name})
	o.aggregate = cmp.Or(o.aggregate, order)
	cluster.CreateTopic(t, o.named(topic), 1, nil)
	o.events = collectEvents(t, cluster, o.named(topic))
	o.source, o.password, o.broker = db.Server.Addr(), secret, cluster.Addrs[0]
	o.configure(t)
	return o
}

func (o *operation) setup(t *testing.T) *operation {
	t.Helper()
	o.command(t, `outbox-cdc migrate up --dsn "$OWNER_DSN"`)
	o.command(t, `outbox-cdc setup -c outbox-cdc.yaml --dsn "$OWNER_DSN" --grant-operator outbox_operator`)
	o.exec(t, `GRANT SELECT ON outbox TO cdc`)
	return o
}

// configure writes the relay's configuration.
func (o *operation) configure(t *testing.T) {
	t.Helper()
	rig.Must(t, os.WriteFile(filepath.Join(o.dir, "outbox-cdc.yaml"), []byte(o.yaml()), 0o600))
}

// yaml returns the relay's configuration.
func (o *operation) yaml() string {
	return fmt.Sprintf(`
source: {dsn: "postgres://cdc:%s@%s/%s?sslmode=disable", publication: %s, slot: %s}
sink: {kafka: {brokers: [%q]%s}}
startup_timeout: %s
drain_timeout: 5s
%s`, o.password, o.source, o.db.Name, o.slot, o.slot, o.broker, o.login, cmp.Or(o.patience, 15*time.Second), o.more)
}

// shell returns a shell script that runs a line of the page.
func (o *operation) shell(t *testing.T, line string) string {
	t.Helper()
	path := filepath.Dir(rig.Binary(t)) + ":/usr/bin:/bin"
	if strings.Contains(line, "kafka-") {
		path = kafkaTools(t) + ":" + path
	}
	env := map[string]string{
		"PATH":      path,
		"OWNER_DSN": o.as("owner"), "OPERATOR_DSN": o.as("operator"), "BROKERS": strings.Join(o.kafka.Addrs, ","),
	}
	maps.Copy(env, map[string]string{"NEW_BROKERS": o.names["$NEW_BROKERS"]})
	script := "cd '" + o.dir + "'\n"
	for name, value := range env {
		script += "export " + name + "='" + value + "'\n"
	}
	return script + o.named(line)
}

// kafkaTools returns a directory with Kafka's command-line tools.
func kafkaTools(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	kafkatest.Scripts(t, dir)
	return dir
}

// named replaces names of the page with those of the test, longer names first.
func (o *operation) named(text string) string {
	names := slices.SortedFunc(maps.Keys(o.names), func(a, b string) int { return len(b) - len(a) })
	var pairs []string
	for _, n := range names {
		pairs = append(pairs, n, o.names[n])
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// as returns the connection string of a role that a page names.
func (o *operation) as(role string) string {
	user := map[string]string{"owner": "owner@", "operator": "outbox_operator@", "superuser": "postgres@", "relay's role": "cdc:" + o.password + "@"}[role]
	return strings.Replace(o.db.DSN, "postgres@", user, 1)
}

// nextBlock returns the section's next block, which must be in lang.
func (o *operation) nextBlock(t *testing.T, lang string) block {
	t.Helper()
	if o.next == len(o.section.blocks) {
		t.Fatalf("%q has no more blocks", o.section.title)
	}
	b := o.section.blocks[o.next]
	o.next++
	if b.lang != lang {
		t.Fatalf("block %d of %q is %s, not %s", o.next, o.section.title, b.lang, lang)
	}
	return b
}

// sql runs the statements of the next block in order, as the role that the page names, and returns the rows of the last
// one.
func (o *operation) sql(t *testing.T) []map[string]string {
	t.Helper()
	b := o.nextBlock(t, "sql")
	if b.role == "" {
		t.Fatalf("%q does not name the role that runs %s", o.section.title, b.text)
	}
	return o.execAs(t, b.role, b.text)
}

// exec runs statements as a superuser.
func (o *operation) exec(t *testing.T, text string) []map[string]string {
	t.Helper()
	return o.execAs(t, "superuser", text)
}

func (o *operation) execAs(t *testing.T, role, text string) []map[string]string {
	t.Helper()
	conn, err := pgconn.Connect(t.Context(), o.as(role))
	rig.Must(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	var rows []map[string]string
	for statement := range strings.SplitSeq(strings.TrimSpace(o.named(text)), ";\n") {
		results, err := conn.Exec(t.Context(), statement).ReadAll()
		if err != nil {
			t.Fatalf("%s, as %s: %v", statement, role, err)
		}
		rows = nil
		for _, r := range results {
			for _, values := range r.Rows {
				row := map[string]string{}
				for i, f := range r.FieldDescriptions {
					row[f.Name] = string(values[i])
				}
				rows = append(rows, row)
			}
		}
	}
	return rows
}

// sh runs the commands of the next block in order. It returns the output of the last one and the relay, if
// a command starts it.
func (o *operation) sh(t *testing.T) (out string, r *rig.Process) {
	t.Helper()
	for line := range strings.Lines(o.nextBlock(t, "sh").text) {
		if strings.HasPrefix(line, "outbox-cdc run") {
			r = o.run(t, line)
		} else {
			out = o.command(t, line)
		}
	}
	return out, r
}

// command runs a line, which must succeed.
func (o *operation) command(t *testing.T, line string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-e", "-c", o.shell(t, line))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", line, err, out)
	}
	return string(out)
}

// runLine starts the relay, as the page writes it.
const runLine = "outbox-cdc run -c outbox-cdc.yaml"

// run starts the relay with a line of the page.
func (o *operation) run(t *testing.T, line string) *rig.Process {
	t.Helper()
	return rig.StartProgram(t, "/bin/sh", "-c", o.shell(t, "exec "+line))
}

// stream starts the relay and waits until it streams.
func (o *operation) stream(t *testing.T) *rig.Process {
	t.Helper()
	r := o.run(t, runLine)
	r.Logged(t, "msg=streaming")
	return r
}

// streams runs the next block, which starts the relay, and requires that it delivers.
func (o *operation) streams(t *testing.T) *rig.Process {
	t.Helper()
	_, r := o.sh(t)
	r.Logged(t, "msg=streaming")
	o.delivers(t)
	return r
}

// delivers writes a row and requires that it arrives.
func (o *operation) delivers(t *testing.T) {
	t.Helper()
	o.arrived(t, o.write(t))
}

// write inserts a deliverable row and returns its id.
func (o *operation) write(t *testing.T) string {
	t.Helper()
	return o.insert(t, o.aggregate)
}

func (o *operation) insert(t *testing.T, aggregatetype string) string {
	t.Helper()
	return pgtest.QueryRow[string](t, o.db, `INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload)
		VALUES (gen_random_uuid(), $1, 'k', 'T', '{}') RETURNING id::text`, aggregatetype)
}

func (o *operation) arrived(t *testing.T, id string) {
	t.Helper()
	wait.For(t, "the record of "+id, func() bool { return o.events.has(id) })
}

// fails starts the relay, and requires its exit code and output.
func (o *operation) fails(t *testing.T, code int, says ...string) string {
	t.Helper()
	return o.ends(t, o.run(t, runLine), code, says...)
}

var lastLine = regexp.MustCompile(`^exit (\d+) \([a-zA-Z ]+\): (?:slot \S+|Kafka at [^;]+?)( at [0-9A-F]+/[0-9A-F]+)?; next: .*docs/[a-z-]+\.md#(?:exit-(\d+)|[a-z0-9-_]+)\)$`)

// ends requires that the relay exits with code and writes all of says, and that its last line has the code,
// the object and the next step. It returns stderr.
func (o *operation) ends(t *testing.T, r *rig.Process, code int, says ...string) string {
	t.Helper()
	got := r.Exit(t)
	out := r.Stderr.String()
	last := rig.Tail(out, 1)
	m := lastLine.FindStringSubmatch(last)
	if got != code || m == nil || m[1] != strconv.Itoa(code) || m[3] != "" && m[3] != m[1] {
		t.Fatalf("exit code %d, want %d; the last line is %q\n%s", got, code, last, out)
	}
	for _, want := range says {
		if !strings.Contains(out, o.named(want)) {
			t.Errorf("output lacks %q:\n%s", o.named(want), out)
		}
	}
	return out
}

// reached requires that the last line has the position up to which all rows are delivered.
func reached(t *testing.T, out string) {
	t.Helper()
	if m := lastLine.FindStringSubmatch(rig.Tail(out, 1)); m == nil || m[2] == "" {
		t.Errorf("the last line has no position: %q", rig.Tail(out, 1))
	}
}

// follow follows another section of the page.
func (o *operation) follow(t *testing.T, title string, f func(*operation)) {
	t.Helper()
	i := slices.IndexFunc(o.page, func(s section) bool { return s.title == title })
	if i < 0 {
		t.Fatalf("the page has no section %q", title)
	}
	here, next := o.section, o.next
	o.section, o.next = o.page[i], 0
	f(o)
	o.section, o.next = here, next
}

// transaction matches the transaction that an error names.
var transaction = regexp.MustCompile(`transaction ([0-9A-F]+/[0-9A-F]+)`)

// usePosition replaces the example position of the page with that of the transaction in out.
func (o *operation) usePosition(t *testing.T, out string) {
	t.Helper()
	m := transaction.FindStringSubmatch(out)
	if m == nil {
		t.Fatalf("output names no transaction:\n%s", out)
	}
	o.names["0/1A2B3C8"] = m[1]
}

// events are the ids of the records in the topic.
type events struct {
	mu  sync.Mutex
	ids map[string]int
}

func collectEvents(t *testing.T, cluster *kafkatest.Cluster, topic string) *events {
	t.Helper()
	e := &events{ids: map[string]int{}}
	cluster.Collect(t, func(r *kgo.Record) {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.ids[rig.Header(r, "id")]++
	}, topic)
	return e
}

func (e *events) has(id string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ids[id] > 0
}

func (e *events) total() (n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, times := range e.ids {
		n += times
	}
	return n
}

func TestMain(m *testing.M) { rig.Main(m) }
