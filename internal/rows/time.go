package rows

import (
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
	"github.com/outbox-cdc/outbox-cdc/internal/pgtime"
)

// TimeOf returns a function that returns the time of a row of t, by the column with the given name. values are those of
// [TableRouter.Route]. The time is zero if t has no such timestamp, if it is NULL, and if no record can have it as its timestamp.
func TimeOf(t catalog.Table, column string) func(values [][]byte) time.Time {
	i := slices.IndexFunc(t.Columns, func(c catalog.Column) bool {
		return c.Name == column && (c.TypeOID == pgtype.TimestampOID || c.TypeOID == pgtype.TimestamptzOID)
	})
	if i < 0 {
		return func([][]byte) time.Time { return time.Time{} }
	}
	zoned := t.Columns[i].TypeOID == pgtype.TimestamptzOID
	return func(values [][]byte) time.Time {
		ms, err := pgtime.Millis(values[i], zoned)
		if err != nil || ms < 0 {
			return time.Time{}
		}
		return time.UnixMilli(ms)
	}
}
