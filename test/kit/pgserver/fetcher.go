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
	fetchVariable = "OUTBOX_CDC_FETCH_POSTGRES" // environment variable that makes a process the fetcher of a version
	fetchedDir    = "postgres"                  // where it leaves the programs, in its working directory
	headerTimeout = 30 * time.Second            // for the server to answer
	stallTimeout  = 60 * time.Second            // between two reads of the body
	trialTimeout  = 60 * time.Second            // for the server to start, unpacked
)

var initialized atomic.Bool //nolint:gochecknoglobals // whether this process has gone through Init

// Init must be the first call of main, or of TestMain, of a program that may
// Fetch. In the process that a Fetch starts, it does the fetching and does
// not return; in every other it does nothing.
func Init() {
	initialized.Store(true)
	version := os.Getenv(fetchVariable)
	if version == "" {
		return
	}
	signal.Ignore(syscall.SIGPIPE) // a parent that is gone must not end us before the trial server has stopped
	f := &fetcher{out: os.Stdout}
	go f.exitWithParent()
	if err := f.fetch(version); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// A fetcher is the process that Fetch starts.
type fetcher struct {
	out io.Writer // gets a line of JSON per report

	mu       sync.Mutex
	last     time.Time // of the last report
	progress Progress
}

// exitWithParent ends this process when its standard input ends: at once
// while it downloads; once a trial server may be running, fetch stops that
// and ends by itself.
func (f *fetcher) exitWithParent() {
	_, _ = io.Copy(io.Discard, os.Stdin)
	f.mu.Lock() // through Exit: fetch must not begin to unpack meanwhile
	if !f.progress.Unpacking {
		os.Exit(1)
	}
	f.mu.Unlock()
}

// fetch downloads and unpacks a release into the working directory, then
// starts and stops a server, which is how the library is asked to do so.
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
		Logger(io.Discard)) // errors quote it
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
		_ = json.NewEncoder(f.out).Encode(f.progress) // a parent that is gone needs none
	}
}

// archives are the sums of all archives that may be fetched. The library compares an archive with what the server says
// its sum is, which is no more than the server's word.
//
//go:embed postgres.sha256
var archives serverproc.Sums

// A meter reports how far the download of the archive is, and lets only one of the known archives through.
type meter struct {
	base    http.RoundTripper
	fetcher *fetcher
	sums    serverproc.Sums
}

// RoundTrip implements [http.RoundTripper].
func (m *meter) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := m.base.RoundTrip(req)
	if err != nil {
		fmt.Fprintln(os.Stderr, err) // the library's own error keeps it to itself
		return nil, err
	}
	if resp.StatusCode == http.StatusOK && strings.HasSuffix(req.URL.Path, ".jar") {
		resp.Body = m.fetcher.measure(resp.Body, max(0, resp.ContentLength))
		resp.Body = &verifiedBody{ReadCloser: resp.Body, sums: m.sums, name: path.Base(req.URL.Path), hash: sha256.New()}
	}
	return resp, nil
}

// A verifiedBody is a body that ends in an error if it is not the file called name.
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
