package debezium

import (
	"strings"
	"testing"
)

// stepsOf returns the next steps after an import.
func stepsOf(t *testing.T, result *Result) string {
	t.Helper()
	var out strings.Builder
	if err := result.WriteNext(&out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// nextOf returns the next steps after an import of base with changes.
func nextOf(t *testing.T, changes string) string {
	t.Helper()
	return stepsOf(t, imported(t, changes, false, Options{}))
}

// A connector that drops its slot when it stops is never stopped for a takeover.
func TestStepsWithDroppedSlot(t *testing.T) {
	if got := nextOf(t, "slot.drop.on.stop=true"); strings.Contains(got, "/stop") || strings.Contains(got, "takeover") || !strings.Contains(got, "--new-slot NAME") {
		t.Errorf("steps:%s", got)
	}
}

// The tables that pass the router need a connector, which is a step before the connector stops.
func TestStepsForOtherTables(t *testing.T) {
	got := nextOf(t, twoHave+onOutbox+"transforms.outbox.predicate=p")
	own, stop := strings.Index(got, "change events of public.orders, create a connector for these tables"), strings.Index(got, "/stop")
	if own < 0 || stop < own {
		t.Errorf("steps:%s", got)
	}
}

// What has to be done before a relay on a new slot starts comes before the plan of the switch, which has the rest.
func TestStepsBesideANewSlot(t *testing.T) {
	got := stepsOf(t, imported(t, twoHave+onOutbox+"transforms.outbox.predicate=p\ndatabase.password=${env:PW}", false, Options{NewSlot: "n"}))
	for _, want := range []string{"1. set PW in the environment", "2. if somebody reads the change events of public.orders", "3. save the configuration", "5. switch over as follows"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in the steps:%s", want, got)
		}
	}
	if strings.Contains(got, "/stop") || strings.Contains(got, "takeover") {
		t.Errorf("steps:%s", got)
	}
}

// Strimzi's operator would start a connector again that is stopped with Kafka Connect's API.
func TestSwitchPlanForStrimzi(t *testing.T) {
	in, err := Parse([]byte(base))
	if err != nil {
		t.Fatal(err)
	}
	in.form = formStrimzi
	result, err := Import(in, Options{NewSlot: "n"})
	if err != nil {
		t.Fatal(err)
	}
	var plan strings.Builder
	_, _ = result.SwitchPlan("outbox-cdc.yaml").WriteTo(&plan)
	if text := plan.String(); !strings.Contains(text, "kubectl patch kafkaconnector orders-outbox") || strings.Contains(text, "/stop") {
		t.Errorf("plan:\n%s", text)
	}
}

// The steps after a rejection name the flag that helps.
func TestStepsOfRefusal(t *testing.T) {
	for changes, want := range map[string]string{
		"-plugin.name":                        "1. run this command with --new-slot NAME",
		"table.include.list=public.outbox_.*": "1. run this command with --live",
		"-table.include.list":                 "1. run this command with --live",
		"-key.converter":                      "1. give the settings of the Connect worker",
		"slot.name=${SLOT}\nno.such.key=a":    "1. write the values of the placeholders",
	} {
		if got := nextOf(t, changes); !strings.Contains(got, want) {
			t.Errorf("%s: steps:%s", changes, got)
		}
	}
}

// A program with Debezium's engine has no Connect worker and no REST interface.
func TestEmbeddedEngine(t *testing.T) {
	const engine = "offset.storage=org.apache.kafka.connect.storage.FileOffsetBackingStore\noffset.storage.file.filename=o.dat\n"
	for _, f := range imported(t, engine+"-key.converter\n-producer.override.bootstrap.servers", false, Options{}).Report.Refused() {
		if strings.Contains(f.text, "worker") || !strings.Contains(f.text, "the program with Debezium's engine") {
			t.Errorf("%v", f)
		}
	}
	beside := imported(t, engine+"slot.name=a", false, Options{NewSlot: "n"})
	for _, plan := range []Plan{beside.SwitchPlan("outbox-cdc.yaml"), beside.RollbackPlan()} {
		if strings.Contains(plan.text, "curl") || !strings.Contains(plan.text, "o.dat") {
			t.Errorf("plan:\n%s", plan.text)
		}
	}
	if got := nextOf(t, engine); strings.Contains(got, "curl") || !strings.Contains(got, "stop the program with Debezium's engine") || !strings.Contains(got, "--offsets o.dat") {
		t.Errorf("steps:%s", got)
	}
}

// Only offsets in a file can be read. Among the keys of Kafka Connect, offset.storage does not say where they are.
func TestStepsWithOffsets(t *testing.T) {
	const server = "debezium.source.connector.class=PostgresConnector\ndebezium.sink.type=kafka\ndebezium.sink.kafka.producer.bootstrap.servers=k:9092\ndebezium.transforms=outbox\n" +
		"debezium.transforms.outbox.type=" + eventRouter + "\ndebezium.source.topic.prefix=x\ndebezium.source.database.hostname=localhost\ndebezium.source.database.user=u\n" +
		"debezium.source.database.dbname=d\ndebezium.source.plugin.name=pgoutput\ndebezium.source.table.include.list=public.outbox\n"
	operator := func(offset string) string {
		return "kind: DebeziumServer\nspec:\n  sink: {type: kafka, config: {producer.bootstrap.servers: 'k:9092'}}\n  transforms: [{type: " + eventRouter + "}]\n  source:\n    class: PostgresConnector\n" +
			"    offset: " + offset + "\n    config: {topic.prefix: x, database: {hostname: localhost, user: u, dbname: d}, plugin.name: pgoutput, table.include.list: public.outbox}\n"
	}
	members := `"offset.storage": "KafkaOffsetBackingStore"`
	for line := range strings.Lines(base) {
		key, value, _ := strings.Cut(strings.TrimRight(line, "\n"), "=")
		members += ", \"" + key + "\": \"" + value + "\""
	}
	for text, want := range map[string]string{
		server: "--offsets data/offsets.dat",
		server + "debezium.source.offset.storage=a.FileOffsetBackingStore\ndebezium.source.offset.storage.file.filename=/o": "--offsets /o",
		server + "debezium.source.offset.storage=io.debezium.storage.redis.offset.RedisOffsetBackingStore":                  "",
		operator("{memory: {}}"):                         "",
		operator("{file: {fileName: o}}"):                "--offsets o",
		"{" + members + "}":                              "--offsets offsets.json",
		base + "offset.storage=MemoryOffsetBackingStore": "",
	} {
		result := importedText(t, text)
		next := stepsOf(t, result)
		_, offsets, _ := strings.Cut(next, "check --takeover -c outbox-cdc.yaml")
		if line, _, _ := strings.Cut(offsets, "\n"); result.YAML == nil || strings.TrimSpace(line) != want {
			t.Errorf("%s\n%v %s", text, result.Report.Refused(), next)
		}
	}
}

// Debezium Server is stopped where it is managed.
func TestStopServer(t *testing.T) {
	for form, want := range map[string]string{formServer: "kubectl scale --replicas=0", formServerEnv: "docker compose stop", formOperator: "kubectl delete debeziumserver orders"} {
		m := &mapping{in: &Input{form: form, Name: "orders"}}
		if got := m.stopServer(); !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", form, got, want)
		}
	}
}
