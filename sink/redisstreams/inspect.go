package redisstreams

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/outbox-cdc/outbox-cdc/sink"
)

// Conditions implements [sink.Inspector].
func (Config) Conditions() []sink.Condition {
	return []sink.Condition{
		{Name: "connection", Met: "The relay may connect and run scripts.", Short: true},
		{Name: "cluster", Met: "The cluster names its primaries.", Short: true},
		{Name: "server", Object: "server", Met: "The server responds, and the user may read its state. Each condition of a server is tested for each primary of a cluster.", Short: true},
		{Name: "version", Object: "server", Met: "The server is Redis 6.2 or later.", Short: true},
		{Name: "role", Object: "server", Met: "The server is a primary.", Short: true},
		{Name: "replicas", Object: "server", Met: "As many replicas are connected as `sink.redis_streams.wait.replicas` asks for. Without that, none are.", Short: true},
		{Name: "persistence", Object: "server", Met: "An acknowledged record is on disk: `appendonly` is `yes` and `appendfsync` is `always`.", Short: true},
		{Name: "eviction", Object: "server", Met: "`maxmemory-policy` lets the server delete no stream.", Short: true},
		{Name: "memory", Object: "server", Met: "Less than 90 % of `maxmemory` are in use.", Short: true},
		{Name: "rights", Object: "stream", Met: "The user may run each command that the relay needs, on the stream. The check runs them with arguments that change nothing."},
		{Name: "stream", Object: "stream", Met: "The stream exists, or the relay creates it."},
		{Name: "entry size", Object: "stream", Met: "The server accepts an entry as large as the largest of the last rows."},
		{Name: "position store", Object: "hash", Met: "The user may read and write the hash."},
	}
}

// Inspect implements [sink.Inspector].
func (c Config) Inspect(ctx context.Context, use sink.Use) []sink.Finding {
	cl, err := c.newClient(slog.New(slog.DiscardHandler))
	if err != nil {
		return sink.Findings{{Condition: "connection", State: sink.Failed, Found: err.Error()}}
	}
	defer func() { _ = cl.Close() }()
	i := &inspection{cfg: cl.cfg, conns: cl.conns}
	defer context.AfterFunc(ctx, i.conns.network.Abort)()
	if err := i.conns.Eval(ctx, "return 1", nil).Err(); err != nil {
		if !i.failSilent(ctx, "connection", "", err) {
			i.Failed("connection", "", errorOf(err).Error(), accessAdvice)
		}
		return i.Findings
	}
	i.Met("connection", "", "the relay may connect and run scripts")
	i.inspectServers(ctx)
	if !use.Short {
		i.inspectStreams(ctx, use)
	}
	return i.Findings
}

// failSilent adds a failed finding if err says that the server did not respond, and reports whether it has.
func (i *inspection) failSilent(ctx context.Context, condition, object string, err error) bool {
	if err == nil || isReply(err) || errors.Is(errorOf(err), sink.ErrAccess) {
		return false
	}
	i.Failed(condition, object, "the server does not respond: "+causeOf(ctx, errorOf(err)).Error(), reachAdvice)
	return true
}

// An inspection collects findings.
type inspection struct {
	sink.Findings

	cfg   Config
	conns *connections
}

// inspectServers inspects the server, or each primary of the cluster.
func (i *inspection) inspectServers(ctx context.Context) {
	nodes, err := i.conns.nodes(ctx)
	if err != nil {
		i.Failed("cluster", "", causeOf(ctx, errorOf(err)).Error(), "")
		return
	}
	for _, addr := range slices.Sorted(maps.Keys(nodes)) {
		i.inspectServer(ctx, addr, nodes[addr])
	}
}

func (i *inspection) inspectServer(ctx context.Context, object string, node *redis.Client) {
	text, err := node.Info(ctx, "everything").Result()
	if i.failSilent(ctx, "server", object, err) {
		return
	}
	if err != nil {
		i.Doubt("server", object, "the relay's user may not read the state of the server, so its role, persistence and memory are unknown: "+errorOf(err).Error(), i.setUser(ctx, "+info", "'+config|get'"))
		return
	}
	info := parseInfo(text)
	switch version := info["redis_version"]; {
	case version == "":
	case older(version, 6, 2):
		i.Failed("version", object, "the server has version "+version, "upgrade to Redis 6.2 or later")
	default:
		i.Met("version", object, "the server has version "+version)
	}
	if info["role"] != "master" {
		i.Failed("role", object, "the server is a replica and rejects writes", "set sink.redis_streams.addresses to the primary, or use sink.redis_streams.sentinel")
	}
	i.inspectReplicas(object, info)
	set := settings(ctx, node)
	i.inspectPersistence(ctx, object, info, set)
	i.inspectMemory(object, info, set)
}

// settings returns what CONFIG GET says about persistence and memory. It is empty if the user may not use that.
func settings(ctx context.Context, node *redis.Client) map[string]string {
	all := make(map[string]string)
	for _, name := range []string{"appendfsync", "maxmemory-policy"} {
		values, err := node.ConfigGet(ctx, name).Result()
		if err != nil {
			return nil
		}
		all[name] = values[name]
	}
	return all
}

