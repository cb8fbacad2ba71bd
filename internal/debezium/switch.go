package debezium

// SwitchPlan returns how to switch over to the new slot of Options.NewSlot. file is the name of the configuration.
//
// The new slot has what is committed after its start, and Debezium what is committed before it stops. Nothing is lost
// if Debezium's stored position is past the start of the new slot when it stops.
func (r *Result) SwitchPlan(file string) Plan {
	const head = `# From Debezium on slot {slot} to outbox-cdc on the new slot {new}. DSN is the connector's database.

# 1. While Debezium runs, create the new slot. It has every row that is committed from now on. Do not start the relay before step 4:
outbox-cdc setup -c {file}

# 2. Wait until Debezium has sent a row that was committed after that: this has to print t. An idle connector stores
#    no position, so there has to be a new row in the outbox.
`
	const connect = `export CONNECT=http://localhost:8083
SENT=$(curl -sf "$CONNECT/connectors/{connector}/offsets" | jq '.offsets[0].offset.lsn_commit')
`
	const server = `SENT=$(grep -ao '"lsn_commit":[0-9]*' {offsets} | tail -1 | cut -d: -f2)   # offset.storage.file.filename
`
	const sent = `psql "$DSN" -Atc "SELECT '0/0'::pg_lsn + $SENT >= confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = '{new}'"

`
	const stop = `# 3. Stop Debezium, and keep its position. If step 2 did not print t, rows between are only in slot {slot}: start
#    Debezium again, and wait.
`
	const stopForGood = `# 3. When step 2 has printed t, stop Debezium, and keep its position. Debezium then drops slot {slot}: if you stop it
#    earlier, rows are lost.
`
	const stopConnect = `{stop}
curl -sf "$CONNECT/connectors/{connector}/offsets" > offsets.json
outbox-cdc check --takeover -c {file} --offsets offsets.json
`
	const stopServer = `#    Stop the program with Debezium, a server where it is managed (systemctl stop, docker compose stop, kubectl scale --replicas=0; a
#    DebeziumServer resource: kubectl delete debeziumserver), and wait until it has ended.
outbox-cdc check --takeover -c {file} --offsets {offsets}
`
	const tail = `
# 4. Run the command that check prints, with its --skip-to. At most the transaction that Debezium was sending when it
#    stopped is duplicated; without the --skip-to that check prints, everything since step 1 is.
`
	const drop = `
# 5. When outbox-cdc has run for a while, drop the old slot, which retains WAL until then:
psql "$DSN" -Atc "SELECT pg_drop_replication_slot('{slot}')"
`
	position, end := connect, stopConnect
	if r.alone {
		position, end = server, stopServer
	}
	if r.dropsSlot {
		return r.plan(head+position+sent+stopForGood+end+tail, "{file}", file)
	}
	return r.plan(head+position+sent+stop+end+tail+drop, "{file}", file)
}
