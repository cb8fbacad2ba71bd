package inboxredis

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/outbox-cdc/outbox-cdc/inbox/internal/lanes"
	"github.com/outbox-cdc/outbox-cdc/inbox/internal/sessions"
)

// readScript reads entries for the session that has the lock: pending ones from the id ARGV[5] on, or new ones if it is
// empty. It returns 0 if another session has the lock, and 1 if entries after ARGV[6] were read before: the client sends a
// script again if it gets no response.
//
//nolint:gochecknoglobals // never changes
var readScript = redis.NewScript(`
if redis.call('GET', KEYS[2]) ~= ARGV[1] then return 0 end
if ARGV[5] ~= '' then
	return redis.call('XAUTOCLAIM', KEYS[1], ARGV[2], ARGV[3], 0, ARGV[5], 'COUNT', ARGV[4])
end
for _, group in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
	local info = {}
	for i = 1, #group, 2 do info[group[i]] = group[i + 1] end
	if info['name'] == ARGV[2] and info['last-delivered-id'] ~= ARGV[6] then return 1 end
end
return redis.call('XREADGROUP', 'GROUP', ARGV[2], ARGV[3], 'COUNT', ARGV[4], 'STREAMS', KEYS[1], '>')`)

const (
	consumerName = "inbox"
	batch        = 100                    // entries that are read at a time
	blockTime    = 500 * time.Millisecond // of one wait for entries; a connection cannot be interrupted meanwhile
)

var (
	errLost   = errors.New("another instance has the stream")
	errMissed = errors.New("entries were read that this session has not got")
)

// A session is the time in which an instance has the lock of a stream.
type session struct {
	*consumer

	lanes *lanes.Group
	last  string // id of the last entry that was read as a new one

	mu      sync.Mutex
	handled []string      // ids to acknowledge
	ready   chan struct{} // of capacity 1: there may be some
}

// session handles entries until ctx is done, the lock is lost or something fails.
func (c *consumer) session(ctx context.Context) error {
	c.log.assigned(ctx)
	s := &session{consumer: c, ready: make(chan struct{}, 1)}
	work, stop := context.WithCancelCause(ctx)
	s.lanes = lanes.New(work, c.Concurrency, c.Window, c.p.Handle)
	var background sync.WaitGroup
	background.Go(func() { stop(s.keepLock(work)) })
	background.Go(func() {
		select {
		case <-s.lanes.Failed():
			stop(s.lanes.Err())
		case <-work.Done():
		}
	})
	acks, stopAcks := context.WithCancel(context.WithoutCancel(ctx))
	background.Go(func() { s.acknowledge(acks) })

	err := s.run(work)
	if cause := context.Cause(work); cause != nil {
		err = cause
	}
	stop(err)
	s.lanes.Close()
	stopAcks()
	background.Wait()
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
	defer cancel()
	c.lock.release(end)
	c.log.revoked(ctx)
	if failure := s.lanes.Err(); failure != nil {
		return sessions.Final(failure)
	}
	if errors.Is(err, errLost) || errors.Is(err, errMissed) {
		return nil
	}
	return err
}

// run claims the pending entries and then reads new ones.
func (s *session) run(ctx context.Context) error {
	groups, err := s.Client.XInfoGroups(ctx, s.stream).Result()
	if err != nil {
		return fmt.Errorf("inboxredis: look up the group: %w", err)
	}
	for _, g := range groups {
		if g.Name == s.Group {
			s.last = g.LastDeliveredID
		}
	}
	if err := s.claim(ctx); err != nil {
		return err
	}
	for ctx.Err() == nil {
		reply, err := s.read(ctx, "")
		if err != nil {
			return err
		}
		entries := newEntries(reply)
		if len(entries) == 0 {
			err = s.await(ctx)
		}
		for _, e := range entries {
			s.last = e.id
			if err := s.queue(ctx, e); err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// claim queues the pending entries of all consumers, in order.
func (s *session) claim(ctx context.Context) error {
	trimmed := 0
	for start := "0-0"; ; {
		reply, err := s.read(ctx, start)
		if err != nil {
			return err
		}
		page := parseClaim(reply)
		trimmed += page.deleted
		for _, e := range page.entries {
			if err := s.queue(ctx, e); err != nil {
				return err
			}
		}
		if start = page.next; start == "0-0" || start == "" {
			break
		}
	}
	if trimmed > 0 {
		s.log.trimmed(ctx, trimmed)
	}
	return nil
}

// read runs readScript.
func (s *session) read(ctx context.Context, start string) (any, error) {
	reply, err := readScript.Run(ctx, s.Client, []string{s.stream, s.lock.key},
		s.lock.owner, s.Group, consumerName, min(batch, s.Window), start, s.last).Result()
	switch {
	case errors.Is(err, redis.Nil):
		return nil, nil //nolint:nilnil // no entries
	case err != nil:
		return nil, fmt.Errorf("inboxredis: read the stream: %w", err)
	case reply == int64(0):
		return nil, errLost
	case reply == int64(1):
		return nil, errMissed
	}
	return reply, nil
}

// await waits until the stream has entries after the last one, or for blockTime.
func (s *session) await(ctx context.Context) error {
	err := s.Client.XRead(ctx, &redis.XReadArgs{Streams: []string{s.stream, s.last}, Count: 1, Block: blockTime}).Err()
	if err != nil && !errors.Is(err, redis.Nil) {
		return fmt.Errorf("inboxredis: wait for entries: %w", err)
	}
	return nil
}

// queue adds an entry to the lanes.
func (s *session) queue(ctx context.Context, e entry) error {
	return s.lanes.Add(ctx, Event(s.stream, e.id, e.fields), func() {
		s.mu.Lock()
		s.handled = append(s.handled, e.id)
		s.mu.Unlock()
		select {
		case s.ready <- struct{}{}:
		default:
		}
	})
}

// acknowledge acknowledges entries until ctx is done, and then once more those that are left. What it cannot acknowledge,
// the next session handles again, as duplicates.
func (s *session) acknowledge(ctx context.Context) {
	for {
		select {
		case <-s.ready:
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), requestTimeout)
			defer cancel()
			_ = s.ack(last) // see above
			return
		}
		if err := s.ack(ctx); err != nil {
			sessions.Sleep(ctx, sessions.RetryDelay)
		}
	}
}

// ack acknowledges the entries that are handled. If it fails, it keeps them.
func (s *session) ack(ctx context.Context) error {
	s.mu.Lock()
	ids := s.handled
	s.handled = nil
	s.mu.Unlock()
	if len(ids) == 0 {
		return nil
	}
	err := s.Client.XAck(ctx, s.stream, s.Group, ids...).Err()
	if err != nil {
		s.mu.Lock()
		s.handled = append(ids, s.handled...)
		s.mu.Unlock()
		select {
		case s.ready <- struct{}{}:
		default:
		}
	}
	return err
}

// keepLock renews the lock until ctx is done. It returns errLost if another session has it, or may have it.
func (s *session) keepLock(ctx context.Context) error {
	ticker := time.NewTicker(max(s.LockTTL/4, time.Millisecond))
	defer ticker.Stop()
	for renewed := time.Now(); ; {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
		began := time.Now()
		ok, err := s.lock.renew(ctx)
		switch {
		case err == nil && ok:
			renewed = began
		case err == nil || time.Since(renewed) > s.LockTTL:
			return errLost
		}
	}
}
