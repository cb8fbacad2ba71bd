package cli

import (
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/outbox-cdc/outbox-cdc/internal/bench"
)

// A benchResult is what bench prints, as text or as JSON. Figures of several runs are medians.
type benchResult struct {
	Verdict        verdictFigures   `json:"verdict"` // of all runs together
	Version        string           `json:"version"`
	Postgres       string           `json:"postgres"` // version
	Source         string           `json:"source"`
	Brokers        string           `json:"brokers"`
	Load           loadFigures      `json:"load"`
	Drain          []drainFigures   `json:"drain"`
	Ratio          float64          `json:"ratio,omitempty"` // of rows per second: ours by pg_recvlogical's
	NotCompared    string           `json:"not_compared,omitempty"`
	StartUpSeconds float64          `json:"start_up_seconds"`
	Latency        []latencyFigures `json:"latency"`
}

type verdictFigures struct {
	Rows       int `json:"rows"` // that were checked
	Lost       int `json:"lost"`
	Duplicates int `json:"duplicates"`
	OutOfOrder int `json:"out_of_order"`
	Altered    int `json:"altered"`
}

func (v verdictFigures) good() bool { return v == verdictFigures{Rows: v.Rows} }

type loadFigures struct {
	Rows           int    `json:"rows"`
	PayloadBytes   int    `json:"payload_bytes"`
	PerTransaction int    `json:"per_transaction"`
	Keys           int    `json:"keys"`
	Partitions     int    `json:"partitions"`
	Compression    string `json:"compression"`
	Runs           int    `json:"runs"`
}

type drainFigures struct {
	Contender     string  `json:"contender"`
	RowsPerSecond float64 `json:"rows_per_second"` // from the start of the process
	Streaming     float64 `json:"streaming"`       // rows per second from the first record on
	CPUPerMillion float64 `json:"cpu_seconds_per_million_rows"`
	PeakRSS       float64 `json:"peak_rss_mb,omitempty"`
}

type latencyFigures struct {
	Rate         int           `json:"rate"`
	Measured     int           `json:"measured"`
	FromSchedule quantilesInMS `json:"from_schedule_ms"`
	FromSent     quantilesInMS `json:"from_sent_ms"`
	WriterLate   quantilesInMS `json:"writer_late_ms"`
}

type quantilesInMS struct {
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p999"`
	Max  float64 `json:"max"`
}

// check adds what one run has found.
func (r *benchResult) check(rows int, v bench.Verdict) {
	r.Verdict.Rows += rows
	r.Verdict.Lost += v.Lost
	r.Verdict.Duplicates += v.Duplicates
	r.Verdict.OutOfOrder += v.OutOfOrder
	r.Verdict.Altered += v.Altered
}

// drained takes the results of all runs. theirs is what there is of the floor's, and missing why it
// is not all.
func (r *benchResult) drained(ours, theirs []bench.DrainResult, missing string) {
	r.Drain = []drainFigures{newDrainFigures(ours)}
	r.NotCompared = missing
	if missing != "" {
		return
	}
	r.Drain = append(r.Drain, newDrainFigures(theirs))
	var ratios []float64
	for i := range ours {
		ratios = append(ratios, ours[i].Rate()/theirs[i].Rate())
	}
	r.Ratio = rounded(bench.Median(ratios...), 3)
}

func newDrainFigures(runs []bench.DrainResult) drainFigures {
	median := func(of func(bench.DrainResult) float64, digits int) float64 {
		values := make([]float64, len(runs))
		for i, run := range runs {
			values[i] = of(run)
		}
		return rounded(bench.Median(values...), digits)
	}
	const megabyte = 1e6
	return drainFigures{
		Contender:     runs[0].Contender,
		RowsPerSecond: median(bench.DrainResult.Rate, 0),
		Streaming:     median(bench.DrainResult.StreamingRate, 0),
		CPUPerMillion: median(func(d bench.DrainResult) float64 { return d.CPUPerMillion().Seconds() }, 2),
		PeakRSS:       median(func(d bench.DrainResult) float64 { return float64(d.PeakRSS) / megabyte }, 1),
	}
}

