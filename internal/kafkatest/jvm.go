package kafkatest

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"

	"github.com/outbox-cdc/outbox-cdc/internal/serverproc"
)

// Version is the version of the real broker.
const Version = "4.3.1"

const oldestJava = 17

//go:embed pom.xml
var pom []byte

// A jvm is what the broker's classes run in.
type jvm struct {
	java    string // path
	libs    string // directory of the broker's jars
	sharing string // option about the archive of loaded classes
}

// findJVM returns a jvm that is ready to run. The first time on a machine it
// downloads the jars, and runs a broker once to have its classes archived
// (JEP 350): with the archive one starts in a third of the time.
func findJVM(ctx context.Context) (jvm, error) {
	java, version, err := findJava(ctx)
	if err != nil {
		return jvm{}, err
	}
	cache, err := serverproc.CacheDir()
	if err != nil {
		return jvm{}, err
	}
	libs := filepath.Join(cache, "kafka-"+Version)
	if err := serverproc.Fill(ctx, libs, func(staging string) error { return fetch(ctx, staging) }); err != nil {
		return jvm{}, err
	}
	sum := sha256.Sum256(version)
	archive := filepath.Join(cache, fmt.Sprintf("kafka-%s-classes-%x", Version, sum[:4]))
	err = serverproc.Fill(ctx, archive, func(staging string) error {
		return tryOnce(ctx, jvm{java, libs, "-XX:ArchiveClassesAtExit=" + filepath.Join(staging, archiveFile)})
	})
	return jvm{java, libs, "-XX:SharedArchiveFile=" + filepath.Join(archive, archiveFile)}, err
}

const archiveFile = "kafka.jsa"

// tryOnce starts and stops a broker.
func tryOnce(ctx context.Context, vm jvm) error {
	s, err := launch(ctx, vm, Config{})
	if err != nil {
		return err
	}
	return errors.Join(s.Shutdown(ctx), s.Stop())
}

// fetch downloads the jars into dir.
func fetch(ctx context.Context, dir string) error {
	mvn, err := exec.LookPath("mvn")
	if err != nil {
		return fmt.Errorf("a real Kafka is fetched with Maven: %w", err)
	}
	project := filepath.Join(dir, "pom.xml")
	if err := os.WriteFile(project, pom, 0o600); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, mvn, "--batch-mode", "--quiet", "--file", project, //nolint:gosec // Maven of PATH
		"dependency:copy-dependencies", "-DoutputDirectory="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("fetch Kafka %s with Maven: %w\n%s", Version, err, out)
	}
	return nil
}

// the line is `openjdk version "17.0.15" 2025-04-15`
var javaVersion = regexp.MustCompile(`version "(\d+)`)

// findJava returns the path of a java that is new enough, and all it says
// about its version.
func findJava(ctx context.Context) (path string, version []byte, err error) {
	path = "java"
	if home := os.Getenv("JAVA_HOME"); home != "" { //nolint:forbidigo // where Java's own scripts look first
		path = filepath.Join(home, "bin", "java")
	}
	if path, err = exec.LookPath(path); err != nil {
		return "", nil, fmt.Errorf("a real Kafka runs on Java: %w", err)
	}
	version, err = exec.CommandContext(ctx, path, "-version").CombinedOutput() //nolint:gosec // Java of JAVA_HOME or PATH
	if err != nil {
		return "", nil, fmt.Errorf("%s -version: %w\n%s", path, err, version)
	}
	m := javaVersion.FindSubmatch(version)
	if m == nil {
		return "", nil, fmt.Errorf("%s -version printed %q", path, version)
	}
	if major, err := strconv.Atoi(string(m[1])); err != nil || major < oldestJava {
		return "", nil, fmt.Errorf("a real Kafka %s needs Java %d or newer, and %s is %s", Version, oldestJava, path, m[1])
	}
	return path, version, nil
}

// command returns a run of a main class.
func (vm jvm) command(heapMB int, logLevel, class string, args ...string) *exec.Cmd {
	return exec.Command(vm.java, append([]string{ //nolint:gosec,noctx // no context ends a broker
		fmt.Sprintf("-Xmx%dm", heapMB), "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
		"-XX:+IgnoreUnrecognizedVMOptions", "-Xshare:auto", vm.sharing,
		"-Djava.net.preferIPv4Stack=true", "-Dorg.slf4j.simpleLogger.defaultLogLevel=" + logLevel,
		"-cp", filepath.Join(vm.libs, "*"), class,
	}, args...)...)
}
