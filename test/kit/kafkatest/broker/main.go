//go:build unix

// Broker starts and stops a real Kafka broker that the tests of all packages
// share:
//
//	export OUTBOX_TEST_KAFKA=$(go run ./test/kit/kafkatest/broker up)
//	go test ./...
//	go run ./test/kit/kafkatest/broker down
//
// There is one broker per user. Up starts it unless it runs already, and prints
// its address when it serves requests. Down stops it and removes its data. Run
// runs the broker in the foreground until it is interrupted.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/outbox-cdc/outbox-cdc/test/kit/kafkatest"
)

const (
	startTimeout = 5 * time.Minute // the first start downloads Kafka
	stopTimeout  = 30 * time.Second
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := dispatch(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "broker:", err)
		os.Exit(1)
	}
}

func dispatch(ctx context.Context, args []string, stdout io.Writer) error {
	if len(args) != 1 {
		return errors.New("usage: broker up|down|run")
	}
	state, err := stateOfUser()
	if err != nil {
		return err
	}
	switch args[0] {
	case "up":
		return up(ctx, state, stdout)
	case "down":
		return down(ctx, state)
	case "run":
		return run(ctx, state, stdout)
	default:
		return fmt.Errorf("unknown command %q; usage: broker up|down|run", args[0])
	}
}

// run starts the broker, prints its address and stops the broker when ctx is done.
func run(ctx context.Context, state state, stdout io.Writer) error {
	claim, err := state.claim(ctx)
	if err != nil {
		return err
	}
	defer claim.release()
	starting, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	server, err := kafkatest.Launch(starting, kafkatest.Config{
		Log: os.Stderr,
		// No test kills this broker. On a busy machine, a late heartbeat must not fence it.
		Properties: map[string]string{"broker.session.timeout.ms": "60000"},
	})
	if err != nil {
		return err
	}
	addr := server.Addrs[0]
	if err := claim.publish(addr); err != nil {
		return errors.Join(err, server.Stop())
	}
	fmt.Fprintln(stdout, addr)
	<-ctx.Done()
	return server.Stop()
}
