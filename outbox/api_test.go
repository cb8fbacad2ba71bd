package outbox_test

import (
	"strings"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/kit/apitest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/doctest"
)

// Writing an event outside a transaction does not compile.
func TestNothingButATransactionCompiles(t *testing.T) {
	c := doctest.NewChecker(t, "context", "database/sql", "github.com/jackc/pgx/v5", "github.com/jackc/pgx/v5/pgxpool",
		"github.com/jackc/pgx/v5/pgconn", "github.com/outbox-cdc/outbox-cdc/outbox")
	const pgxTx, sqlTx = "pgx.Tx *pgxpool.Tx", "*sql.Tx"
	none := "*pgxpool.Pool *pgxpool.Conn *pgx.Conn *pgconn.PgConn *sql.DB *sql.Conn"
	for call, takes := range map[string]string{
		"outbox.Write": pgxTx, "outbox.WriteMessage": pgxTx, "outbox.WriteSQL": sqlTx, "outbox.WriteMessageSQL": sqlTx,
		"(&outbox.Writer{}).Write": pgxTx, "(&outbox.Writer{}).WriteMessage": pgxTx, "(&outbox.Writer{}).WriteSQL": sqlTx, "(&outbox.Writer{}).WriteMessageSQL": sqlTx,
	} {
		for target := range strings.FieldsSeq(none + " " + pgxTx + " " + sqlTx) {
			err := c.Check("func _(ctx context.Context, target " + target + ", e outbox.Event) error { return " + call + "(ctx, target, e) }")
			if compiles := strings.Contains(" "+takes+" ", " "+target+" "); compiles && err != nil {
				t.Errorf("%s with a %s: %v", call, target, err)
			} else if !compiles && (err == nil || !strings.Contains(err.Error(), "cannot use target")) {
				t.Errorf("%s with a %s compiles or fails otherwise: %v", call, target, err)
			}
		}
	}
}

func TestEverySymbolHasAnExample(t *testing.T) { apitest.Examples(t, "outbox") }

func TestImports(t *testing.T) { apitest.Imports(t, "outbox") }
