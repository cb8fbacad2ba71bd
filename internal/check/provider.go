package check

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/outbox-cdc/outbox-cdc/internal/catalog"
)

// A provider runs managed servers, where nobody else is a superuser and settings are changed outside of Postgres. The zero
// value is a server whose owner is a superuser. The texts are parts of fixes: {name}, {value} and {role} are replaced.
// docs/clouds.md has the sources.
type provider struct {
	name     string
	page     string   // its section of docs/clouds.md
	features []string // any of them shows the provider, see [catalog.Reader.Features]

	logical     string // gets wal_level = logical
	setting     string // changes a setting
	replication string // gives a role REPLICATION
	superuser   bool   // the customer has a superuser
}

const (
	alterRole    = "ALTER ROLE {role} REPLICATION"
	asTheAdmin   = " (as %s)"
	asSuperuser  = "as a superuser, in database "
	postgresOnly = "ALTER SYSTEM SET {name} = '{value}'"
)

// providers is the table of providers. A provider that builds on another one comes before it.
//
//nolint:gochecknoglobals // a table
var providers = []provider{
	{
		name: "Amazon Aurora", page: "amazon-aurora", features: []string{"function aurora_version"},
		logical:     "set rds.logical_replication = 1 in the DB cluster parameter group, and reboot the writer",
		setting:     "set {name} = {value} in the DB cluster parameter group",
		replication: "GRANT rds_replication TO {role}",
	},
	{
		name: "Amazon RDS", page: "amazon-rds", features: []string{"role rds_superuser", "setting rds.logical_replication"},
		logical:     "set rds.logical_replication = 1 in the DB parameter group, and reboot the instance",
		setting:     "set {name} = {value} in the DB parameter group",
		replication: "GRANT rds_replication TO {role}",
	},
	{
		name: "AlloyDB", page: "alloydb", features: []string{"role alloydbsuperuser", "setting alloydb.logical_decoding"},
		logical:     "set the flag alloydb.logical_decoding = on, which restarts the instance",
		setting:     "set the database flag {name} = {value}",
		replication: alterRole + fmt.Sprintf(asTheAdmin, "a member of alloydbsuperuser"),
	},
	{
		name: "Google Cloud SQL", page: "google-cloud-sql", features: []string{"role cloudsqlsuperuser", "setting cloudsql.logical_decoding"},
		logical:     "set the flag cloudsql.logical_decoding = on, which restarts the instance",
		setting:     "set the database flag {name} = {value}",
		replication: alterRole + fmt.Sprintf(asTheAdmin, "a member of cloudsqlsuperuser"),
	},
	{
		name: "Azure Database for PostgreSQL", page: "azure-flexible-server", features: []string{"role azure_pg_admin", "setting azure.extensions"},
		logical:     "set the server parameter wal_level = logical, and restart the server",
		setting:     "set the server parameter {name} = {value}",
		replication: alterRole + fmt.Sprintf(asTheAdmin, "the server admin, a member of azure_pg_admin"),
	},
	{
		name: "Supabase", page: "supabase", features: []string{"role supabase_admin"},
		logical:     "ask Supabase's support to set wal_level = logical",
		setting:     `supabase postgres-config update --config {name}={value}`,
		replication: alterRole + fmt.Sprintf(asTheAdmin, "postgres; before PostgreSQL 17, let the relay log in as postgres"),
	},
	{
		name: "Neon", page: "neon", features: []string{"role neon_superuser", "setting neon.timeline_id"},
		logical:     "enable logical replication in the settings of the project, which restarts its computes",
		setting:     "ask Neon's support to set {name} = {value}",
		replication: "create the role in Neon's console, CLI or API: it is then a member of neon_superuser with REPLICATION",
	},
	{
		name: "Heroku Postgres", page: "heroku-postgres", features: []string{"schema heroku_ext"},
		logical:     "none: Heroku Postgres does not offer logical replication",
		setting:     "none: Heroku Postgres does not let you set {name}",
		replication: "none: Heroku Postgres does not offer logical replication",
	},
	{
		name: "DigitalOcean", page: "digitalocean", features: []string{"role doadmin"},
		logical:     "ask DigitalOcean's support to set wal_level = logical",
		setting:     "set {name} = {value} with the databases API (PATCH /v2/databases/<id>/config)",
		replication: alterRole + fmt.Sprintf(asTheAdmin, "doadmin"),
	},
	{
		name: "Aiven", page: "aiven", features: []string{"role avnadmin", "extension aiven_extras"},
		logical:     "ask Aiven's support to set wal_level = logical",
		setting:     "set {name} = {value} in the advanced configuration of the service",
		replication: alterRole + fmt.Sprintf(asTheAdmin, "avnadmin"),
	},
	{
		name: "Crunchy Bridge", page: "crunchy-bridge", features: []string{"extension crunchy_pooler"},
		logical:     "set wal_level = logical in the configuration parameters of the cluster, and restart it",
		setting:     "set {name} = {value} in the configuration parameters of the cluster",
		replication: alterRole + fmt.Sprintf(asTheAdmin, "the superuser postgres"),
		superuser:   true,
	},
}

