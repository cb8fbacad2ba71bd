package demo

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"sync"
	"time"
)

//go:embed page
var pageFiles embed.FS

// A chaosPage is the page of a demo with Options.Chaos. It survives the relays, which have live pages of their own.
type chaosPage struct {
	demo     *demo
	crew     *crew
	listener net.Listener

	mu     sync.Mutex
	begun  time.Time
	points []pagePoint // one per second, the newest last
}

// A pagePoint is a point of the chart.
type pagePoint struct {
	At      float64 `json:"at"` // seconds since the demo began
	Records int     `json:"records"`
}

const (
	keptPoints = 120

	// lostAfter is the age of a row from which on the page calls it lost if it has not arrived: much longer than a relay needs to
	// take over. The summary compares with the database.
	lostAfter = 30 * time.Second
)

// A pageState is what the page shows.
type pageState struct {
	Elapsed float64 `json:"elapsed"` // seconds
	Limit   float64 `json:"limit"`   // seconds; 0: until Ctrl-C

	Blows blows `json:"blows"`

	Rows       int `json:"rows"`
	Records    int `json:"records"`
	InFlight   int `json:"in_flight"`
	Lost       int `json:"lost"`
	OutOfOrder int `json:"out_of_order"`
	Unexpected int `json:"unexpected"`
	Duplicates int `json:"duplicates"`

	Relays  []pageRelay `json:"relays"`
	Strikes []strike    `json:"strikes"` // the newest last
	Points  []pagePoint `json:"points"`
}

// A pageRelay is a relay on the page.
type pageRelay struct {
	Name string `json:"name"`
	PID  int    `json:"pid"`
	Role string `json:"role"` // active, standby; empty: it starts or does not respond
	URL  string `json:"url"`  // of its live page
}

func newChaosPage(d *demo, c *crew) *chaosPage {
	return &chaosPage{demo: d, crew: c, begun: time.Now()}
}

func (p *chaosPage) listen(ctx context.Context) (err error) {
	p.listener, err = new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	return err
}

func (p *chaosPage) url() string { return "http://" + p.listener.Addr().String() + "/" }

func (p *chaosPage) handler() (http.Handler, error) {
	files, err := fs.Sub(pageFiles, "page")
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /state", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(p.read(time.Now())) // an error means that the client is gone
	})
	mux.Handle("GET /", http.FileServerFS(files))
	return secured(mux), nil
}

// serve serves the page until ctx ends.
func (p *chaosPage) serve(ctx context.Context) error {
	handler, err := p.handler()
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: contactTimeout}
	stopLooking := every(time.Second, func() { p.note(time.Now()) })
	defer stopLooking()
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(p.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the page: %w", err)
	}
	return nil
}

// secured sets the headers of every response.
func secured(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", "no-store")
		h.Set("Content-Security-Policy", "default-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		next.ServeHTTP(w, r)
	})
}

// note adds a point to the chart.
func (p *chaosPage) note(now time.Time) {
	records := p.demo.ledger.counts().records
	p.mu.Lock()
	defer p.mu.Unlock()
	p.points = append(p.points, pagePoint{At: now.Sub(p.begun).Seconds(), Records: records})
	p.points = p.points[max(0, len(p.points)-keptPoints):]
}

// start makes now the beginning of the demo.
func (p *chaosPage) start(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.begun, p.points = now, nil
}

func (p *chaosPage) read(now time.Time) pageState {
	c := p.demo.ledger.counts()
	st := pageState{
		Limit: p.demo.opts.For.Seconds(), Rows: c.rows, Records: c.records, InFlight: c.missing,
		Lost: p.demo.ledger.lost(now, lostAfter), OutOfOrder: c.disordered, Unexpected: c.invented, Duplicates: c.duplicates,
	}
	st.Blows, st.Strikes = p.crew.striker.read(maxStrikes)
	for _, s := range p.crew.seats {
		r := pageRelay{Name: s.name, Role: string(s.role()), URL: "http://" + s.port.Addr() + "/"}
		if process := s.current(); process != nil {
			r.PID = process.PID()
		}
		if p.crew.striker.isFrozen(s) {
			r.Role = "frozen"
		}
		st.Relays = append(st.Relays, r)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	st.Elapsed = now.Sub(p.begun).Seconds()
	st.Points = append([]pagePoint{}, p.points...)
	return st
}
