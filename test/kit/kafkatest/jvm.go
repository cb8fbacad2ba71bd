package kafkatest

import (
	"cmp"
	"context"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"

	"github.com/outbox-cdc/outbox-cdc/test/kit/serverproc"
)

// Version returns the version of the real broker.
func Version() string { return cmp.Or(os.Getenv("OUTBOX_TEST_KAFKA_VERSION"), "4.3.1") }

const oldestJava = 17

//go:embed pom.xml
var pom []byte

// jars are the SHA-256 sums of all jars that this package downloads.
//
//go:embed jars.sha256
var jars serverproc.Sums

// A jvm is a Java installation with the broker's jars.
type jvm struct {
	java    string // path
	libs    string // directory of the broker's jars
	sharing string // java's option for the class data sharing archive
}

// findJVM returns a jvm that is ready to run. The first time on a machine it
// downloads the jars and runs a broker once to create an archive of its classes
// (JEP 350). With the archive a broker starts in a third of the time.
func findJVM(ctx context.Context) (jvm, error) {
	java, version, err := Java(ctx)
	if err != nil {
		return jvm{}, err
	}
	cache, err := serverproc.CacheDir()
	if err != nil {
		return jvm{}, err
	}
	libs, err := Jars(ctx, "kafka-"+Version(), pom)
	if err != nil {
		return jvm{}, err
	}
	sum := sha256.Sum256(version)
	archive := filepath.Join(cache, fmt.Sprintf("kafka-%s-classes-%x", Version(), sum[:4]))
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

// Jars returns the directory called name in the cache. It contains the jars that
// the Maven project pom depends on. The first time on a machine, Jars downloads
// them. It returns an error if jars.sha256 does not have the sum of a jar. The
// caller must change name whenever pom changes.
func Jars(ctx context.Context, name string, pom []byte) (string, error) {
	cache, err := serverproc.CacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, name)
	return dir, serverproc.Fill(ctx, dir, func(staging string) error { return fetch(ctx, staging, name, pom) })
}

// fetch downloads the jars that pom depends on into dir.
func fetch(ctx context.Context, dir, name string, pom []byte) error {
	mvn, err := exec.LookPath("mvn")
	if err != nil {
		return fmt.Errorf("%s is fetched with Maven: %w", name, err)
	}
	project := filepath.Join(dir, "pom.xml")
	if err := os.WriteFile(project, pom, 0o600); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, mvn, "--batch-mode", "--quiet", "--strict-checksums", "--file", project, //nolint:gosec // Maven of PATH
		"org.apache.maven.plugins:maven-dependency-plugin:2.8:copy-dependencies", "-DoutputDirectory="+dir, "-Dkafka.version="+Version())
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("fetch %s with Maven: %w\n%s", name, err, out)
	}
	if err := verifyJars(dir, jars); err != nil {
		return fmt.Errorf("fetch %s with Maven: %w", name, err)
	}
	return nil
}

// verifyJars returns an error for each jar in dir whose SHA-256 differs from sums.
func verifyJars(dir string, sums serverproc.Sums) error {
	paths, err := filepath.Glob(filepath.Join(dir, "*.jar"))
	if err != nil {
		return err
	}
	var errs []error
	for _, path := range paths {
		data, err := os.ReadFile(path) //nolint:gosec // of our own directory
		if err != nil {
			return err
		}
		sum := sha256.Sum256(data)
		errs = append(errs, sums.Verify(filepath.Base(path), sum[:]))
	}
	return errors.Join(errs...)
}

// javaVersion matches `openjdk version "17.0.15" 2025-04-15`.
var javaVersion = regexp.MustCompile(`version "(\d+)`)

// Java returns the path of a java that is new enough for Kafka, and the output of
// java -version.
func Java(ctx context.Context) (path string, version []byte, err error) {
	path = "java"
	if home := os.Getenv("JAVA_HOME"); home != "" {
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
		return "", nil, fmt.Errorf("a real Kafka %s needs Java %d or newer, and %s is %s", Version(), oldestJava, path, m[1])
	}
	return path, version, nil
}

// command returns a command that runs a main class with java's options.
func (vm jvm) command(options []string, logLevel, class string, args ...string) *exec.Cmd {
	return exec.Command(vm.java, slices.Concat(options, []string{ //nolint:gosec,noctx // no context ends a broker
		"-XX:+IgnoreUnrecognizedVMOptions", "-Xshare:auto", vm.sharing,
		"-Djava.net.preferIPv4Stack=true", "-Dorg.slf4j.simpleLogger.defaultLogLevel=" + logLevel,
		"-cp", filepath.Join(vm.libs, "*"), class,
	}, args)...)
}

// ScriptOptions returns, for Config.JVM, the options that bin/kafka-run-class.sh
// passes to java for every program of Kafka, except the size of the heap.
func ScriptOptions() []string {
	return []string{
		"-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35",
		"-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true",
	}
}
