// Command dockerdoor implements the few calls that skaffold makes to a Docker daemon after a custom
// build: inspect an image, get its ID, and tag it. It uses the image store in the test cluster's
// containerd. It does not build, run or remove images.
//
//	dockerdoor SOCKET CONTAINERD-SOCKET
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		slog.Error("stopped", "error", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) != 2 {
		return errors.New("wrong arguments; use dockerdoor SOCKET CONTAINERD-SOCKET")
	}
	if err := os.Remove(args[0]); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("cannot remove the old socket: %w", err)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", args[0])
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: door{args[1]}, ReadHeaderTimeout: 5 * time.Second}
	go func() {
		<-ctx.Done()
		_ = srv.Close()
	}()
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// door contains containerd's address.
type door struct{ containerd string }

// imagePath is /v1.43/images/NAME/VERB. Names contain slashes, so a ServeMux cannot match it.
var imagePath = regexp.MustCompile(`^/v[0-9.]+/images/(.+?)(/json|/tag)?$`)

func (d door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Api-Version", "1.43")
	w.Header().Set("Ostype", "linux")
	m := imagePath.FindStringSubmatch(r.URL.Path)
	switch {
	case r.URL.Path == "/_ping":
		_, _ = fmt.Fprint(w, "OK")
	case strings.HasSuffix(r.URL.Path, "/version"):
		answer(w, map[string]string{"Version": "24.0.0", "ApiVersion": "1.43", "Os": "linux", "Arch": "amd64"})
	case strings.HasSuffix(r.URL.Path, "/images/json"):
		answer(w, []string{})
	case m != nil && m[2] == "/json":
		d.inspect(w, r, m[1])
	case m != nil && m[2] == "/tag" && r.Method == http.MethodPost:
		d.tag(w, r, m[1])
	case m != nil && r.Method == http.MethodDelete:
		answer(w, []string{})
	default:
		answer(w, map[string]string{})
	}
}

func (d door) inspect(w http.ResponseWriter, r *http.Request, name string) {
	found, err := d.find(r.Context(), name)
	if err != nil {
		refuse(w, err)
		return
	}
	answer(w, map[string]any{"Id": found.digest, "RepoTags": []string{found.name}, "Os": "linux", "Architecture": "amd64"})
}

func (d door) tag(w http.ResponseWriter, r *http.Request, name string) {
	found, err := d.find(r.Context(), name)
	if err == nil {
		_, err = d.ctr(r.Context(), "tag", "--force", found.name, r.URL.Query().Get("repo")+":"+r.URL.Query().Get("tag"))
	}
	if err != nil {
		refuse(w, err)
		return
	}
	w.WriteHeader(http.StatusCreated)
}

type image struct{ name, digest string }

// find looks up an image by name or ID.
func (d door) find(ctx context.Context, want string) (image, error) {
	out, err := d.ctr(ctx, "list")
	if err != nil {
		return image{}, err
	}
	for line := range strings.Lines(out) {
		// REF TYPE DIGEST SIZE …
		if f := strings.Fields(line); len(f) > 2 && (f[0] == want || f[2] == want) {
			return image{f[0], f[2]}, nil
		}
	}
	return image{}, errMissing
}

var errMissing = errors.New("no such image")

func (d door) ctr(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "ctr", append([]string{"--address", d.containerd, "--namespace", "k8s.io", "images"}, args...)...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("ctr images %s failed: %w: %s", args[0], err, out)
	}
	return string(out), nil
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

func refuse(w http.ResponseWriter, err error) {
	w.Header().Set("Content-Type", "application/json")
	if errors.Is(err, errMissing) {
		w.WriteHeader(http.StatusNotFound)
	} else {
		w.WriteHeader(http.StatusInternalServerError)
	}
	_ = json.NewEncoder(w).Encode(map[string]string{"message": err.Error()})
}
