package catalog

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/replication"
)

// A ColumnDescription is the definition of a column. The stream has only the name and the type OID
// of a column.
type ColumnDescription struct {
	Name     string
	Type     TypeDescription
	Nullable bool // false for a column, or a domain, that is NOT NULL

	// Default is the value of the column's default in the text format of the stream. It is nil if
	// there is no default, or if the default is not a constant. A constant may use immutable
	// built-in functions, but not, for example, now() or a user-defined function.
	Default *string
}

// A TypeDescription is a data type. For a domain it is the base type.
type TypeDescription struct {
	OID      uint32
	Name     string           // pg_type.typname
	Kind     byte             // pg_type.typtype, never 'd'
	Modifier int32            // for a domain, that of the domain; -1: none
	Elem     *TypeDescription // for an array: the element type, with the array's modifier
	Labels   []string         // for an enum: its labels, in order

	// MoneyPlaces is the number of decimal places of money, if the currency of lc_monetary does not have 2. See
	// [replication.Reading].
	MoneyPlaces *int
}

// Describe reads the definitions of columns of a table over a new connection, without locking the table. The columns and
// their types are those of the stream, which may have been altered or dropped since, with the whole table: a column that
// the table does not have is nullable and has no default, and a type that does not exist has no Name.
// The role needs neither REPLICATION nor SELECT on the table.
// https://www.postgresql.org/docs/current/catalog-pg-attribute.html
func Describe(ctx context.Context, conn *pgconn.Config, table uint32, columns []Column) ([]ColumnDescription, error) {
	settings := replication.ReadOnly(replication.Reading(conn))
	settings.RuntimeParams["search_path"] = replication.OutputPath // also makes the text of pg_get_expr unambiguous
	settings.RuntimeParams["statement_timeout"] = statementTimeout
	c, err := connect(ctx, settings)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close(ctx) }()
	attributes, err := readAttributes(ctx, c, table)
	if err != nil {
		return nil, err
	}
	types, err := readTypes(ctx, c, columns)
	if err != nil {
		return nil, err
	}
	if err := types.readPlaces(ctx, c); err != nil {
		return nil, err
	}
	described := make([]ColumnDescription, len(columns))
	for i, column := range columns {
		d := ColumnDescription{Name: column.Name, Type: types.describe(column.TypeOID, column.TypeModifier), Nullable: true}
		if a, ok := attributes[column.Name]; ok {
			d.Nullable = a.nullable
			if a.typ == column.TypeOID {
				if d.Default, err = constant(ctx, c, a, d.Type); err != nil {
					return nil, err
				}
			}
		}
		described[i] = d
	}
	return described, nil
}

// An attribute is a row of pg_attribute.
type attribute struct {
	name     string
	typ      uint32
	nullable bool
	constant string // the expression of its default, if that is a constant
}

// firstObject is the lowest OID of a user-defined object (FirstNormalObjectId). Functions from there
// on are user-defined. The relay must not call them, because they would run with its privileges.
const firstObject = "16384"

// readAttributes returns the columns of a table by name.
func readAttributes(ctx context.Context, conn executor, table uint32) (map[string]attribute, error) {
	rows, err := query(ctx, conn, func(row pgx.CollectableRow) (a attribute, err error) {
		return a, row.Scan(&a.name, &a.typ, &a.nullable, &a.constant)
	}, "describe the columns", `
		SELECT a.attname, a.atttypid, NOT (a.attnotnull OR t.typtype = 'd' AND t.typnotnull),
			CASE WHEN d.adbin::text ~ '\{(SQLVALUEFUNCTION|NEXTVALUEEXPR|VAR|PARAM|SUBLINK) ' THEN ''
				WHEN EXISTS (
					SELECT FROM pg_catalog.regexp_matches(d.adbin::text, ':(?:op)?funcid (\d+)', 'g') m
					LEFT JOIN pg_catalog.pg_proc p ON p.oid = m[1]::oid AND p.provolatile = 'i' AND p.oid < `+firstObject+`
					WHERE p.oid IS NULL) THEN ''
				WHEN d.adbin::text ~ '\{COERCETODOMAIN ' AND EXISTS (
					SELECT FROM pg_catalog.regexp_matches(d.adbin::text, ':resulttype (\d+)', 'g') m
					JOIN pg_catalog.pg_constraint c ON c.contypid = m[1]::oid AND c.contype = 'c') THEN ''
				ELSE COALESCE(pg_catalog.pg_get_expr(d.adbin, d.adrelid), '') END
		FROM pg_catalog.pg_attribute a
		JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
		LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum AND a.attgenerated = ''
		WHERE a.attrelid = $1::oid AND a.attnum > 0 AND NOT a.attisdropped`, oid(table))
	attributes := make(map[string]attribute, len(rows))
	for _, a := range rows {
		attributes[a.name] = a
	}
	return attributes, err
}

