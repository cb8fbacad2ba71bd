package sqs

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/outbox-cdc/outbox-cdc/test/kit/awstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(awstest.Wrap(m)) }
