package kafka

import (
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

const (
	mechanismPlain    = sarama.SASLTypePlaintext
	mechanismSCRAM256 = sarama.SASLTypeSCRAMSHA256
	mechanismSCRAM512 = sarama.SASLTypeSCRAMSHA512
	mechanismBearer   = sarama.SASLTypeOAuth
)

// validate reports the first field that cannot be used, by name. A nil s is no login.
func (s *SASL) validate() error {
	if s == nil {
		return nil
	}
	mechanisms := []string{mechanismPlain, mechanismSCRAM256, mechanismSCRAM512, mechanismBearer}
	switch {
	case !slices.Contains(mechanisms, s.Mechanism):
		return fmt.Errorf("sink: SASL.Mechanism %q is not one of %q", s.Mechanism, mechanisms)
	case s.Mechanism == mechanismBearer && s.Secret == nil:
		return errors.New("sink: SASL.Secret is nil, and OAUTHBEARER needs a token")
	case s.Mechanism != mechanismBearer && s.User == "":
		return errors.New("sink: SASL.User is empty")
	case s.Password == "" && s.Secret == nil:
		return errors.New("sink: SASL.Password is empty")
	}
	for name, value := range s.Extensions {
		if !isExtensionName(name) || strings.Contains(value, "\x01") {
			return fmt.Errorf("sink: SASL.Extensions has %q, which cannot be sent", name)
		}
	}
	return nil
}

// isExtensionName reports whether a server takes name for an extension: it ends at the first
// one that has anything but letters, and auth is the token's own.
func isExtensionName(name string) bool {
	for _, c := range []byte(name) {
		if (c < 'a' || 'z' < c) && (c < 'A' || 'Z' < c) {
			return false
		}
	}
	return name != "" && name != sarama.SASLExtKeyAuth
}

// login puts what a connection logs in with into cfg. A nil s puts nothing.
func (s *SASL) login(ctx context.Context, cfg *sarama.Config) error {
	if s == nil {
		return nil
	}
	secret, err := s.secret(ctx)
	if err != nil {
		return err
	}
	to := &cfg.Net.SASL
	to.Enable, to.Version = true, sarama.SASLHandshakeV1
	to.Mechanism, to.User, to.Password = sarama.SASLMechanism(s.Mechanism), s.User, secret
	switch s.Mechanism {
	case mechanismSCRAM256:
		to.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &scramClient{hash: sha256.New} }
	case mechanismSCRAM512:
		to.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &scramClient{hash: sha512.New} }
	case mechanismBearer:
		to.TokenProvider = s.tokens(ctx, secret)
	}
	return nil
}

// secret returns the password or token of the moment.
func (s *SASL) secret(ctx context.Context) (string, error) {
	if s.Secret == nil {
		return s.Password, nil
	}
	secret, err := s.Secret(ctx)
	if err == nil && secret == "" { // which sarama would take for a mistake of its own user
		err = fmt.Errorf("%w: the password or token is empty", errAccess)
	} else if errors.Is(err, sink.ErrAccess) {
		err = advisedError{kafkaError{err, err.Error()}, accessAdvice}
	}
	return secret, err
}

// tokens provides a connection: first for the login that opens it, and a new token for each
// that the broker asks for later (KIP-368). The one who uses the connection then waits.
func (s *SASL) tokens(ctx context.Context, first string) tokenFunc {
	ctx = context.WithoutCancel(ctx) // the connection outlives what it is made for
	return func() (*sarama.AccessToken, error) {
		token := first
		first = ""
		if token == "" {
			ctx, cancel := context.WithTimeout(ctx, controlTimeout)
			defer cancel()
			var err error
			if token, err = s.secret(ctx); err != nil {
				return nil, err
			}
		}
		return &sarama.AccessToken{Token: token, Extensions: s.Extensions}, nil
	}
}

// A tokenFunc is a function in the shape sarama wants.
type tokenFunc func() (*sarama.AccessToken, error)

// Token calls f.
func (f tokenFunc) Token() (*sarama.AccessToken, error) { return f() }

// A scramClient is one SCRAM conversation (RFC 5802) in the shape sarama wants.
type scramClient struct {
	*scram.ClientConversation
	hash scram.HashGeneratorFcn
}

// Begin prepares the conversation.
func (c *scramClient) Begin(user, password, authzID string) error {
	client, err := c.hash.NewClient(user, password, authzID)
	if err != nil {
		return fmt.Errorf("prepare SCRAM login: %w", err)
	}
	c.ClientConversation = client.NewConversation()
	return nil
}
