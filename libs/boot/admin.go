package boot

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// AdminHandler serves health, metrics and profiles. It uses plain net/http, so the limits, tracing
// and error responses of the public API do not apply.
//
// Anyone with access to the listener may read health and metrics. Profiles reveal the contents of
// memory and cost CPU time, so they require profileToken. If it is empty, profiles are off.
func AdminHandler(notReady func() error, profileToken string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		// Liveness does not check dependencies: a restart would not fix them.
		_, _ = fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := notReady(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "ok")
	})
	mux.Handle("GET /metrics", promhttp.Handler())
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]string{"version": Version()})
	})
	mux.Handle("GET /debug/pprof/", profile(profileToken, pprof.Index))
	mux.Handle("GET /debug/pprof/profile", profile(profileToken, pprof.Profile))
	mux.Handle("GET /debug/pprof/trace", profile(profileToken, pprof.Trace))
	return mux
}

// profile runs h only for callers that send token. If token is empty, it refuses every caller. It
// compares hashes, so response times reveal nothing about the token.
func profile(token string, h http.HandlerFunc) http.Handler {
	want := sha256.Sum256([]byte(token))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if token == "" {
			http.Error(w, "Profiles are off, because this process has no token for them. Set LINKREEL_PROFILE_TOKEN to turn them on.", http.StatusNotFound)
			return
		}
		scheme, given, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		got := sha256.Sum256([]byte(given))
		if !strings.EqualFold(scheme, "Bearer") || subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
			w.Header().Set("WWW-Authenticate", "Bearer")
			http.Error(w, "Profiles require the token of this installation. Send it as Authorization: Bearer TOKEN.", http.StatusUnauthorized)
			return
		}
		h(w, r)
	})
}

func serveAdmin(ctx context.Context, cfg Config, svc *Service, stopping *atomic.Bool) (*http.Server, error) {
	if cfg.AdminAddr == "" {
		return nil, nil
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", cfg.AdminAddr)
	if err != nil {
		return nil, fmt.Errorf("%s: open the admin listener: %w", svc.Name, err)
	}
	srv := &http.Server{ReadHeaderTimeout: 5 * time.Second, Handler: AdminHandler(func() error {
		if stopping.Load() {
			return errors.New("stopping")
		}
		return svc.NotReady()
	}, cfg.ProfileToken)}
	go func() {
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			// The service still serves requests, so the error is only logged. The probes use this
			// listener, so they now fail, and the cluster restarts the process.
			slog.Error("admin listener failed; the probes fail until the process is restarted", "service", svc.Name, "error", err)
		}
	}()
	return srv, nil
}
