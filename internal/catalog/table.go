package catalog

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/internal/terminal"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

// Tables are the outbox tables of a configuration, by name. A table that is renamed keeps its place here: until another table has
// the name, Tables finds it by its identity. It is safe for concurrent use.
type Tables struct {
	names []string // as in [SetupConfig.Tables]

	mu  sync.Mutex
	oid map[string]uint32 // of the table that had the name last
}

// NewTables returns Tables that know no identities yet.
func NewTables(names []string) *Tables { return &Tables{names: names, oid: make(map[string]uint32)} }

// String returns the names. t may be nil.
func (t *Tables) String() string {
	if t == nil {
		return ""
	}
	return strings.Join(t.names, ",")
}

// An Outbox is a table of the configuration, with every table whose rows are its rows.
type Outbox struct {
	Configured string // its name in the configuration
	Parts      []Part // the table itself, then its partitions and its children by inheritance, at any depth; empty: there is no such table
}

// A Part is a table whose rows are those of an [Outbox].
type Part struct {
	OID          uint32
	Schema, Name string

	Kind        string // pg_class.relkind
	Persistence string // pg_class.relpersistence

	ancestors  []uint32 // tables of which it is a partition
	placed     uint32   // changes whenever it is moved to a schema; 0: unknown
	refillable bool     // has the columns for a refill; false for a table that is a part of another one
}

// SQLName returns the name with its schema, quoted for SQL.
func (p Part) SQLName() string { return sqlName(p.Schema, p.Name) }

// text returns the name with its schema for an operator.
func (p Part) text() string { return p.Schema + "." + p.Name }

func sqlName(schema, name string) string {
	return replication.QuoteIdent(schema) + "." + replication.QuoteIdent(name)
}

// Kinds of [Part].
const (
	ordinaryTable    = "r"
	partitionedTable = "p"
	foreignTable     = "f"
)

