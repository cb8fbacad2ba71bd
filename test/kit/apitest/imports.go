package apitest

import (
	"os/exec"
	"strings"
	"testing"
)

// Imports fails the test if the package in the working directory, called name, depends on more than
// pgx, what pgx brings along, and uuid: a service links it, and must not get the relay or a Kafka
// client with it.
func Imports(t *testing.T, name string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	allowed := []string{
		"github.com/outbox-cdc/outbox-cdc/" + name, "github.com/google/uuid", "github.com/jackc/pgx/v5",
		"github.com/jackc/pgpassfile", "github.com/jackc/pgservicefile", "golang.org/x/text", // of pgx
	}
	for pkg := range strings.FieldsSeq(string(out)) {
		ok := false
		for _, a := range allowed {
			ok = ok || pkg == a || strings.HasPrefix(pkg, a+"/")
		}
		if !ok {
			t.Errorf("package %s depends on %s", name, pkg)
		}
	}
}
