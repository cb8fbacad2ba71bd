package config

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/internal/bearer"
	"github.com/outbox-cdc/outbox-cdc/replication"
)

const (
	atCommand = "source.password_command"
	atIAM     = "source.rds_iam_region"
)

// checkPassword reports keys of an expiring password that contradict each other or have no effect.
func (c *Config) checkPassword() error {
	var errs []error
	if len(c.Source.PasswordCommand) > 0 && c.Source.RDSIAMRegion != "" {
		errs = append(errs, c.invalid(atCommand, "set together with %s; set only one of them", atIAM))
	}
	for _, path := range []string{"source.password_timeout", "source.password_lifetime"} {
		k, _ := keyAt(path)
		if c.field(path).Interface() != k.def && len(c.Source.PasswordCommand) == 0 {
			errs = append(errs, c.invalid(path, "has no effect: %s is not set", atCommand))
		}
	}
	return join(errs...)
}

// checkIAM reports a connection of pg for which no IAM token can be signed: the token is for one address, and must not be
// sent in plain text.
func (c *Config) checkIAM(pg *pgconn.Config) error {
	if c.Source.RDSIAMRegion == "" {
		return nil
	}
	all := attempts(pg)
	switch {
	case slices.ContainsFunc(all, func(a *pgconn.FallbackConfig) bool { return a.TLSConfig == nil }):
		return c.invalid(atIAM, "needs TLS, because the token would be sent in plain text: set sslmode=verify-full in source.dsn")
	case slices.ContainsFunc(all, func(a *pgconn.FallbackConfig) bool { return a.Host != pg.Host || a.Port != pg.Port }):
		return c.invalid(atIAM, "a token is for one address, and source.dsn has several: use the endpoint of the cluster")
	}
	return nil
}

// expiringPassword returns a function that returns the password for a login of user, nil if the password does not expire.
// It makes pg wait for that function, and drop a password that the server rejects.
func (c *Config) expiringPassword(pg *pgconn.Config) func(ctx context.Context, user string) (string, error) {
	var p *expiring
	switch s := c.Source; {
	case len(s.PasswordCommand) > 0:
		run := bearer.Command{Args: s.PasswordCommand, Timeout: s.PasswordTimeout, Lifetime: s.PasswordLifetime}
		p = &expiring{key: atCommand, hint: "the relay needs a program that prints a password for Postgres", of: func(string) bearer.Source { return run.Token }}
		pg.ConnectTimeout += s.PasswordTimeout
	case s.RDSIAMRegion != "":
		address := net.JoinHostPort(pg.Host, strconv.Itoa(int(pg.Port)))
		p = &expiring{key: atIAM, hint: "the relay needs AWS credentials: a role of the instance, the task or the service account, or AWS_* variables", of: func(user string) bearer.Source {
			return func(ctx context.Context) (string, time.Time, error) {
				return bearer.RDS(ctx, s.RDSIAMRegion, address, user)
			}
		}}
	default:
		return nil
	}
	onError := pg.OnPgError
	pg.OnPgError = func(conn *pgconn.PgConn, err *pgconn.PgError) bool {
		if strings.HasPrefix(err.Code, invalidAuthorization) {
			p.forget()
		}
		return onError(conn, err)
	}
	return p.get
}

// invalidAuthorization is the class of SQLSTATEs with which Postgres rejects a login.
const invalidAuthorization = "28"

// An expiring has the last password of the user who logs in.
type expiring struct {
	key  string // of the configuration
	hint string // how to fix an error
	of   func(user string) bearer.Source

	mu     sync.Mutex
	user   string
	memory *bearer.Memory // of user; nil: no login yet
}

// get returns the password for a login of user.
func (p *expiring) get(ctx context.Context, user string) (string, error) {
	password, err := p.memoryOf(user).Get(ctx)
	if err != nil {
		return "", &replication.CredentialsError{Err: fmt.Errorf("%s: %w; %s", p.key, err, p.hint)}
	}
	return password, nil
}

// memoryOf returns the memory of user. Another user ends that of the last one.
func (p *expiring) memoryOf(user string) *bearer.Memory {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.memory == nil || p.user != user {
		p.user, p.memory = user, bearer.NewMemory(p.of(user))
	}
	return p.memory
}

// forget drops the password.
func (p *expiring) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.memory != nil {
		p.memory.Forget()
	}
}
