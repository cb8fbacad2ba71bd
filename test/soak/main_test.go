// Package soak breaks everything around the relay at random under load, and has package oracle
// judge what comes out and every position that is confirmed.
//
//   - OUTBOX_TEST_SOAK is the number of strikes, OUTBOX_TEST_SEED chooses them, and
//     OUTBOX_TEST_JOURNAL names a file for what the writers did.
//   - OUTBOX_TEST_MUTATION_CYCLES is the number of strikes in which the oracle has to notice
//     each bug that is planted in the relay.
package soak

import (
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/kit/rig"
)

func TestMain(m *testing.M) { rig.Main(m) }