func oid(n uint32) string { return strconv.FormatUint(uint64(n), 10) }

// A typeRow is a row of pg_type.
type typeRow struct {
	oid      uint32
	name     string
	kind     string
	base     uint32 // for a domain
	modifier int32  // for a domain
	elem     uint32 // for an array
	labels   []string
	places   *int // see TypeDescription.MoneyPlaces
}

// A typeTable has the types of columns, and their base and element types, by OID.
type typeTable map[uint32]typeRow

func readTypes(ctx context.Context, conn executor, columns []Column) (typeTable, error) {
	oids := make([]string, len(columns))
	for i, c := range columns {
		oids[i] = oid(c.TypeOID)
	}
	rows, err := query(ctx, conn, func(row pgx.CollectableRow) (t typeRow, err error) {
		return t, row.Scan(&t.oid, &t.name, &t.kind, &t.base, &t.modifier, &t.elem, &t.labels)
	}, "describe the types", `
		WITH RECURSIVE used (oid) AS (
			SELECT pg_catalog.unnest($1::oid[])
			UNION
			SELECT CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.typelem END
			FROM used JOIN pg_catalog.pg_type t USING (oid) WHERE t.typtype = 'd' OR t.typcategory = 'A' AND t.typelem <> 0)
		SELECT t.oid, typname, typtype::text, typbasetype, typtypmod, CASE WHEN typcategory = 'A' THEN typelem ELSE 0 END,
			ARRAY(SELECT enumlabel::text FROM pg_catalog.pg_enum e WHERE e.enumtypid = t.oid ORDER BY enumsortorder)
		FROM used JOIN pg_catalog.pg_type t USING (oid)`, arrayLiteral(oids))
	types := make(typeTable, len(rows))
	for _, t := range rows {
		types[t.oid] = t
	}
	return types, err
}

// moneyOID is the OID of money.
const moneyOID = 790

// readPlaces reads the decimal places of money, if it is in types.
func (types typeTable) readPlaces(ctx context.Context, conn executor) error {
	t, ok := types[moneyOID]
	if !ok {
		return nil
	}
	places, err := queryOne(ctx, conn, pgx.RowTo[int], "read the decimal places of money", `
		SELECT pg_catalog.log(('x' || pg_catalog.encode(pg_catalog.cash_send(1::pg_catalog.money), 'hex'))::bit(64)::bigint)::int`)
	if err == nil && *places != 2 {
		t.places = places
		types[moneyOID] = t
	}
	return err
}

// describe returns the description of a type. It replaces a domain by its base type.
func (types typeTable) describe(oid uint32, modifier int32) TypeDescription {
	t := types[oid]
	for t.kind == "d" {
		modifier = t.modifier // a column of a domain type has no modifier
		t = types[t.base]
	}
	d := TypeDescription{OID: t.oid, Name: t.name, Modifier: modifier, Labels: t.labels, MoneyPlaces: t.places}
	if t.kind != "" { // empty if the type was dropped
		d.Kind = t.kind[0]
	}
	if t.elem != 0 {
		d.Elem = new(types.describe(t.elem, modifier))
	}
	return d
}

// constant evaluates a default. It returns nil for one that cannot be evaluated, such as 1/0.
func constant(ctx context.Context, conn executor, a attribute, t TypeDescription) (*string, error) {
	if a.constant == "" {
		return nil, nil
	}
	doing := fmt.Sprintf("evaluate the default of column %q", a.name)
	name, err := queryOne(ctx, conn, pgx.RowTo[string], doing, "SELECT pg_catalog.format_type($1::oid, $2::int)",
		oid(t.OID), strconv.Itoa(int(t.Modifier)))
	if err != nil {
		return nil, err
	}
	value, err := queryOne(ctx, conn, func(row pgx.CollectableRow) (text *string, err error) {
		if raw := row.RawValues()[0]; raw != nil {
			text = new(string(raw))
		}
		return text, nil
	}, doing, "SELECT ("+a.constant+")::"+*name)
	switch class := sqlState(err); {
	case strings.HasPrefix(class, "22"), strings.HasPrefix(class, "23"), strings.HasPrefix(class, "42"):
		return nil, nil // the error is about the expression, not about the server
	}
	if err != nil || value == nil {
		return nil, err
	}
	return *value, nil
}
