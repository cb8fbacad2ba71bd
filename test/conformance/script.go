package conformance

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// A script is SQL as psql runs it from a file: one statement after the other, each in its own transaction
// unless it is between BEGIN and COMMIT. The data of COPY … FROM STDIN follows the statement and ends with
// a line of \. A line "-- session: NAME" runs the following statements on the connection with that name.
type script []statement

type statement struct {
	session string // empty: the first one
	sql     string
	data    string // of COPY
}

var sessionLine = regexp.MustCompile(`^-- session: (\S+)\s*$`)

var copyFromStdin = regexp.MustCompile(`(?is)^\s*COPY\s.*\sFROM\s+STDIN\b`)

// parseScript splits text into statements.
func parseScript(text string) (script, error) {
	var script script
	session := ""
	for text != "" {
		line, rest, _ := strings.Cut(text, "\n")
		if m := sessionLine.FindStringSubmatch(line); m != nil {
			session, text = m[1], rest
			continue
		}
		if line := strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "--") {
			text = rest
			continue
		}
		n, err := statementEnd(text)
		if err != nil {
			return nil, err
		}
		s := statement{session: session, sql: text[:n]}
		text = text[n:]
		if copyFromStdin.MatchString(s.sql) {
			_, text, _ = strings.Cut(text, "\n")
			var ended bool
			if s.data, text, ended = strings.Cut(text, "\n\\.\n"); !ended {
				return nil, fmt.Errorf("data of %q has no end, which is a backslash and a dot", s.sql)
			}
			s.data += "\n"
		}
		script = append(script, s)
	}
	return script, nil
}

var dollarTag = regexp.MustCompile(`^\$[A-Za-z_]*\$`)

// statementEnd returns the length of the first statement in text, its semicolon included.
// (PostgreSQL manual, "Lexical Structure"; standard_conforming_strings is on.)
func statementEnd(text string) (int, error) {
	for i := 0; i < len(text); i++ {
		var end int // end of the token that starts at i, relative to i
		switch c := text[i]; {
		case c == ';':
			return i + 1, nil
		case c == '\'' && i > 0 && (text[i-1] == 'E' || text[i-1] == 'e'):
			end = escapedEnd(text[i:])
		case c == '\'' || c == '"':
			end = strings.IndexByte(text[i+1:], c) + 1 // a doubled quote counts as two strings
		case c == '$' && dollarTag.MatchString(text[i:]):
			tag := dollarTag.FindString(text[i:])
			if end = strings.Index(text[i+len(tag):], tag); end >= 0 {
				end += 2*len(tag) - 1
			}
		case strings.HasPrefix(text[i:], "--"):
			end = strings.IndexByte(text[i:], '\n')
		default:
			continue
		}
		if end <= 0 {
			return 0, fmt.Errorf("%q does not end", text[i:min(len(text), i+40)])
		}
		i += end
	}
	return 0, fmt.Errorf("statement %q does not end in a semicolon", text[:min(len(text), 40)])
}

// escapedEnd returns the end of the string with backslash escapes at the start of text.
func escapedEnd(text string) int {
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '\'':
			return i
		}
	}
	return -1
}

// run sends the statements to the database at dsn, and stops at the first error.
func (s script) run(ctx context.Context, dsn string) (err error) {
	sessions := map[string]*pgx.Conn{}
	defer func() {
		for _, conn := range sessions {
			err = errors.Join(err, conn.Close(ctx))
		}
	}()
	for _, st := range s {
		conn := sessions[st.session]
		if conn == nil {
			if conn, err = pgx.Connect(ctx, dsn); err != nil {
				return err
			}
			sessions[st.session] = conn
		}
		if err := st.run(ctx, conn.PgConn()); err != nil {
			return fmt.Errorf("%s: %w", strings.TrimSpace(st.sql[:min(len(st.sql), 100)]), err)
		}
	}
	return nil
}

func (s statement) run(ctx context.Context, conn *pgconn.PgConn) error {
	if s.data != "" {
		_, err := conn.CopyFrom(ctx, strings.NewReader(s.data), strings.TrimSuffix(s.sql, ";"))
		return err
	}
	return conn.Exec(ctx, s.sql).Close()
}