func (i *inspection) inspectReplicas(object string, info map[string]string) {
	connected, _ := strconv.Atoi(info["connected_slaves"])
	want := i.cfg.Wait.Replicas
	switch {
	case want > connected:
		i.Failed("replicas", object, fmt.Sprintf("%d replicas are connected, so no record is acknowledged: sink.redis_streams.wait.replicas is %d", connected, want), "connect more replicas, or lower sink.redis_streams.wait.replicas")
	case want > 0:
		i.Met("replicas", object, fmt.Sprintf("%d replicas are connected, and a record is acknowledged when %d have it", connected, want))
	case connected > 0:
		i.Doubt("replicas", object, fmt.Sprintf("%d replicas are connected, and a record is acknowledged before they have it: a failover loses the records that they lack", connected), "set sink.redis_streams.wait.replicas")
	}
}

func (i *inspection) inspectPersistence(ctx context.Context, object string, info, settings map[string]string) {
	const name = "persistence"
	switch appendOnly := info["aof_enabled"] == "1"; {
	case !appendOnly:
		i.Doubt(name, object, "appendonly is no: when the server stops without a snapshot, all records since the last one are lost, although they are acknowledged", "CONFIG SET appendonly yes, and appendfsync always if no acknowledged record may be lost")
	case settings == nil:
		i.Doubt(name, object, "appendonly is yes; the user may not read appendfsync, so it is unknown when records are on disk", i.setUser(ctx, "'+config|get'"))
	case settings["appendfsync"] == "always":
		i.Met(name, object, "appendonly is yes and appendfsync is always: an acknowledged record is on disk")
	case settings["appendfsync"] == "everysec":
		i.Doubt(name, object, "appendfsync is everysec: a crash of the server's machine loses up to two seconds of acknowledged records", "CONFIG SET appendfsync always")
	default:
		i.Doubt(name, object, "appendfsync is "+settings["appendfsync"]+": a crash of the server's machine loses acknowledged records that the system has not written to disk", "CONFIG SET appendfsync always")
	}
}

func (i *inspection) inspectMemory(object string, info, settings map[string]string) {
	policy := info["maxmemory_policy"]
	if settings != nil {
		policy = settings["maxmemory-policy"]
	}
	limit, _ := strconv.ParseInt(info["maxmemory"], 10, 64)
	used, _ := strconv.ParseInt(info["used_memory"], 10, 64)
	if strings.HasPrefix(policy, "allkeys-") {
		i.Failed("eviction", object, "maxmemory-policy is "+policy+": a full server deletes whole streams", "CONFIG SET maxmemory-policy noeviction")
	} else {
		i.Met("eviction", object, "maxmemory-policy is "+policy+": the server deletes no stream")
	}
	const nearly = 90
	switch {
	case limit == 0:
	case used*100 >= limit*nearly:
		i.Doubt("memory", object, fmt.Sprintf("%d of %d bytes (maxmemory) are in use; a full server rejects records, and the relay waits", used, limit), "raise maxmemory, or let consumers trim the streams")
	default:
		i.Met("memory", object, fmt.Sprintf("%d of %d bytes (maxmemory) are in use", used, limit))
	}
}

func (i *inspection) inspectStreams(ctx context.Context, use sink.Use) {
	limit := i.cfg.MaxEntryBytes
	if limit == 0 {
		limit = i.conns.readLimit(ctx)
	}
	for _, d := range use.Destinations {
		i.inspectStream(ctx, d.Name)
		if size := d.Largest.Size(); size > limit {
			i.Failed("entry size", d.Name, fmt.Sprintf("the largest of the last records has %d bytes, and the limit is %d", size, limit), "raise proto-max-bulk-len and sink.redis_streams.max_entry_bytes")
		}
	}
	if use.DeadLetters != "" {
		i.inspectStream(ctx, use.DeadLetters)
	}
	if use.Positions == "" {
		return
	}
	if !i.mayUse(ctx, "position store", use.Positions, i.hashTrials(use.Positions)) {
		return
	}
	if err := i.conns.HGet(ctx, use.Positions, "").Err(); err != nil && !errors.Is(err, redis.Nil) {
		i.Failed("position store", use.Positions, causeOf(ctx, errorOf(err)).Error(), "use a name that no other key has")
		return
	}
	i.Met("position store", use.Positions, "the hash can be read and written")
}

func (i *inspection) inspectStream(ctx context.Context, name string) {
	if !i.mayUse(ctx, "rights", name, i.streamTrials(name)) {
		return
	}
	i.Met("rights", name, "the user may run each command that the relay needs")
	exists, err := i.conns.exists(ctx, name)
	switch {
	case err != nil:
		i.Failed("stream", name, causeOf(ctx, err).Error(), "")
	case exists:
		i.Met("stream", name, "it exists")
	case i.cfg.CreateStreams:
		i.Met("stream", name, "it does not exist yet; the first record creates it")
	default:
		i.Failed("stream", name, "it does not exist", fmt.Sprintf("XGROUP CREATE %s <group> 0 MKSTREAM", name))
	}
}

// parseInfo returns the fields of a response to INFO.
func parseInfo(text string) map[string]string {
	fields := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields
}

// older reports whether a version is lower than major.minor.
func older(version string, major, minor int) bool {
	var x, y int
	if _, err := fmt.Sscanf(version, "%d.%d", &x, &y); err != nil {
		return false
	}
	return x < major || x == major && y < minor
}

var _ sink.Inspector = Config{}
