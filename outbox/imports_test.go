package outbox_test

import (
	"os/exec"
	"strings"
	"testing"
)

// A service that writes events links this package: it must not bring along the relay, nor anything
// that pgx does not bring anyway.
func TestImports(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	allowed := []string{
		"github.com/outbox-cdc/outbox-cdc/outbox", "github.com/google/uuid", "github.com/jackc/pgx/v5",
		"github.com/jackc/pgpassfile", "github.com/jackc/pgservicefile", "golang.org/x/text", // of pgx
	}
	for pkg := range strings.FieldsSeq(string(out)) {
		ok := false
		for _, a := range allowed {
			ok = ok || pkg == a || strings.HasPrefix(pkg, a+"/")
		}
		if !ok {
			t.Errorf("package outbox depends on %s", pkg)
		}
	}
}
