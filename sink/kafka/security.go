package kafka

import (
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"

	"github.com/outbox-cdc/outbox-cdc/sink"
	"github.com/outbox-cdc/outbox-cdc/sink/network"
)

// connectError returns the error for a connection to addr that failed, with our text. It wraps sink.ErrAccess if a
// retry does not help.
func connectError(addr string, err error, heard reply, encrypted, login bool) error {
	if _, ok := errors.AsType[*network.DialError](err); ok {
		return fmt.Errorf("%s: %w", addr, err)
	}
	if reason := sink.TLSReason(err, "broker"); reason != "" {
		return fmt.Errorf("%w: %s: %s: %w", errLogin, addr, reason, err)
	}
	if k, ok := codeIn(err); ok && classify(k) == accessDenied {
		return fmt.Errorf("%w: %s: %w", errLogin, addr, inOurWords(err))
	}
	if heard == repliedTLS && !encrypted {
		return fmt.Errorf("%w: %s: the listener expects TLS: %w", errLogin, addr, err)
	}
	if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%s: %w", addr, inOurWords(err))
	}
	switch {
	case login && heard == replied:
		// Brokers before 1.0 and some proxies close the connection if the password is wrong.
		return fmt.Errorf("%w: %s: the broker closed the connection during the SASL login, which some do if the user name or password is wrong: %w",
			errLogin, addr, err)
	case !encrypted && heard == noReply:
		return otherListener(fmt.Errorf("%s: the broker closed the connection at the first request (does the listener expect TLS?): %w", addr, err))
	case encrypted && heard == noReply:
		return otherListener(fmt.Errorf("%s: the broker closed the connection during the TLS handshake (is it a plaintext listener?): %w", addr, err))
	}
	return fmt.Errorf("%s: the broker closed the connection: %w", addr, err)
}

// requestError returns the error for a request that failed on an open connection.
func requestError(addr string, err error, login bool) error {
	if errors.Is(err, io.EOF) && !login {
		return otherListener(fmt.Errorf("%s: the broker closed the connection (does the listener expect a SASL login?): %w", addr, err))
	}
	return fmt.Errorf("%s: %w", addr, inOurWords(err))
}

const (
	mechanismPlain    = sarama.SASLTypePlaintext
	mechanismSCRAM256 = sarama.SASLTypeSCRAMSHA256
	mechanismSCRAM512 = sarama.SASLTypeSCRAMSHA512
	mechanismBearer   = sarama.SASLTypeOAuth
)

// validate returns an error that names the first invalid field. A nil s is valid.
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

// isExtensionName reports whether name can be the name of an extension: letters only, and not auth, which is the name
// of the token.
func isExtensionName(name string) bool {
	for _, c := range []byte(name) {
		if (c < 'a' || 'z' < c) && (c < 'A' || 'Z' < c) {
			return false
		}
	}
	return name != "" && name != sarama.SASLExtKeyAuth
}

// configureLogin sets the login of a connection in cfg. A nil s sets nothing.
func (s *SASL) configureLogin(ctx context.Context, cfg *sarama.Config) error {
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
		to.TokenProvider = s.tokenProvider(ctx, secret)
	}
	return nil
}

// secret returns the current password or token.
func (s *SASL) secret(ctx context.Context) (string, error) {
	if s.Secret == nil {
		return s.Password, nil
	}
	secret, err := s.Secret(ctx)
	if err == nil && secret == "" { // sarama would report a configuration error
		err = fmt.Errorf("%w: the password or token is empty", errAccess)
	} else if errors.Is(err, sink.ErrAccess) {
		err = sink.Advise(err, accessAdvice)
	}
	return secret, err
}

// tokenProvider returns a function for the tokens of a connection: first for the login that opens it, and then a new
// token for each re-authentication (KIP-368), for which requests wait.
func (s *SASL) tokenProvider(ctx context.Context, first string) tokenFunc {
	ctx = context.WithoutCancel(ctx) // the connection outlives ctx
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

// A tokenFunc implements sarama.AccessTokenProvider.
type tokenFunc func() (*sarama.AccessToken, error)

// Token calls f.
func (f tokenFunc) Token() (*sarama.AccessToken, error) { return f() }

// A scramClient implements sarama.SCRAMClient for one SCRAM conversation (RFC 5802).
type scramClient struct {
	*scram.ClientConversation
	hash scram.HashGeneratorFcn
}

// Begin starts the conversation.
func (c *scramClient) Begin(user, password, authzID string) error {
	client, err := c.hash.NewClient(user, password, authzID)
	if err != nil {
		return fmt.Errorf("prepare SCRAM login: %w", err)
	}
	c.ClientConversation = client.NewConversation()
	return nil
}
