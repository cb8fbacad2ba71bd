package replication

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"

	"github.com/jackc/pgx/v5/pgconn"
)

// explainHBA adds to err, with which cfg could not connect, the line that pg_hba.conf lacks, if it lacks one.
func explainHBA(cfg *pgconn.Config, err error) error {
	refusal, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || refusal.Code != invalidAuthorization || refusal.Routine != "ClientAuthentication" {
		return err
	}
	line := fmt.Sprintf("%s %s %s %sscram-sha-256", hbaType(cfg), hbaName(cfg.Database), hbaName(cfg.User), hbaAddress(refusal.Message))
	err = fmt.Errorf("%w; the line, before any other that fits, is: %s", err, line)
	if cfg.TLSConfig == nil && hbaType(cfg) == "host" {
		err = fmt.Errorf("%w; if the server admits the role by TLS only (hostssl), set sslmode=verify-full in source.dsn instead", err)
	}
	return err
}

// hbaType returns the first word of a line that fits every attempt of cfg to connect.
func hbaType(cfg *pgconn.Config) string {
	plain := func(f *pgconn.FallbackConfig) bool { return f.TLSConfig == nil }
	switch network, _ := pgconn.NetworkAddress(cfg.Host, cfg.Port); {
	case network == "unix":
		return "local"
	case cfg.TLSConfig == nil || slices.ContainsFunc(cfg.Fallbacks, plain):
		return "host"
	}
	return "hostssl"
}

// quotedWord matches what the messages about pg_hba.conf have in quotes. They may be translated.
var quotedWord = regexp.MustCompile(`["“„«]([^"”“»]*)["”“»]`)

// hbaAddress returns the address from which the server has seen the connection, as the word of a line with the space after it. A
// line of type local has none.
func hbaAddress(message string) string {
	for _, word := range quotedWord.FindAllStringSubmatch(message, -1) {
		if address, err := netip.ParseAddr(word[1]); err == nil {
			return fmt.Sprintf("%s/%d ", address.WithZone(""), address.BitLen())
		}
	}
	return ""
}

// hbaName returns a name as a word of pg_hba.conf.
func hbaName(name string) string {
	keywords := []string{"all", "sameuser", "samerole", "samegroup", "replication"}
	if regexp.MustCompile(`^[a-zA-Z0-9_.-]+$`).MatchString(name) && !slices.Contains(keywords, name) {
		return name
	}
	return `"` + name + `"`
}
