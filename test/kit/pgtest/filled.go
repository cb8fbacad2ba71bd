package pgtest

import (
	"sync"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/kit/pgserver"
)

// filled holds the databases that [FilledDatabase] copies. The shared servers keep them until they stop.
var filled struct { //nolint:gochecknoglobals // one per test binary is the point
	sync.Mutex
	names map[filledOn]string // of databases
}

type filledOn struct {
	server *pgserver.Server
	name   string
}

// FilledDatabase is like DatabaseOn, but the database has what fill writes. On a shared server, it is a copy of a database
// that fill has filled for an earlier call with the same name. fill must close its connections to the database.
func FilledDatabase(tb testing.TB, srv *pgserver.Server, name string, fill func(db *DB)) *DB {
	tb.Helper()
	var db *DB
	if isShared(srv) {
		db = create(tb, srv, " TEMPLATE "+original(tb, filledOn{srv, name}, fill))
	} else {
		db = DatabaseOn(tb, srv)
		fill(db)
	}
	db.Filled = name
	return db
}

// original returns the name of the database that is copied, and creates it if there is none yet.
func original(tb testing.TB, key filledOn, fill func(db *DB)) string {
	tb.Helper()
	filled.Lock()
	defer filled.Unlock() // also if fill fails the test
	name, ok := filled.names[key]
	if !ok {
		db := createKept(tb, key.server, "")
		fill(db)
		db.Disconnect(tb)
		if filled.names == nil {
			filled.names = make(map[filledOn]string)
		}
		name = db.Name
		filled.names[key] = name
	}
	return name
}