func newLatencyFigures(l bench.LatencyResult) latencyFigures {
	return latencyFigures{
		Rate: l.Rate, Measured: l.Measured,
		FromSchedule: inMS(l.FromSchedule), FromSent: inMS(l.FromSent), WriterLate: inMS(l.WriterLate),
	}
}

func inMS(q bench.Quantiles) quantilesInMS {
	ms := func(d time.Duration) float64 { return rounded(float64(d)/float64(time.Millisecond), 3) }
	return quantilesInMS{P50: ms(q.P50), P90: ms(q.P90), P99: ms(q.P99), P999: ms(q.P999), Max: ms(q.Max)}
}

// rounded keeps so many digits behind the point.
func rounded(x float64, digits int) float64 {
	scale := math.Pow10(digits)
	return math.Round(x*scale) / scale
}

// write prints r for people, the verdict first.
func (r *benchResult) write(w io.Writer) error {
	var b strings.Builder
	r.writeVerdict(&b)
	l := r.Load
	fmt.Fprintf(&b, "outbox-cdc %s, Postgres %s at %s, Kafka at %s\n", r.Version, r.Postgres, r.Source, r.Brokers)
	fmt.Fprintf(&b, "%d rows of %d bytes, %d in a transaction, %d keys, %d partitions, compression %s, medians of %d runs\n\n",
		l.Rows, l.PayloadBytes, l.PerTransaction, l.Keys, l.Partitions, l.Compression, l.Runs)
	r.writeDrain(&b)
	fmt.Fprintf(&b, "\nstart-up  %.3f s from the start of the process to the first record at the consumer\n", r.StartUpSeconds)
	r.writeLatency(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *benchResult) writeVerdict(b *strings.Builder) {
	v := r.Verdict
	if v.good() {
		fmt.Fprintf(b, "All of %d rows arrived once, in order and unchanged.\n\n", v.Rows)
		return
	}
	fmt.Fprintf(b, "WHAT ARRIVED IS NOT WHAT WAS WRITTEN: of %d rows lost %d, duplicates %d, out of order %d, altered %d.\n\n",
		v.Rows, v.Lost, v.Duplicates, v.OutOfOrder, v.Altered)
}

func (r *benchResult) writeDrain(b *strings.Builder) {
	t := table(b)
	fmt.Fprintln(t, "drain\trows/s\tstreaming\tCPU s/million\tpeak RSS\t")
	for _, d := range r.Drain {
		rss := "-"
		if d.PeakRSS > 0 {
			rss = fmt.Sprintf("%.0f MB", d.PeakRSS)
		}
		fmt.Fprintf(t, "%s\t%.0f\t%.0f\t%.2f\t%s\t\n", d.Contender, d.RowsPerSecond, d.Streaming, d.CPUPerMillion, rss)
	}
	_ = t.Flush() // to a Builder
	if r.Ratio > 0 {
		fmt.Fprintf(b, "%.2f times the rows/s of pg_recvlogical, which only reads\n", r.Ratio)
	}
	if r.NotCompared != "" {
		fmt.Fprintf(b, "not compared with pg_recvlogical: %s\n", r.NotCompared)
	}
}

// lateWriter is from which share of the latency on the writer's own delay is worth a line.
const lateWriter = 0.5

func (r *benchResult) writeLatency(b *strings.Builder) {
	if len(r.Latency) == 0 {
		return
	}
	b.WriteString("\n")
	t := table(b)
	fmt.Fprintln(t, "latency in ms\tp50\tp90\tp99\tp99.9\tmax\t")
	var remarks []string
	for _, l := range r.Latency {
		q := l.FromSchedule
		fmt.Fprintf(t, "%d/s\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t\n", l.Rate, q.P50, q.P90, q.P99, q.P999, q.Max)
		if l.WriterLate.P99 > lateWriter*q.P99 {
			remarks = append(remarks, fmt.Sprintf("at %d/s the INSERTs themselves were late, by %.2f ms at p99\n", l.Rate, l.WriterLate.P99))
		}
	}
	_ = t.Flush() // to a Builder
	b.WriteString("from the moment a row's INSERT was due to the consumer's receipt; the COMMIT is in it\n")
	b.WriteString(strings.Join(remarks, ""))
}

// table returns a writer that aligns cells, which end with a tab, to the right.
func table(w io.Writer) *tabwriter.Writer {
	return tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
}
