package cli_test

import (
	"testing"

	"github.com/outbox-cdc/outbox-cdc/internal/cli"
	"github.com/outbox-cdc/outbox-cdc/test/kit/pgtest"
	"github.com/outbox-cdc/outbox-cdc/test/kit/scripttest"
)

func TestMain(m *testing.M) {
	scripttest.Main(pgtest.Wrap(m), map[string]scripttest.Program{"outbox-cdc": cli.Main})
}

func TestScripts(t *testing.T) { scripttest.Run(t, "testdata/script") }

func TestServerScripts(t *testing.T) { scripttest.RunOnServers(t, "testdata/servers") }
