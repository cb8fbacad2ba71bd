package pgserver

import (
	"crypto/sha256"
	_ "embed"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"net/http"
	"os"
	"os/signal"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"

	"github.com/outbox-cdc/outbox-cdc/test/kit/serverproc"
)

const (
	fetchVariable = "OUTBOX_CDC_FETCH_POSTGRES" // environment variable: the process is a fetcher of this version
	fetchedDir    = "postgres"                  // directory of the unpacked programs in the fetcher's working directory
	headerTimeout = 30 * time.Second            // for the HTTP server's response headers
	stallTimeout  = 60 * time.Second            // between two reads of the body
	trialTimeout  = 60 * time.Second            // for the unpacked Postgres to start
)

var initialized atomic.Bool //nolint:gochecknoglobals // whether this process has gone through Init

// Init must be the first call of main or TestMain in a program that may call
// Fetch. In the child process that Fetch starts, Init downloads the programs
// and exits. In every other process it returns at once.
func Init() {
	initialized.Store(true)
	version := os.Getenv(fetchVariable)
	if version == "" {
		return
	}
	signal.Ignore(syscall.SIGPIPE) // if the parent has exited, this process still has to stop the trial server
	f := &fetcher{out: os.Stdout}
	go f.exitWithParent()
	if err := f.fetch(version); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// A fetcher downloads and unpacks Postgres in the child process that Fetch starts.
type fetcher struct {
	out io.Writer // gets a line of JSON per report

	mu       sync.Mutex
	last     time.Time // of the last report
	progress Progress
}

// exitWithParent exits this process when its standard input ends during the
// download. After the download a trial server may run. fetch then stops that
// server, and the process exits after it.
func (f *fetcher) exitWithParent() {
	_, _ = io.Copy(io.Discard, os.Stdin)
	f.mu.Lock() // held during Exit, so that fetch does not start to unpack
	if !f.progress.Unpacking {
		os.Exit(1)
	}
	f.mu.Unlock()
}

// fetch downloads and unpacks a release into the working directory. The
// library does this when it starts a server, so fetch starts and stops one.
func (f *fetcher) fetch(version string) error {
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	port, err := serverproc.ReservePort()
	if err != nil {
		return err
	}
	defer port.Close()
	if base, ok := http.DefaultTransport.(*http.Transport); ok { // the library's http.Get goes through it
		base = base.Clone()
		base.ResponseHeaderTimeout = headerTimeout
		http.DefaultTransport = &meter{base: base, fetcher: f, sums: archives}
	}
	db := embeddedpostgres.NewDatabase(embeddedpostgres.DefaultConfig().
		Version(embeddedpostgres.PostgresVersion(version)).
		CachePath(filepath.Join(dir, "archive")).
		BinariesPath(filepath.Join(dir, fetchedDir)).
		RuntimePath(filepath.Join(dir, "run")).
		DataPath(filepath.Join(dir, "data")).
		Locale("C").Encoding("UTF8").
		Port(uint32(port.Number())).
		StartParameters(map[string]string{"unix_socket_directories": "", "fsync": "off"}).
		StartTimeout(trialTimeout).
		Logger(io.Discard)) // the library's errors contain the server's log
	if err := db.Start(); err != nil {
		return err
	}
	return db.Stop()
}

func (f *fetcher) report(change func(*Progress)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.progress)
	if now := time.Now(); f.progress.Unpacking || now.Sub(f.last) >= 50*time.Millisecond {
		f.last = now
		_ = json.NewEncoder(f.out).Encode(f.progress) // fails only if the parent has exited
	}
}

// archives are the SHA-256 sums of all archives that Fetch downloads. The library compares an archive only with
// the sum that the same server sends.
//
//go:embed postgres.sha256
var archives serverproc.Sums

// A meter reports the progress of the archive's download, and rejects an archive whose sum is not pinned.
type meter struct {
	base    http.RoundTripper
	fetcher *fetcher
	sums    serverproc.Sums
}

// RoundTrip implements [http.RoundTripper].
func (m *meter) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := m.base.RoundTrip(req)
	if err != nil {
		fmt.Fprintln(os.Stderr, err) // the library's own error does not contain it
		return nil, err
	}
	if resp.StatusCode == http.StatusOK && strings.HasSuffix(req.URL.Path, ".jar") {
		resp.Body = m.fetcher.measure(resp.Body, max(0, resp.ContentLength))
		resp.Body = &verifiedBody{ReadCloser: resp.Body, sums: m.sums, name: path.Base(req.URL.Path), hash: sha256.New()}
	}
	return resp, nil
}

// A verifiedBody is a response body. Its last Read fails if the SHA-256 is not the one pinned for name.
type verifiedBody struct {
	io.ReadCloser
	sums serverproc.Sums
	name string
	hash hash.Hash
}

// Read implements [io.Reader].
func (b *verifiedBody) Read(buf []byte) (int, error) {
	n, err := b.ReadCloser.Read(buf)
	b.hash.Write(buf[:n])
	if err == io.EOF {
		if wrong := b.sums.Verify(b.name, b.hash.Sum(nil)); wrong != nil {
			return n, wrong
		}
	}
	return n, err
}

type meteredBody struct {
	io.ReadCloser
	fetcher *fetcher
	stalled *time.Timer // closes the connection
}

func (f *fetcher) measure(body io.ReadCloser, total int64) io.ReadCloser {
	f.report(func(p *Progress) { p.Total = total })
	return &meteredBody{
		ReadCloser: body, fetcher: f,
		stalled: time.AfterFunc(stallTimeout, func() { _ = body.Close() }),
	}
}

// Read implements [io.Reader].
func (b *meteredBody) Read(buf []byte) (int, error) {
	n, err := b.ReadCloser.Read(buf)
	b.stalled.Reset(stallTimeout)
	if err != nil {
		b.stalled.Stop()
	}
	b.fetcher.report(func(p *Progress) {
		p.Bytes += int64(n)
		p.Unpacking = err == io.EOF
	})
	return n, err
}
