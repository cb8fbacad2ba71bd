package rows

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
)

func TestTimeOf(t *testing.T) {
	table := catalog.Table{Columns: []catalog.Column{{Name: "id"}, {Name: "zoned", TypeOID: pgtype.TimestamptzOID}, {Name: "plain", TypeOID: pgtype.TimestampOID}, {Name: "day", TypeOID: pgtype.DateOID}}}
	at := time.Date(2026, 1, 31, 14, 0, 0, 500e6, time.UTC)
	for _, tc := range []struct {
		column, value string
		want          time.Time
	}{
		{"zoned", "2026-01-31 16:00:00.5+02", at},
		{"plain", "2026-01-31 14:00:00.5", at},
		{"plain", "infinity", time.Time{}},
		{"zoned", "-infinity", time.Time{}},
		{"zoned", "1960-01-01 00:00:00+00", time.Time{}},
		{"zoned", "0044-03-15 12:00:00+00 BC", time.Time{}},
		{"zoned", "", time.Time{}},
		{"day", "2026-01-31", time.Time{}},
		{"none", "2026-01-31 14:00:00.5", time.Time{}},
	} {
		var value []byte // NULL
		if tc.value != "" {
			value = []byte(tc.value)
		}
		if got := TimeOf(table, tc.column)([][]byte{[]byte("1"), value, value, value}); !got.Equal(tc.want) {
			t.Errorf("%s %q: %s", tc.column, tc.value, got)
		}
	}
}
