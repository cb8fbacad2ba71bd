package kafkatest

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
)

//go:embed tools.xml
var toolsPOM []byte

// RunCommand runs a command line that may use the programs of [Scripts], and fails the test if it fails.
func RunCommand(tb testing.TB, command string) {
	tb.Helper()
	dir := tb.TempDir()
	Scripts(tb, dir)
	cmd := exec.CommandContext(tb.Context(), "bash", "-c", command) //nolint:gosec // a test's
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
	if out, err := cmd.CombinedOutput(); err != nil {
		tb.Fatalf("%s: %v\n%s", command, err, out)
	}
}

// Scripts installs Kafka's kafka-topics.sh, kafka-configs.sh, kafka-acls.sh and kafka-console-consumer.sh
// in dir. Each takes a second or two to run. Unless the run is a full one, Scripts skips the test.
func Scripts(tb testing.TB, dir string) {
	tb.Helper()
	need.FullRun(tb, "it needs the tools that come with Kafka")
	ctx, cancel := context.WithTimeout(tb.Context(), fetchTimeout)
	defer cancel()
	java, _, err := Java(ctx)
	if err != nil {
		need.Missing(tb, "no tools of Kafka for this test: %v", err)
	}
	libs, err := Jars(ctx, "kafka-tools-"+Version(), toolsPOM)
	if err != nil {
		need.Missing(tb, "no tools of Kafka for this test: %v", err)
	}
	for name, class := range map[string]string{
		"kafka-topics.sh":           "org.apache.kafka.tools.TopicCommand",
		"kafka-configs.sh":          "kafka.admin.ConfigCommand",
		"kafka-acls.sh":             "org.apache.kafka.tools.AclCommand",
		"kafka-console-consumer.sh": "org.apache.kafka.tools.consumer.ConsoleConsumer",
	} {
		script := fmt.Sprintf("#!/bin/sh\nexec '%s' -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dorg.slf4j.simpleLogger.defaultLogLevel=error -cp '%s/*' %s \"$@\"\n",
			java, libs, class)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o700); err != nil { //nolint:gosec // a program
			tb.Fatal(err)
		}
	}
}
