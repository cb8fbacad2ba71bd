package debezium

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outbox-cdc/outbox-cdc/internal/bench/measure"
)

// Files in the directory of a worker.
const (
	workerFile    = "worker.properties"
	connectorFile = "connector.properties"
	offsetsFile   = "offsets.dat"
	pluginsDir    = "plugins"
)

// A tuning has the settings in which contenders differ.
type tuning struct {
	worker    map[string]string
	connector map[string]string
}

// tuned returns settings for throughput and latency: the connector polls every 5 ms
// instead of 500, reads batches of four times the size, and the producer does not
// linger.
func tuned() tuning {
	return tuning{
		worker: map[string]string{
			"offset.flush.interval.ms": "1000",
			"producer.linger.ms":       "0",
		},
		connector: map[string]string{
			"poll.interval.ms": "5",
			"max.batch.size":   "8192",
			"max.queue.size":   "32768",
		},
	}
}

func (w worker) workerProperties(dir string) map[string]string {
	const text = "org.apache.kafka.connect.storage.StringConverter"
	props := map[string]string{
		"bootstrap.servers":            strings.Join(w.install.Brokers, ","),
		"listeners":                    "http://127.0.0.1:0", // the REST API: the kernel chooses the port
		"key.converter":                text,
		"value.converter":              text,
		"offset.storage.file.filename": filepath.Join(dir, offsetsFile),
		"plugin.path":                  filepath.Join(dir, pluginsDir),
		"plugin.discovery":             "service_load",
		"producer.acks":                "all",
		"producer.compression.type":    w.compression,
	}
	maps.Copy(props, w.tune.worker)
	return props
}

func (w worker) connectorProperties(t measure.Target) (map[string]string, error) {
	db, err := pgconn.ParseConfig(t.DSN)
	if err != nil {
		return nil, err
	}
	if strings.HasPrefix(db.Host, "/") {
		return nil, errors.New("the connector does not support Unix sockets")
	}
	sslmode := "disable"
	if db.TLSConfig != nil {
		sslmode = "require"
	}
	const router = "transforms.outbox."
	props := map[string]string{
		"name":              "bench",
		"connector.class":   "io.debezium.connector.postgresql.PostgresConnector",
		"tasks.max":         "1",
		"database.hostname": db.Host,
		"database.port":     strconv.Itoa(int(db.Port)),
		"database.user":     db.User,
		"database.dbname":   db.Database,
		"database.sslmode":  sslmode,
		"topic.prefix":      "bench",

		"plugin.name":                 "pgoutput",
		"slot.name":                   t.Slot,
		"publication.name":            t.Publication,
		"publication.autocreate.mode": "disabled",
		"table.include.list":          fmt.Sprintf(`%s\.%s`, t.Schema, t.Table), // a regular expression
		"snapshot.mode":               "no_data",
		"tombstones.on.delete":        "false",

		"transforms":                                 "outbox",
		router + "type":                              "io.debezium.transforms.outbox.EventRouter",
		router + "route.topic.replacement":           t.TopicPrefix + "${routedByValue}",
		router + "table.expand.json.payload":         "false",
		router + "table.fields.additional.placement": "type:header:eventType",
	}
	if db.Password != "" {
		props["database.password"] = db.Password
	}
	maps.Copy(props, w.tune.connector)
	return props, nil
}
