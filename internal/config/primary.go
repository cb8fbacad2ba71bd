package config

import (
	"os"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// preferPrimary lets pg, which has the servers of dsn, connect to the primary only, if there are several and the user
// has not chosen a server by target_session_attrs. The slot of a former primary that is now a standby does not get the
// rows of the new one, and a copy of the primary's slot cannot be read.
func preferPrimary(pg *pgconn.Config, dsn string) {
	several := false
	for _, a := range pg.Fallbacks {
		several = several || a.Host != pg.Host || a.Port != pg.Port
	}
	chosen := strings.Contains(dsn, "target_session_attrs") || os.Getenv("PGTARGETSESSIONATTRS") != "" || pg.ValidateConnect != nil
	if several && !chosen {
		pg.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsPrimary
	}
}
