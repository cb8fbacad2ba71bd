package soak

import (
	"os"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
)

func TestMain(m *testing.M) {
	// The credentials of relays that send to a server of package awstest.
	os.Setenv("AWS_ACCESS_KEY_ID", "id")
	os.Setenv("AWS_SECRET_ACCESS_KEY", "key")
	rig.Main(m)
}