// recognize finds out who runs the server. If that fails, the fixes are those for a server of one's own.
func (s *sourceChecker) recognize(ctx context.Context, reader *catalog.Reader) {
	var features []string
	for _, p := range providers {
		features = append(features, p.features...)
	}
	ctx, cancel := context.WithTimeout(ctx, s.limits.Request)
	defer cancel()
	found, err := reader.Features(ctx, features)
	if err != nil {
		return
	}
	if s.provider = providerOf(found); s.provider.isOther() {
		s.ok("provider", "", s.provider.name+", see docs/clouds.md#"+s.provider.page)
	}
}

// providerOf returns the provider of a server with these features.
func providerOf(features []string) provider {
	for _, p := range providers {
		if slices.ContainsFunc(p.features, func(feature string) bool { return slices.Contains(features, feature) }) {
			return p
		}
	}
	return provider{}
}

// isOther reports whether somebody else runs the server.
func (p provider) isOther() bool { return p.name != "" }

// enable returns the fix for a wal_level that is too low.
func (p provider) enable() string {
	if p.isOther() {
		return p.logical
	}
	return p.set("wal_level", "logical", true)
}

// set returns the fix that changes a setting. restart says that Postgres reads it only at its start.
func (p provider) set(name, value string, restart bool) string {
	fill := strings.NewReplacer("{name}", name, "{value}", value)
	switch {
	case p.isOther() && restart:
		return fill.Replace(p.setting) + ", and restart the server"
	case p.isOther():
		return fill.Replace(p.setting)
	case restart:
		return fill.Replace(postgresOnly) + ", and restart the server"
	}
	return fill.Replace(postgresOnly) + "; SELECT pg_reload_conf()"
}

// allowReplication returns the fix for a role without REPLICATION. role is quoted.
func (p provider) allowReplication(role string) string {
	if p.isOther() {
		return strings.ReplaceAll(p.replication, "{role}", role)
	}
	return strings.ReplaceAll(alterRole, "{role}", role)
}

// createRole returns the statements that create a role for the relay.
func (p provider) createRole() string {
	if p.isOther() {
		return "CREATE ROLE cdc LOGIN PASSWORD '…'; " + p.allowReplication("cdc")
	}
	return "CREATE ROLE cdc LOGIN REPLICATION PASSWORD '…'"
}

// superuserOnly returns the fix that takes a superuser.
func (s *sourceChecker) superuserOnly(statements string) string {
	if p := s.provider; p.isOther() && !p.superuser {
		return "none, because it takes a superuser: let only roles connect that need to (REVOKE CONNECT ON DATABASE … FROM PUBLIC)"
	}
	return asSuperuser + s.Relay.Source.Conn.Database + ": " + statements
}
