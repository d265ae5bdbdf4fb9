package standalone

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/httpserver"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/services/localcloud/firestore"
	"github.com/linkreel/linkreel/services/localcloud/guard"
	"github.com/linkreel/linkreel/services/localcloud/storage"
)

// readOnlyPath is the path for the switch on the object storage port. No bucket can have this
// name.
const readOnlyPath = "/-/read-only"

// readOnlyFile marks a data directory as read-only.
const readOnlyFile = "read-only"

// readOnly is the switch that a move uses. While it is on, the stores refuse every change to
// records and objects. Requests that would change something are refused before they reach a
// service, which would retry for several seconds. All other requests are served.
type readOnly struct {
	dir     *dataDir
	records *firestore.Server
	objects *storage.Server
	on      atomic.Bool
	mu      sync.Mutex
}

// wasReadOnly reports whether the switch was on when the stack stopped.
func wasReadOnly(dir *dataDir) bool {
	_, err := os.Stat(dir.join(readOnlyFile))
	return !errors.Is(err, os.ErrNotExist) // on any other error, assume that it was on
}

// openReadOnly creates the switch and restores its state.
func openReadOnly(dir *dataDir, records *firestore.Server, objects *storage.Server) (*readOnly, error) {
	r := &readOnly{dir: dir, records: records, objects: objects}
	if !wasReadOnly(dir) {
		return r, nil
	}
	return r, r.set(true)
}

// set turns the switch on or off. Once set(true) has returned, data no longer changes, even after a
// restart.
func (r *readOnly) set(on bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if on && !wasReadOnly(r.dir) { // the file's time records when the switch was turned on
		if err := writeJSON(r.dir.join(readOnlyFile), "linkreel move has copied this data elsewhere. linkreel move --abort removes this file."); err != nil {
			return err
		}
		if err := syncDir(r.dir.path); err != nil {
			return err
		}
	}
	if on {
		r.on.Store(true)
	}
	if err := errors.Join(r.records.SetReadOnly(on), r.objects.SetReadOnly(on)); err != nil {
		return fmt.Errorf("make the data read-only: %w", err)
	}
	if !on {
		r.on.Store(false)
		if err := os.Remove(r.dir.join(readOnlyFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return syncDir(r.dir.path)
	}
	return nil
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// handler lets [Move] turn the switch on or off with a PUT of true or false.
func (r *readOnly) handler(tokens guard.Tokens) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, 16))
		on := strings.TrimSpace(string(body)) == "true"
		switch {
		case !guard.OwnHost(req.Host):
			http.Error(w, "This address does not serve this host name.", http.StatusMisdirectedRequest)
		case !tokens.Required() || !tokens.Accept(req.Header.Get("Authorization")):
			http.Error(w, "The switch requires this server's bearer token.", http.StatusUnauthorized)
		case req.Method != http.MethodPut:
			http.Error(w, "Use PUT.", http.StatusMethodNotAllowed)
		case err != nil, !on && strings.TrimSpace(string(body)) != "false":
			http.Error(w, "Send true or false.", http.StatusBadRequest)
		default:
			if err := r.set(on); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			w.WriteHeader(http.StatusNoContent)
		}
	})
}

// retryMoved is how long a refused caller should wait before it retries.
const retryMoved = 30 * time.Second

// fence refuses requests that would change something while the switch is on. It lets through POST
// requests from video viewers, which do not need a store.
func (r *readOnly) fence(next fasthttp.RequestHandler) fasthttp.RequestHandler {
	return func(ctx *fasthttp.RequestCtx) {
		if !r.on.Load() || ctx.IsGet() || ctx.IsHead() || ctx.IsOptions() || strings.HasPrefix(string(ctx.Path()), "/v/") {
			next(ctx)
			return
		}
		e := apierr.New(apierr.Unavailable, "This installation is being moved, so nothing can be changed. Try again after the time in Retry-After.")
		id := strings.ToLower(identity.NewNonce())
		ctx.SetStatusCode(e.Code.Status())
		ctx.Response.Header.Set("X-Request-Id", id)
		ctx.Response.Header.Set("Retry-After", fmt.Sprint(int(retryMoved.Seconds())))
		ctx.Response.Header.Set("Cache-Control", "private, no-store")
		ctx.SetContentType("application/json")
		ctx.SetBody(httpserver.ErrorBody(e, id))
	}
}
