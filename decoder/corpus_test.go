package decoder

import (
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pglogrepl"

	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
)

var recordFlag = flag.Bool("record", false, "TestServers stores what the servers send as testdata/corpus; then run TestCorpus -update")

func TestMain(m *testing.M) { pgtest.Main(m) }

// TestCorpus decodes recorded sessions of Postgres servers: testdata/corpus/MAJOR.hex.
func TestCorpus(t *testing.T) {
	for _, file := range glob(t, "testdata/corpus/*.hex") {
		t.Run(baseName(file), func(t *testing.T) {
			got := decodeSession(t, loadCorpus(t, file))
			compareGolden(t, strings.TrimSuffix(file, ".hex")+".golden", got)
		})
	}
}

// TestServers runs testdata/corpus/scenario.sql on every available major version and
// compares the decoded session with the recorded one, except for positions, times and
// identifiers. -record replaces the recording.
func TestServers(t *testing.T) {
	pgtest.EachVersion(t, func(t *testing.T, srv *pgserver.Server) {
		t.Helper()
		file := fmt.Sprintf("testdata/corpus/%d.hex", srv.Install().Major)
		messages := playScenario(t, pgtest.DatabaseOn(t, srv))
		if *recordFlag {
			storeCorpus(t, file, messages)
			return
		}
		want := withoutNumbers(decodeSession(t, loadCorpus(t, file)))
		got := withoutNumbers(decodeSession(t, messages))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("-recorded +now:\n%s", diff)
		}
	})
}

var (
	timeRE = regexp.MustCompile(`time=\S+`)
	lsnRE  = regexp.MustCompile(`\b[0-9A-F]+/[0-9A-F]+\b`)
	oidRE  = regexp.MustCompile(`\b(xid=|relation |type |:)[0-9]{3,}\b`)
)

// withoutNumbers returns the lines of a decoded session without the numbers that differ
// between runs.
func withoutNumbers(session string) []string {
	session = timeRE.ReplaceAllString(session, "time")
	session = lsnRE.ReplaceAllString(session, "LSN")
	return strings.Split(oidRE.ReplaceAllString(session, "$1"), "\n")
}

func playScenario(t *testing.T, db *pgtest.DB) (messages []message) {
	t.Helper()
	conn := db.Conn(t)
	for statement := range strings.SplitSeq(readFile(t, "testdata/corpus/scenario.sql"), ";\n") {
		if _, err := conn.PgConn().Exec(t.Context(), statement).ReadAll(); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	rows, err := conn.Query(t.Context(), `SELECT lsn::text, data FROM pg_logical_slot_get_binary_changes('corpus', NULL, NULL,
		'proto_version', '1', 'publication_names', 'root,leaf', 'messages', 'true')`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var start string
		var m message
		if err := rows.Scan(&start, &m.data); err != nil {
			t.Fatal(err)
		}
		m.start = parseLSN(t, start)
		messages = append(messages, m)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return messages
}

// A corpus file has one line for each message: its LSN and its bytes in hex.

func storeCorpus(t *testing.T, file string, messages []message) {
	t.Helper()
	var b strings.Builder
	for _, m := range messages {
		fmt.Fprintf(&b, "%s %x\n", m.start, m.data)
	}
	if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

func loadCorpus(tb testing.TB, file string) (messages []message) {
	tb.Helper()
	for line := range strings.Lines(readFile(tb, file)) {
		start, digits, _ := strings.Cut(strings.TrimSpace(line), " ")
		data, err := hex.DecodeString(digits)
		if err != nil {
			tb.Fatalf("%s: %v", file, err)
		}
		messages = append(messages, message{start: parseLSN(tb, start), data: data})
	}
	return messages
}

func parseLSN(tb testing.TB, s string) pglogrepl.LSN {
	tb.Helper()
	lsn, err := pglogrepl.ParseLSN(s)
	if err != nil {
		tb.Fatal(err)
	}
	return lsn
}
