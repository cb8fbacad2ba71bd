package replication

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
)

// Covers says whether a publication delivers every row that is inserted into the tables, named as
// in [SetupConfig.Tables]: itself, as a partition of what is published, or by all its partitions. The
// error wraps ErrPublication or ErrConfig and says how to mend it.
func Covers(ctx context.Context, conn *pgconn.Config, publication string, tables []string) error {
	c, err := connect(ctx, ordinary(conn))
	if err != nil {
		return err
	}
	s := &setup{cfg: SetupConfig{Conn: conn, Publication: publication, Tables: tables}, conn: c}
	defer s.close(ctx)
	server, err := readServer(ctx, c)
	if err != nil {
		return err
	}
	p, err := readPublication(ctx, c, server.ServerVersion, publication)
	if err != nil {
		return err
	}
	if p == nil {
		return fmt.Errorf("%w: publication %q does not exist in database %q", ErrPublication, publication, server.Database)
	}
	refs, err := s.tables(ctx)
	if err != nil {
		return err
	}
	return p.covers(refs)
}
