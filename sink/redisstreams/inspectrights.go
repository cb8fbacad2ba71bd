package redisstreams

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
)

// A trial is a command that the relay needs, with arguments with which it changes nothing. The server checks the user's rights before
// it finds fault with the arguments.
type trial struct {
	right string // as in ACL SETUSER
	run   func(ctx context.Context) error
}

// streamTrials returns the commands that the relay runs on a stream.
func (i *inspection) streamTrials(stream string) []trial {
	c := i.conns
	trials := []trial{
		{"+evalsha", func(ctx context.Context) error {
			return c.EvalSha(ctx, strings.Repeat("0", 40), []string{stream}).Err()
		}},
		{"+xadd", func(ctx context.Context) error {
			return c.XAdd(ctx, &redis.XAddArgs{Stream: stream, NoMkStream: true, ID: "0-0", Values: []string{"f", "v"}}).Err() // no entry may have this id
		}},
		{"+xrange", func(ctx context.Context) error { return c.XRangeN(ctx, stream, "0-0", "0-0", 1).Err() }},
		{"'+xinfo|stream'", func(ctx context.Context) error { return c.XInfoStream(ctx, stream).Err() }},
		{"+xlen", func(ctx context.Context) error { return c.XLen(ctx, stream).Err() }},
		{"+exists", func(ctx context.Context) error { return c.Exists(ctx, stream).Err() }},
	}
	if i.cfg.Wait.Replicas > 0 {
		trials = append(trials,
			trial{"+wait", func(ctx context.Context) error { return c.Do(ctx, "WAIT", 0, 1).Err() }},
			trial{"+xsetid", func(ctx context.Context) error { return c.Do(ctx, "XSETID", stream, "no id").Err() }})
	}
	return trials
}

// hashTrials returns the commands that the relay runs on the hash of the position store.
func (i *inspection) hashTrials(hash string) []trial {
	c := i.conns
	return []trial{
		{"+hget", func(ctx context.Context) error { return c.HGet(ctx, hash, "").Err() }},
		{"+hset", func(ctx context.Context) error { return c.HSet(ctx, hash, "f", "v", "a field without a value").Err() }},
		{"+hdel", func(ctx context.Context) error { return c.HDel(ctx, hash, "").Err() }}, // no relay has this field
		{"+hgetall", func(ctx context.Context) error { return c.HGetAll(ctx, hash).Err() }},
	}
}

// mayUse adds a finding about a condition if the user lacks rights for trials on a key, or the server does not respond, and otherwise
// reports true.
func (i *inspection) mayUse(ctx context.Context, condition, key string, trials []trial) bool {
	var rules, found []string
	denied := false // the key
	for _, t := range trials {
		err := t.run(ctx)
		if i.failSilent(ctx, condition, key, err) {
			return false
		}
		switch {
		case !redis.HasErrorPrefix(err, "NOPERM"):
		case !errors.Is(errorOf(err), errUnusable):
			rules, found = append(rules, t.right), append(found, "run "+strings.Trim(t.right, "'+"))
		case !denied:
			denied, rules, found = true, append(rules, "'~"+key+"'"), append(found, "use the key")
		}
	}
	if len(rules) == 0 {
		return true
	}
	i.Failed(condition, key, fmt.Sprintf("the user %s may not %s", i.user(ctx), strings.Join(found, ", ")), i.setUser(ctx, rules...))
	return false
}

// user returns the name of the user as whom the relay logs in.
func (i *inspection) user(ctx context.Context) string {
	if i.cfg.Credentials != nil {
		if user, _, err := i.cfg.Credentials(ctx); err == nil && user != "" {
			return user
		}
	}
	return "default"
}

// setUser returns the command that gives the relay's user rights.
func (i *inspection) setUser(ctx context.Context, rules ...string) string {
	return "redis-cli ACL SETUSER " + i.user(ctx) + " " + strings.Join(rules, " ")
}
