// Command otelview is a small OpenTelemetry collector for development. It receives spans over
// OTLP/HTTP, appends each span to a file as a JSON line, and shows recent traces as trees, with
// links between traces.
//
//	GET /                    a page with the newest traces
//	GET /traces              the same as text, newest first; ?name=TEXT lists only traces
//	                         with TEXT in their name, and ?all=1 includes idle loops
//	GET /traces/ID           one trace as a tree
//	POST /v1/traces          spans, as OTLP exporters send them
//
// It accepts and drops metrics and logs. It keeps a limited number of traces in memory, and it does
// not authenticate callers. Do not use it in production.
package main

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"html/template"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	addr := flag.String("addr", ":4318", "address to listen on")
	file := flag.String("file", "", "file to append spans to, one JSON object per line; if empty, no file is written")
	keep := flag.Int("keep", 2000, "number of traces to keep in memory")
	flag.Parse()
	if err := run(ctx, *addr, *file, *keep); err != nil {
		slog.Error("stopped", "error", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, addr, file string, keep int) error {
	v := &viewer{store: newStore(keep), out: io.Discard}
	if file != "" {
		f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return fmt.Errorf("cannot open the span file: %w", err)
		}
		defer f.Close()
		v.out = f
	}
	srv := &http.Server{Addr: addr, Handler: v.handler(), ReadHeaderTimeout: 5 * time.Second}
	go func() {
		<-ctx.Done()
		_ = srv.Shutdown(context.WithoutCancel(ctx))
	}()
	if err := srv.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

type viewer struct {
	store *store
	mu    sync.Mutex // protects the file from interleaved lines
	out   io.Writer
}

func (v *viewer) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/traces", v.take)
	drop := func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }
	mux.HandleFunc("POST /v1/metrics", drop)
	mux.HandleFunc("POST /v1/logs", drop)
	newest := func(r *http.Request) []line {
		q := r.URL.Query()
		return v.store.newest(100, q.Get("name"), q.Get("all") != "")
	}
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_ = page.Execute(w, newest(r))
	})
	mux.HandleFunc("GET /traces", func(w http.ResponseWriter, r *http.Request) {
		for _, t := range newest(r) {
			_, _ = fmt.Fprintf(w, "%s  %8.1f ms  %3d spans  %s\n", t.ID, t.Millis, t.Spans, t.Name)
		}
	})
	mux.HandleFunc("GET /traces/{id}", func(w http.ResponseWriter, r *http.Request) {
		if tree := v.store.tree(r.PathValue("id")); tree != "" {
			_, _ = io.WriteString(w, tree)
			return
		}
		http.Error(w, "there is no trace with this ID", http.StatusNotFound)
	})
	return mux
}

// take reads an export request. It has the same format as TracesData.
func (v *viewer) take(w http.ResponseWriter, r *http.Request) {
	body := io.Reader(http.MaxBytesReader(w, r.Body, 16<<20))
	if r.Header.Get("Content-Encoding") == "gzip" {
		unzipped, err := gzip.NewReader(body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		body = io.LimitReader(unzipped, 64<<20)
	}
	text, err := io.ReadAll(body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var data tracepb.TracesData
	if err := proto.Unmarshal(text, &data); err != nil {
		http.Error(w, "not an OTLP export in protobuf: "+err.Error(), http.StatusBadRequest)
		return
	}
	spans := read(&data)
	v.store.add(spans)
	v.mu.Lock()
	defer v.mu.Unlock()
	lines := json.NewEncoder(v.out)
	for _, s := range spans {
		if err := lines.Encode(s); err != nil {
			slog.Error("cannot write a span to the file", "error", err)
			return
		}
	}
}

var page = template.Must(template.New("").Parse(`<!doctype html><meta charset="utf-8"><title>Traces</title>
<style>body{font:14px/1.5 monospace;margin:2em}td{padding:0 1em 0 0}tr:hover{background:#eee}</style>
<h1>Traces</h1><table>
{{range .}}<tr><td><a href="traces/{{.ID}}">{{.ID}}</a><td align="right">{{printf "%.1f" .Millis}} ms<td align="right">{{.Spans}}<td>{{.Name}}
{{end}}</table>`))