// read looks up the tables and their parts. A name without a schema that is not in the role's search_path is that of a table of the
// publication, because the relay's role needs no rights on the schema.
func (t *Tables) read(ctx context.Context, conn executor, publication string) ([]Outbox, error) {
	if t == nil {
		return nil, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	var outboxes []Outbox
	for _, name := range t.names {
		o, err := readOutbox(ctx, conn, name, publication, t.oid[name])
		if err != nil {
			return nil, err
		}
		if len(o.Parts) > 0 {
			t.oid[name] = o.Parts[0].OID
		}
		outboxes = append(outboxes, o)
	}
	return outboxes, nil
}

// readOutbox looks up a table by its name or, if no table has the name, by known, the identity of the table that had it. It does not
// use to_regclass, which needs USAGE on the schema.
func readOutbox(ctx context.Context, conn executor, name, publication string, known uint32) (Outbox, error) {
	o := Outbox{Configured: name}
	doing := fmt.Sprintf("look up table %s", written(name))
	parts, err := query(ctx, conn, scanPart, doing, fmt.Sprintf(selectParts, ""), name)
	if err == nil && len(parts) == 0 {
		parts, err = query(ctx, conn, scanPart, doing, fmt.Sprintf(selectParts, unlessInPath), name, publication, oid(known))
		err = ExplainLock(ctx, conn, err, publication)
	}
	if code := sqlState(err); strings.HasPrefix(code, "42") && code != insufficientPrivilege || code == invalidParameterValue || code == featureNotSupported { // name is not valid
		return o, fmt.Errorf("%w: %w", replication.ErrConfig, err)
	}
	if err == nil && len(parts) > 0 {
		o.Parts = parts
	}
	return o, err
}

// FindOutbox looks up a table of the configuration, with its parts, as [Inspect] does. It has no parts if there is no such
// table.
func FindOutbox(ctx context.Context, conn *pgconn.PgConn, name, publication string) (*Outbox, error) {
	o, err := readOutbox(ctx, conn, name, publication, 0)
	return &o, err
}

// selectParts selects the table with the name $1 in the search_path or in its schema, and its parts. Its verb is for further places to
// look it up in, because the plan of [unlessInPath] takes Postgres five times as long as that of the rest.
const selectParts = `
	WITH RECURSIVE name AS (
		SELECT CASE WHEN pg_catalog.array_length(p, 1) < 3 THEN p[pg_catalog.array_length(p, 1) - 1] WHEN pg_catalog.array_length(p, 1) = 3 AND p[1] = pg_catalog.current_database() THEN p[2] END AS schema,
			p[pg_catalog.array_length(p, 1)] AS relation, pg_catalog.array_length(p, 1) > 3 OR pg_catalog.array_length(p, 1) = 3 AND p[1] <> pg_catalog.current_database() AS invalid
		FROM (SELECT pg_catalog.parse_ident($1) AS p) i),
	part(oid, depth) AS (
		SELECT COALESCE(
			(SELECT pg_catalog.to_regclass($1)::oid FROM name WHERE invalid),
			(SELECT c.oid FROM name, pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
				WHERE c.relname = relation AND c.relkind IN ('r', 'p') AND n.nspname = ANY (CASE WHEN schema IS NULL THEN pg_catalog.current_schemas(true) ELSE ARRAY[schema]::name[] END)
				ORDER BY pg_catalog.array_position(pg_catalog.current_schemas(true), n.nspname) LIMIT 1)%s), 0
		UNION
		SELECT i.inhrelid, part.depth + 1 FROM part JOIN pg_catalog.pg_inherits i ON i.inhparent = part.oid)
	SELECT c.oid, n.nspname, c.relname, c.relkind::text, c.relpersistence::text,
		ARRAY(SELECT relid::oid FROM pg_catalog.pg_partition_ancestors(c.oid) WHERE relid <> c.oid), ` + selectPlaced + `,
		part.depth = 0 AND (SELECT pg_catalog.count(*) = 2 FROM pg_catalog.pg_attribute a WHERE a.attrelid = c.oid AND NOT a.attisdropped
			AND (a.attname = '` + xidColumn + `' AND a.atttypid = 'pg_catalog.xid8'::regtype OR a.attname = '` + orderColumn + `'))
	FROM (SELECT oid, min(depth) AS depth FROM part GROUP BY oid) part
	JOIN pg_catalog.pg_class c ON c.oid = part.oid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
	ORDER BY part.depth, n.nspname, c.relname`

// selectPlaced selects which transaction has made the table c depend on its schema: the one that has created it or moved it there.
const selectPlaced = `
		COALESCE((SELECT d.xmin::text::bigint FROM pg_catalog.pg_depend d WHERE d.classid = 'pg_catalog.pg_class'::regclass AND d.objid = c.oid AND d.objsubid = 0
			AND d.refclassid = 'pg_catalog.pg_namespace'::regclass), 0)`

// unlessInPath selects, for selectParts, the only table with the name that the publication $2 has, perhaps by its partitions, or the
// table with the OID $3, or what else has the name. From 19 on, pg_publication_rel also has the tables that are excepted.
const unlessInPath = `,
			(SELECT min(c.oid::bigint)::oid FROM name, pg_catalog.pg_class c
				WHERE c.relname = relation AND schema IS NULL AND c.oid IN (
					SELECT r.prrelid FROM pg_catalog.pg_publication p JOIN pg_catalog.pg_publication_rel r ON r.prpubid = p.oid
						WHERE p.pubname = $2 AND pg_catalog.to_jsonb(r) ->> 'prexcept' IS DISTINCT FROM 'true'
					UNION SELECT whole.oid FROM pg_catalog.pg_publication_tables t
						JOIN pg_catalog.pg_namespace n ON n.nspname = t.schemaname JOIN pg_catalog.pg_class l ON l.relnamespace = n.oid AND l.relname = t.tablename
						CROSS JOIN LATERAL (SELECT l.oid UNION ALL SELECT relid::oid FROM pg_catalog.pg_partition_ancestors(l.oid)) whole (oid)
						WHERE t.pubname = $2)
				HAVING count(*) = 1),
			NULLIF($3::oid, 0),
			(SELECT min(c.oid::bigint)::oid FROM name, pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
				WHERE c.relname = relation AND n.nspname = ANY (CASE WHEN schema IS NULL THEN pg_catalog.current_schemas(true) ELSE ARRAY[schema]::name[] END))`

func scanPart(row pgx.CollectableRow) (p Part, err error) {
	return p, row.Scan(&p.OID, &p.Schema, &p.Name, &p.Kind, &p.Persistence, &p.ancestors, &p.placed, &p.refillable)
}

// findTable looks up an existing table as [Tables] does. name is written as in [SetupConfig.Tables].
func findTable(ctx context.Context, conn executor, name, publication, database string) (*Outbox, error) {
	o, err := readOutbox(ctx, conn, name, publication, 0)
	if err == nil {
		err = o.verify(database)
	}
	if err != nil {
		return nil, err
	}
	return &o, nil
}

// table returns the table itself.
func (o *Outbox) table() Part { return o.Parts[0] }

// asTable returns the table without its columns.
func (p Part) asTable() Table {
	return Table{OID: p.OID, Schema: p.Schema, Name: p.Name, Partitioned: p.Kind == partitionedTable, partition: len(p.ancestors) > 0}
}

// leaves returns the OIDs of the parts that store rows.
func (o *Outbox) leaves() []uint32 {
	var leaves []uint32
	for _, p := range o.Parts {
		if p.Kind != partitionedTable {
			leaves = append(leaves, p.OID)
		}
	}
	return leaves
}

// verify checks that the table exists and that the WAL has all of its rows.
func (o *Outbox) verify(database string) error {
	if len(o.Parts) == 0 {
		return o.noTable(database, "")
	}
	if kind := o.table().Kind; kind != ordinaryTable && kind != partitionedTable {
		return fmt.Errorf("%w: %s is not a table: name the table that has the rows in outbox.tables", replication.ErrConfig, written(o.Configured))
	}
	for i, p := range o.Parts {
		switch {
		case p.Kind == foreignTable:
			return fmt.Errorf("%w: table %s of %s is a foreign table: its rows are not in the WAL of this server; detach it, or send its rows from its own server", replication.ErrPublication, p.SQLName(), written(o.Configured))
		case p.Persistence == "p":
		case i == 0:
			return fmt.Errorf("%w: table %s is unlogged or temporary: its rows are not in the WAL; name another one in outbox.tables, or run: ALTER TABLE %[2]s SET LOGGED", replication.ErrConfig, written(o.Configured))
		default:
			return fmt.Errorf("%w: table %s of %s is unlogged or temporary: its rows are not in the WAL; run: ALTER TABLE %[2]s SET LOGGED", replication.ErrPublication, p.SQLName(), written(o.Configured))
		}
	}
	return nil
}

// noTable returns the error of a table that does not exist. first is what to do before a table is created; it may be empty.
func (o *Outbox) noTable(database, first string) error {
	return fmt.Errorf("%w: table %s does not exist in database %q, or not in the role's search_path; %sname your table in outbox.tables, or create it with: "+
		`outbox-cdc migrate up --dsn "$OWNER_DSN" --table %s; if that says that somebody has dropped it, do what it says, and grant the rights on it again (docs/roles.md#create-them)`,
		ErrNoTable, written(o.Configured), database, first, argument(o.Configured))
}

// written returns the name of a table as the configuration has it, in quotation marks unless it brings its own.
func written(name string) string {
	if strings.Contains(name, `"`) {
		return name
	}
	return strconv.Quote(name)
}

// argument returns the name of a table as a word of a shell.
func argument(name string) string {
	if strings.Contains(name, `"`) {
		return terminal.ShellQuote(name)
	}
	return name
}

// missing returns the first part whose rows p does not publish, or nil.
func (p *Publication) missing(o *Outbox) *Part {
	for i, part := range o.Parts {
		if part.Kind != partitionedTable && p.carrier(part) == nil {
			return &o.Parts[i]
		}
	}
	if len(o.leaves()) == 0 && !p.names(o.table()) { // its first partition would not be published
		return &o.Parts[0]
	}
	return nil
}

// names reports whether p publishes a table, and its future partitions, although pg_publication_tables may not have it.
func (p *Publication) names(t Part) bool {
	about := func(m member) bool { return m.table == t.OID || slices.Contains(t.ancestors, m.table) }
	if slices.ContainsFunc(p.excepted, about) {
		return false
	}
	return p.AllTables || len(p.schemas) > 0 || slices.ContainsFunc(p.members, about)
}

// isEmpty reports whether p has no table. A partitioned table without partitions is one, although pg_publication_tables may not have it.
func (p *Publication) isEmpty() bool {
	return len(p.Tables) == 0 && len(p.members) == 0 && !p.AllTables && len(p.schemas) == 0
}

// carrier returns the published table that has the rows of part: the table itself, or one of which it is a partition. It returns
// nil if they are not published.
func (p *Publication) carrier(part Part) *Table {
	i := slices.IndexFunc(p.Tables, func(t Table) bool { return t.OID == part.OID || slices.Contains(part.ancestors, t.OID) })
	if i < 0 {
		return nil
	}
	return &p.Tables[i]
}

// member returns the published table with this OID, or nil.
func (p *Publication) member(oid uint32) *Table { return p.carrier(Part{OID: oid}) }

// Carriers returns the published tables that have the rows of the outbox tables, as the stream names them. The other tables of
// the publication are the [State.Neighbours].
func (c *State) Carriers() []Table { return c.publishedTables(true) }

// Neighbours returns the published tables that are no outbox tables.
func (c *State) Neighbours() []Table { return c.publishedTables(false) }

// publishedTables returns the published tables that have rows of outbox tables, or those that have none.
func (c *State) publishedTables(outboxes bool) []Table {
	if c.Publication == nil {
		return nil
	}
	carries := make(map[uint32]bool)
	for i := range c.Outboxes {
		for _, part := range c.Outboxes[i].Parts {
			if t := c.Publication.carrier(part); t != nil {
				carries[t.OID] = true
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(c.Publication.Tables), func(t Table) bool { return carries[t.OID] != outboxes })
}
