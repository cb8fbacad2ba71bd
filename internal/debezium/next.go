package debezium

import (
	"cmp"
	"fmt"
	"io"
	"net/url"
	"strings"
)

// WriteNext writes what to do after the import, in order.
func (r *Result) WriteNext(w io.Writer) error {
	if len(r.steps) == 0 {
		return nil
	}
	var out strings.Builder
	out.WriteString("\nnext:\n")
	for i, step := range r.steps {
		fmt.Fprintf(&out, "  %d. %s\n", i+1, step)
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// steps returns what to do next.
func (m *mapping) steps(r *Result) []string {
	if refused := m.report.Refused(); len(refused) > 0 {
		return stepsOfRefusal(refused)
	}
	if m.dropsSlot() && m.opts.NewSlot == "" {
		return []string{"leave the connector running: Debezium drops its slot when it stops or restarts", "run this command again with --new-slot NAME, which prints how to switch over"}
	}
	var out []string
	if len(r.Variables) > 0 {
		out = append(out, "set "+strings.Join(r.Variables, ", ")+" in the environment of the relay")
	}
	out = append(out, m.report.before...)
	file := cmp.Or(m.opts.Output, "outbox-cdc.yaml")
	if m.opts.Output == "" {
		out = append(out, "save the configuration: run this command again with -o "+file)
	}
	if m.opts.Live == nil {
		out = append(out, "compare the last records with the topic: run this command again with --live")
	}
	if m.opts.NewSlot != "" {
		return append(out, "switch over as follows")
	}
	switch {
	case m.in.server:
		out = append(out, m.stopServer())
	case m.embedded() && r.offsets == "":
		out = append(out, "stop the program with Debezium's engine")
	case m.embedded():
		out = append(out, "stop the program with Debezium's engine, and keep its offsets: "+r.offsets)
	default:
		out = append(out, "stop the connector: "+r.stop)
	}
	if !m.in.server && !m.embedded() {
		out = append(out, fmt.Sprintf(`keep its offsets: curl -sf "$CONNECT/connectors/%s/offsets" > offsets.json`, url.PathEscape(cmp.Or(m.in.Name, "NAME"))))
	}
	given := ""
	if r.offsets != "" {
		given = " --offsets " + r.offsets
	}
	return append(out,
		fmt.Sprintf("outbox-cdc check --takeover -c %s%s", file, given),
		fmt.Sprintf("outbox-cdc run -c %s, with the --skip-to that check prints, if it prints one", file))
}

// stopConnector returns the command that stops a connector of Kafka Connect.
func (m *mapping) stopConnector() string {
	connector := cmp.Or(m.in.Name, "NAME")
	if m.in.form == formStrimzi {
		return fmt.Sprintf(`kubectl patch kafkaconnector %s --type merge -p '{"spec":{"state":"stopped"}}'`, connector)
	}
	return fmt.Sprintf(`curl -sf -X PUT "$CONNECT/connectors/%s/stop"`, url.PathEscape(connector))
}

// offsets returns the file that has the connector's offsets after it is stopped, or "" if they are stored elsewhere.
func (m *mapping) offsets() string {
	if !m.in.server && !m.embedded() {
		return "offsets.json"
	}
	if store := m.value("offset.storage"); store != "" && !strings.HasSuffix(store, "FileOffsetBackingStore") {
		return ""
	}
	return cmp.Or(m.value("offset.storage.file.filename"), "data/offsets.dat")
}

// stopServer returns how to stop Debezium Server such that nothing starts it again.
func (m *mapping) stopServer() string {
	if m.in.form == formOperator {
		return fmt.Sprintf("stop Debezium Server, and keep the volume with its offsets: kubectl delete debeziumserver %s (its operator would undo a kubectl scale)", cmp.Or(m.in.Name, "NAME"))
	}
	return "stop Debezium Server where it is managed, because a supervisor restarts a killed process: systemctl stop, docker compose stop, or kubectl scale --replicas=0"
}

// stepsOfRefusal returns what to do about rejected keys.
func stepsOfRefusal(refused []Finding) []string {
	causes := []struct{ part, step string }{
		{"is a placeholder", "write the values of the placeholders into the file, or render it with the tool that it belongs to"},
		{"--new-slot NAME", "run this command with --new-slot NAME: it converts for a new slot beside the connector's, and prints how to switch over"},
		{"give --live", "run this command with --live, so that it looks up the tables in the database"},
		{"--worker", "give the settings of the Connect worker with --worker"},
		{"--allow-unknown", "remove the unknown keys, or ignore them with --allow-unknown"},
		{"", "change what the REJ lines name"},
	}
	used := make(map[string]bool)
	for _, f := range refused {
		for _, c := range causes {
			if strings.Contains(f.text, c.part) {
				used[c.step] = true
				break
			}
		}
	}
	var out []string
	for _, c := range causes {
		if used[c.step] {
			out = append(out, c.step)
		}
	}
	if last := len(out) - 1; last > 0 {
		out[last] = strings.Replace(out[last], "change what the REJ", "change what the other REJ", 1)
	}
	return append(out, "run this command again")
}
