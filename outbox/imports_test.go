package outbox_test

import (
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/kit/apitest"
)

func TestImports(t *testing.T) { apitest.Imports(t, "outbox") }
