package rabbitmq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// writeCheckWait is how long the broker may take to respond to the check of a permission. It does not respond while it
// blocks the connection.
const writeCheckWait = 5 * time.Second

// CheckDestinations implements [sink.Sink].
func (b *broker) CheckDestinations(ctx context.Context, destinations ...string) error {
	servers := b.cfg.newDialer()
	defer servers.network.Close()
	var k *connection
	return b.CheckEach(ctx, destinations, func(ctx context.Context, name string) (err error) {
		if k == nil || k.IsClosed() {
			if k, err = servers.connectAny(ctx); err != nil {
				return err
			}
		}
		defer context.AfterFunc(ctx, servers.network.Abort)()
		d, _ := splitDestination(name)
		return k.checkDestination(d, b.cfg.User)
	})
}

// checkDestination returns an error that wraps sink.ErrMissing if a destination does not exist, or sink.ErrAccess if the
// user may not write to it. In an alarm, the broker reads no further request of a connection that has published, not even the end of a
// channel: checkDestination then returns a *blockedError, and leaves a request behind that ends with the connection.
func (k *connection) checkDestination(d destination, user string) error {
	reason, changed := k.alarm.state()
	if reason != "" {
		return &blockedError{k.addr, reason}
	}
	checked := make(chan error, 1)
	go func() {
		err := k.checkExists(d, user)
		if err == nil {
			err = k.checkWrite(d, user)
		}
		checked <- err
	}()
	select {
	case err := <-checked:
		if reason, _ = k.alarm.state(); err == nil && reason != "" {
			return &blockedError{k.addr, reason}
		}
		return err
	case <-changed:
		reason, _ = k.alarm.state()
		return &blockedError{k.addr, cmp.Or(reason, "for a moment")}
	}
}

// checkExists returns an error that wraps sink.ErrMissing if a destination does not exist.
func (k *connection) checkExists(d destination, user string) error {
	ch, err := k.Channel()
	if err != nil {
		return err
	}
	defer ch.Close()
	if d.exchange == "" {
		_, err = ch.QueueDeclarePassive(d.routingKey, true, false, false, false, nil)
	} else {
		err = ch.ExchangeDeclarePassive(d.exchange, amqp.ExchangeTopic, true, false, false, false, nil)
	}
	if e, ok := errors.AsType[*amqp.Error](err); ok && e.Server {
		switch code := errorOf(e.Code); {
		case code.class == missing:
			return missingError(d)
		case e.Code == amqp.AccessRefused:
			return deniedError(d, user)
		case e.Code != amqp.ResourceLocked && e.Code != amqp.PreconditionFailed: // it exists
			return fmt.Errorf("%s: %s: %w", k.addr, d, code)
		}
		return nil
	}
	return err
}

// checkWrite returns an error that wraps sink.ErrAccess if the user may not write to a destination. AMQP has no request for
// that. So it publishes a message whose properties are invalid: the broker checks the permissions first, then rejects the
// message, and stores nothing.
func (k *connection) checkWrite(d destination, user string) error {
	ch, err := k.Channel()
	if err != nil {
		return err
	}
	defer ch.Close()
	if err := ch.Confirm(false); err != nil {
		return err
	}
	closes := ch.NotifyClose(make(chan *amqp.Error, 1))
	confirm, err := ch.PublishWithDeferredConfirm(d.exchange, d.routingKey, true, false, amqp.Publishing{
		Expiration: "outbox-cdc checks the permission to write", UserId: "outbox-cdc checks the permission to write",
	})
	if err != nil {
		return err
	}
	select {
	case <-confirm.Done():
		if confirm.Acked() {
			return nil
		}
		return k.writeCheckResult(<-closes, d, user)
	case <-time.After(writeCheckWait):
		return fmt.Errorf("%s: no response to the check of %s in %s (does the broker block publishing?)", k.addr, d, writeCheckWait)
	}
}

// writeCheckResult returns the error for the reason e for which the broker has closed the channel of a check.
func (k *connection) writeCheckResult(e *amqp.Error, d destination, user string) error {
	switch {
	case e == nil || !e.Server:
		return fmt.Errorf("%s: %w", k.addr, errLost)
	case e.Code == amqp.AccessRefused:
		return deniedError(d, user)
	case e.Code == amqp.NotFound:
		return missingError(d)
	case e.Code == amqp.PreconditionFailed:
		return nil
	}
	return fmt.Errorf("%s: %s: %w", k.addr, d, errorOf(e.Code))
}
