package kafkatest

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/outbox-cdc/outbox-cdc/test/kit/need"
)

//go:embed tools.xml
var toolsPOM []byte

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
