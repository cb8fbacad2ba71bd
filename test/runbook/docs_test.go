package runbook

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/outbox-cdc/outbox-cdc/test/kit/doctest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
)

// TestDocs requires that the index lists every page, and that links between pages lead to files and headings.
func TestDocs(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../../docs/*.md")
	rig.Must(t, err)
	index, err := os.ReadFile("../../docs/README.md")
	rig.Must(t, err)
	for _, page := range pages {
		if name := filepath.Base(page); name != "README.md" && !strings.Contains(string(index), "]("+name+")") {
			t.Errorf("docs/README.md does not list %s", name)
		}
	}
	links := 0
	for _, page := range append(pages, "../../README.md", "../../CONTRIBUTING.md", "../../CHANGELOG.md") {
		text, err := os.ReadFile(page)
		rig.Must(t, err)
		for _, link := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(string(text), -1) {
			path, fragment, _ := strings.Cut(link[1], "#")
			if strings.Contains(path, "://") {
				continue
			}
			links++
			to := page
			if path != "" {
				to = filepath.Join(filepath.Dir(page), path)
			}
			if _, err := os.Stat(to); err != nil {
				t.Errorf("%s: %s: %v", page, link[1], err)
			} else if fragment != "" && !hasAnchor(t, to, fragment) {
				t.Errorf("%s: %s has no such heading", page, link[1])
			}
		}
	}
	if links < 50 {
		t.Errorf("only %d links", links)
	}
}

// TestLinksToDocs requires that links in errors, log messages, alerts and units lead to pages and headings.
func TestLinksToDocs(t *testing.T) {
	t.Parallel()
	link := regexp.MustCompile(`docs/([a-z-]+\.md)(?:#([a-z0-9_-]+))?`)
	found := 0
	rig.Must(t, filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			if err == nil && strings.HasPrefix(d.Name(), ".") && d.Name() != ".." {
				return filepath.SkipDir
			}
			return err
		}
		if !slices.Contains([]string{".go", ".yaml", ".service", ".html", ".json"}, filepath.Ext(path)) {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			page, fragment := filepath.Join("../../docs", m[1]), strings.TrimSuffix(m[2], "-") // "#exit-" and a number
			if fragment == "exit" {
				fragment = ""
			}
			found++
			if _, err := os.Stat(page); err != nil {
				t.Errorf("%s: %s: %v", path, m[0], err)
			} else if fragment != "" && !hasAnchor(t, page, fragment) {
				t.Errorf("%s: %s has no such heading", path, m[0])
			}
		}
		return nil
	}))
	if found < 30 {
		t.Errorf("only %d links", found)
	}
}

func hasAnchor(t *testing.T, page, fragment string) bool {
	t.Helper()
	text, err := os.ReadFile(page)
	rig.Must(t, err)
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(string(text), -1) {
		if anchor(heading[1]) == fragment {
			return true
		}
	}
	return false
}

// TestDocumentedSQL runs the statements of the pages that TestOperations does not follow, each in a
// transaction on a database with an outbox. A table that a page shows must be the one that migrate creates. (TestDocumentedRole runs
// those of docs/security.md, TestDocumentedRoles those of docs/roles.md, and
// TestReplacingAPoller those of docs/replacing-a-poller.md.)
func TestDocumentedSQL(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../../docs/*.md")
	rig.Must(t, err)
	db := pgtest.DatabaseOn(t, pgtest.Start(t, pgserver.Config{})) // TestOperations has its roles on the shared server
	rig.Migrate(t, db.DSN)
	db.Exec(t, `CREATE PUBLICATION outbox_cdc FOR TABLE outbox`)
	conn := db.Conn(t)
	statements := 0
	for _, page := range append(pages, "../../README.md") {
		if slices.Contains(append(doctest.FollowedPages(), "security.md", "roles.md", "replacing-a-poller.md"), filepath.Base(page)) {
			continue
		}
		for _, s := range readPage(t, page) {
			for _, b := range s.blocks {
				if b.lang == "sql" {
					statements++
					tryStatements(t, conn, page, b.text)
				}
			}
		}
	}
	if statements < 4 {
		t.Errorf("only %d blocks of SQL", statements)
	}
}

// TestDocumentedChild creates the child by inheritance of docs/tables.md, and writes to it.
func TestDocumentedChild(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	rig.Migrate(t, db.DSN)
	db.Exec(t, `CREATE PUBLICATION outbox_cdc FOR TABLE outbox`)
	for _, s := range readPage(t, "../../docs/tables.md") {
		if s.title == "Inheritance" {
			db.Exec(t, s.blocks[0].text)
		}
	}
	const write = `INSERT INTO %s (id, aggregatetype, aggregateid, type) VALUES (gen_random_uuid(), 'order', '1', 'OrderPaid')`
	for _, table := range []string{"outbox", "outbox_2027", "outbox"} {
		db.Exec(t, fmt.Sprintf(write, table))
	}
	if got := pgtest.QueryRow[string](t, db, `SELECT string_agg(tableoid::regclass::text, ' ' ORDER BY position) FROM outbox`); got != "outbox outbox_2027 outbox" {
		t.Errorf("by position: %s", got)
	}
}

// tryStatements runs a block and rolls it back.
func tryStatements(t *testing.T, conn *pgx.Conn, page, text string) {
	t.Helper()
	const table = `SELECT string_agg(concat_ws(' ', column_name, data_type, is_nullable, is_identity, column_default), ', ' ORDER BY ordinal_position)
		FROM information_schema.columns WHERE table_name = 'outbox'`
	made := rig.Ask[string](t, conn, table)
	_, err := conn.Exec(t.Context(), `BEGIN`)
	rig.Must(t, err)
	shown := strings.HasPrefix(text, "CREATE TABLE outbox ")
	if shown {
		_, err = conn.Exec(t.Context(), `DROP TABLE outbox`)
		rig.Must(t, err)
	}
	if _, err := conn.Exec(t.Context(), text); err != nil {
		t.Errorf("%s: %v\n%s", page, err, text)
	} else if now := rig.Ask[string](t, conn, table); shown && now != made {
		t.Errorf("%s shows a table with %s\nmigrate creates %s", page, now, made)
	}
	_, err = conn.Exec(t.Context(), `ROLLBACK`)
	rig.Must(t, err)
}

// TestPattern compiles the Go code of docs/pattern.md.
func TestPattern(t *testing.T) {
	t.Parallel()
	c := doctest.NewChecker(t, "context", "errors", "github.com/jackc/pgx/v5", "github.com/jackc/pgx/v5/pgxpool",
		"github.com/outbox-cdc/outbox-cdc/inbox", "github.com/outbox-cdc/outbox-cdc/outbox")
	page, err := os.ReadFile("../../docs/pattern.md")
	rig.Must(t, err)
	if err := c.CheckPage(string(page), "(ctx context.Context, tx pgx.Tx, p OrderPaid, e outbox.Event) error"); err != nil {
		t.Error(err)
	}
}
