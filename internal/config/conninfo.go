package config

import (
	"net/url"
	"slices"
	"strings"
)

// A param is one parameter of a connection string and where its value stands in it.
type param struct {
	name     string
	from, to int
}

// conninfoParams finds the parameters of a connection string that pgconn.ParseConfig takes, in the
// way it does. The host and database of a URL are left out. It reports false where it is
// not sure of the parts.
//
// The forms: https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-CONNSTRING
func conninfoParams(dsn string) ([]param, bool) {
	if isURL(dsn) {
		return urlParams(dsn, strings.Index(dsn, "://")+len("://"))
	}
	return keywordParams(dsn)
}

func isURL(dsn string) bool {
	return strings.HasPrefix(dsn, "postgres://") || strings.HasPrefix(dsn, "postgresql://")
}

// urlParams reads user:password@hosts/database?name=value&…, which begins at pos.
func urlParams(dsn string, pos int) ([]param, bool) {
	var params []param
	if i := strings.IndexAny(dsn[pos:], "@/"); i >= 0 && dsn[pos+i] == '@' {
		if colon := strings.IndexByte(dsn[pos:pos+i], ':'); colon >= 0 {
			params = append(params, param{"password", pos + colon + 1, pos + i})
		}
		pos += i + 1
	}
	// An @ further on may belong to a password with an unescaped slash.
	if strings.Contains(dsn[pos:], "@") {
		return nil, false
	}
	query := strings.IndexByte(dsn[pos:], '?')
	if query < 0 {
		return params, true
	}
	pos += query + 1
	for part := range strings.SplitSeq(dsn[pos:], "&") {
		raw, _, _ := strings.Cut(part, "=")
		name, err := url.PathUnescape(raw)
		if err != nil {
			return nil, false
		}
		params = append(params, param{strings.TrimSpace(name), min(pos+len(raw)+1, len(dsn)), pos + len(part)})
		pos += len(part) + 1
	}
	return params, true
}

const space = " \t\n\r\v\f"

// keywordParams reads name = value …, where a value may stand in single quotes and a
// backslash escapes what follows it.
func keywordParams(dsn string) ([]param, bool) {
	var params []param
	for pos := skipSpace(dsn, 0); pos < len(dsn); pos = skipSpace(dsn, pos) {
		eq := strings.IndexByte(dsn[pos:], '=')
		if eq < 0 {
			return nil, false
		}
		name := strings.TrimRight(dsn[pos:pos+eq], space)
		from := skipSpace(dsn, pos+eq+1)
		ends, closing := space, 0
		if strings.HasPrefix(dsn[from:], "'") {
			from, ends, closing = from+1, "'", 1
		}
		to := from
		for to < len(dsn) && strings.IndexByte(ends, dsn[to]) < 0 {
			if dsn[to] == '\\' {
				to++
			}
			to++
		}
		if to+closing > len(dsn) && closing > 0 {
			return nil, false
		}
		to = min(to, len(dsn))
		params = append(params, param{name, from, to})
		pos = to + closing
	}
	return params, true
}

func skipSpace(s string, pos int) int {
	for pos < len(s) && strings.IndexByte(space, s[pos]) >= 0 {
		pos++
	}
	return pos
}

// maskConninfo returns dsn with its passwords masked, or nothing but the mask if it is not
// sure where they are.
func maskConninfo(dsn string) string {
	params, ok := conninfoParams(dsn)
	if !ok {
		return mask
	}
	for _, p := range slices.Backward(params) {
		if name := strings.ToLower(p.name); strings.Contains(name, "password") || strings.Contains(name, "secret") {
			dsn = dsn[:p.from] + mask + dsn[p.to:]
		}
	}
	return dsn
}
