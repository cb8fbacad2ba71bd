package jetstream

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
)

// option returns the option that logs in with the current secret. Its errors do not contain the secret.
func (c *Credentials) option(ctx context.Context) (nats.Option, error) {
	switch {
	case c == nil:
		return func(*nats.Options) error { return nil }, nil
	case c.Password != nil:
		password, err := c.Password(ctx)
		return nats.UserInfo(c.User, password), err
	case c.Token != nil:
		token, err := c.Token(ctx)
		return nats.Token(token), err
	case c.Seed != nil:
		seed, err := c.Seed(ctx)
		if err != nil {
			return nil, err
		}
		return loginWithSeed([]byte(seed))
	default:
		file, err := c.File(ctx)
		if err != nil {
			return nil, err
		}
		return loginWithFile(file)
	}
}

// loginWithSeed logs in with an nkey.
func loginWithSeed(seed []byte) (nats.Option, error) {
	var public string
	pair, err := nkeys.FromSeed(seed)
	if err == nil {
		public, err = pair.PublicKey()
	}
	if err != nil || !nkeys.IsValidPublicUserKey(public) {
		return nil, fmt.Errorf("%w: the nkey is not a seed of a user, which begins with SU", errAccess)
	}
	return nats.Nkey(public, pair.Sign), nil
}

// loginWithFile logs in with the content of a .creds file.
func loginWithFile(file []byte) (nats.Option, error) {
	jwt, err := nkeys.ParseDecoratedJWT(file)
	if err != nil || jwt == "" {
		return nil, fmt.Errorf("%w: the credentials file has no JWT", errAccess)
	}
	pair, err := nkeys.ParseDecoratedUserNKey(file)
	if err != nil {
		return nil, fmt.Errorf("%w: the credentials file has no seed of a user", errAccess)
	}
	return nats.UserJWT(func() (string, error) { return jwt, nil }, pair.Sign), nil
}
