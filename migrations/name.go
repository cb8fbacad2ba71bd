package migrations

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// maxName is the number of bytes of an identifier that Postgres keeps. It truncates longer ones with a
// notice (https://www.postgresql.org/docs/current/sql-syntax-lexical.html).
const maxName = 63

var (
	quotedName = regexp.MustCompile(`^"(?:[^"\x00]|"")+"`)
	plainName  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_$]*`)
)

// A name is one identifier. If it was given in double quotes, it is printed in double quotes.
type name struct {
	text   string // as stored in the catalog
	quoted bool
}

func (n name) String() string {
	if !n.quoted {
		return n.text
	}
	return `"` + strings.ReplaceAll(n.text, `"`, `""`) + `"`
}

// with returns n with a suffix.
func (n name) with(suffix string) name { return name{n.text + suffix, n.quoted} }

// A tableName is the name of a table.
type tableName struct {
	schema name // its text is empty if none was given
	table  name
}

// sibling returns the SQL of an object named n in the schema of t.
func (t tableName) sibling(n name) string {
	if t.schema.text == "" {
		return n.String()
	}
	return t.schema.String() + "." + n.String()
}

func (t tableName) String() string { return t.sibling(t.table) }

// parseTable parses a table name as SQL does: one or two identifiers, in double quotes or folded to lower
// case.
func parseTable(s string) (tableName, error) {
	first, rest, err := parseName(s)
	if err != nil {
		return tableName{}, fmt.Errorf("table %q: %w", s, err)
	}
	if rest == "" {
		return tableName{table: first}, nil
	}
	rest, dot := strings.CutPrefix(rest, ".")
	if !dot {
		return tableName{}, fmt.Errorf("table %q: want a name or schema.name", s)
	}
	second, rest, err := parseName(rest)
	if err == nil && rest != "" {
		err = errors.New("want a name or schema.name")
	}
	if err != nil {
		return tableName{}, fmt.Errorf("table %q: %w", s, err)
	}
	return tableName{schema: first, table: second}, nil
}

// parseName parses the identifier at the start of s, and returns the rest.
func parseName(s string) (_ name, rest string, err error) {
	var n name
	if q := quotedName.FindString(s); q != "" {
		n = name{strings.ReplaceAll(q[1:len(q)-1], `""`, `"`), true}
		rest = s[len(q):]
	} else {
		p := plainName.FindString(s)
		n = name{strings.ToLower(p), false}
		rest = s[len(p):]
	}
	switch {
	case n.text == "":
		return name{}, "", errors.New("not an SQL identifier; put unusual names in double quotes")
	case len(n.text) > maxName:
		return name{}, "", fmt.Errorf("identifier of more than %d bytes", maxName)
	}
	return n, rest, nil
}

// literal returns s as an SQL string constant.
func literal(s string) string {
	return `'` + strings.ReplaceAll(s, `'`, `''`) + `'`
}
