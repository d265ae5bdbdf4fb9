package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/linkreel/linkreel/services/localcloud/backup"
	"github.com/linkreel/linkreel/services/localcloud/firestore"
	"github.com/linkreel/linkreel/services/localcloud/guard"
	"github.com/linkreel/linkreel/services/localcloud/storage"
)

// options contains the values of the command-line flags.
type options struct {
	dataDir                              string
	firestoreAddr, storageAddr, apiAddr  string
	adminAddr                            string
	backupAddr, backupTokenFile          string
	indexes, buckets                     list
	corsFile                             string
	publicURL, keyFile, tokenFile        string
	pushURL, pushAudience, pushTokenMail string
	allowRemote                          bool
	objectsDir                           string
	maxUpload, reserve                   size
	apiHosts                             list
}

// size is a flag for a number of bytes, such as 10737418240. It accepts Kubernetes units, such as
// 10Gi.
type size int64

func (s *size) String() string { return strconv.FormatInt(int64(*s), 10) }

func (s *size) Set(v string) error {
	shift := 0
	for i, unit := range []string{"Ki", "Mi", "Gi", "Ti"} {
		if rest, ok := strings.CutSuffix(v, unit); ok {
			v, shift = rest, 10*(i+1)
		}
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64>>shift {
		return errors.New("use a number of bytes such as 1048576 or 512Mi")
	}
	*s = size(n << shift)
	return nil
}

// list is a flag that may be repeated.
type list []string

func (l *list) String() string     { return strings.Join(*l, ",") }
func (l *list) Set(v string) error { *l = append(*l, v); return nil }

func parse(args []string, stderr io.Writer) (*options, error) {
	o := &options{reserve: 256 << 20}
	f := flag.NewFlagSet("localcloud", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.dataDir, "data-dir", ".localcloud", "directory for all data; only one process at a time can use it")
	f.StringVar(&o.firestoreAddr, "firestore-addr", "127.0.0.1:8085", "address to listen on for Firestore (gRPC)")
	f.StringVar(&o.storageAddr, "storage-addr", "127.0.0.1:8083", "address to listen on for object storage; it may be public, because it accepts only signed requests")
	f.StringVar(&o.apiAddr, "storage-api-addr", "127.0.0.1:8084", "address to listen on for your own programs: the JSON API of object storage, which requires the token, and /livez and /readyz")
	f.StringVar(&o.adminAddr, "admin-addr", "", "address to listen on for /metrics, which needs no token (default: none)")
	f.StringVar(&o.backupAddr, "backup-addr", "", "address to listen on for backups: all records and objects, for linkreel backup --from (default: none)")
	f.StringVar(&o.backupTokenFile, "backup-token-file", "", "file with the bearer token that --backup-addr requires, in the format of --token-file")
	f.Var(&o.indexes, "indexes", "firestore.indexes.json with the composite indexes to enforce; may be repeated (default: enforce none)")
	f.Var(&o.buckets, "bucket", "name of a bucket to create; may be repeated (default linkreel)")
	f.StringVar(&o.corsFile, "cors-file", "", "file with the CORS rules of the buckets, in the format of gcloud storage buckets update --cors-file")
	f.StringVar(&o.objectsDir, "objects-dir", "", "directory for the bytes of objects, for example on a separate volume (default in the data directory); existing objects are moved there")
	f.Var(&o.maxUpload, "max-upload-bytes", "size of the largest object that a signed URL accepts, such as 10Gi (default 5Ti)")
	f.Var(&o.reserve, "reserve-bytes", "free space that uploads must leave on the objects' volume; uploads that would use it get status 507; 0 means none")
	f.Var(&o.apiHosts, "api-host", "host name with dots that your own programs use to call the storage API; may be repeated; not needed for IP addresses and names without dots")
	f.StringVar(&o.publicURL, "public-url", "", "base URL of upload sessions (default the host of the request)")
	f.StringVar(&o.keyFile, "key-file", "", "file with the service account key that signs; share it with the programs that sign (default: a new key in the data directory)")
	f.StringVar(&o.tokenFile, "token-file", "", "file with the bearer token that callers of Firestore and the storage API must send. A token has 32 characters or more. If the file has several tokens, separated by commas, each is accepted. Without this flag no token is needed, and the servers listen only on loopback")
	f.StringVar(&o.pushURL, "push-url", "", "URL that is notified of each change to an object, in Pub/Sub push format (default: no notifications)")
	f.StringVar(&o.pushAudience, "push-audience", "", "audience of the token that is sent to --push-url (default that URL)")
	f.StringVar(&o.pushTokenMail, "push-email", "", "e-mail address in the token that is sent to --push-url (default the service account's)")
	f.BoolVar(&o.allowRemote, "allow-remote", false, "allow listening on addresses other than loopback; needs --token-file")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if f.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if len(o.buckets) == 0 {
		o.buckets = list{"linkreel"}
	}
	if o.backupAddr != "" && o.backupTokenFile == "" {
		return nil, errors.New("--backup-addr serves all data to its callers; require a token with --backup-token-file")
	}
	return o, nil
}

// description is the content of localcloud.json.
type description struct {
	FirestoreAddr string   `json:"firestoreAddr"`
	StorageURL    string   `json:"storageUrl"`
	StorageAPIURL string   `json:"storageApiUrl"`
	HealthURL     string   `json:"healthUrl"`
	JWKSURL       string   `json:"jwksUrl"`
	KeyFile       string   `json:"keyFile"`
	TokenFile     string   `json:"tokenFile,omitempty"`
	MetricsURL    string   `json:"metricsUrl,omitempty"`
	BackupURL     string   `json:"backupUrl,omitempty"`
	Buckets       []string `json:"buckets"`
}

// run serves until ctx is canceled. It stops all servers before it returns.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	token, err := readToken(o.tokenFile)
	if err != nil {
		return err
	}
	backupToken, err := readToken(o.backupTokenFile)
	if err != nil {
		return err
	}
	for _, a := range []string{o.firestoreAddr, o.storageAddr, o.apiAddr, cmp.Or(o.adminAddr, "127.0.0.1:0"), cmp.Or(o.backupAddr, "127.0.0.1:0")} {
		if err := checkRemote(a, o.allowRemote, token != ""); err != nil {
			return err
		}
	}
	if o.dataDir, err = filepath.Abs(o.dataDir); err != nil {
		return err
	}
	if o.objectsDir != "" {
		if o.objectsDir, err = filepath.Abs(o.objectsDir); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(o.dataDir, 0o700); err != nil {
		return err
	}
	file := filepath.Join(o.dataDir, "localcloud.json")
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	log := slog.New(slog.NewTextHandler(stderr, nil))

	indexes, err := readIndexes(o.indexes)
	if err != nil {
		return err
	}
	log.Info("starting", o.described(indexes)...)
	fire, err := firestore.Open(firestore.Options{Path: filepath.Join(o.dataDir, "firestore.db"), Indexes: indexes, Token: token})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, fire.Close()) }()

	public, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.storageAddr)
	if err != nil {
		return err
	}
	defer func() { _ = public.Close() }() // an error is expected if a server has already closed it
	api, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.apiAddr)
	if err != nil {
		return err
	}
	defer func() { _ = api.Close() }()
	store, err := openStorage(o, "http://"+api.Addr().String(), token, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()

	var serving atomic.Bool // true once Firestore is also ready
	failed := make(chan error, 2)
	meters := newMeters(fire, o.volumes())
	publicServer, apiServer := server(meters.counted(store.PublicHandler())), server(health(&serving, fire, meters.counted(store.APIHandler())))
	defer stopServer(ctx, publicServer)
	defer stopServer(ctx, apiServer)
	admin, stopAdmin, err := serveBeside(ctx, o.adminAddr, meters.handler())
	if err != nil {
		return err
	}
	defer stopAdmin()
	backups, err := o.backups(ctx, fire, store, backupToken)
	if err != nil {
		return err
	}
	backupURL, stopBackups, err := serveBeside(ctx, o.backupAddr, backups)
	if err != nil {
		return err
	}
	defer stopBackups()
	go func() { failed <- publicServer.Serve(public) }()
	go func() { failed <- apiServer.Serve(api) }()
	fireAddr, err := fire.Listen(o.firestoreAddr)
	if err != nil {
		return err
	}

	serving.Store(true)
	d := description{FirestoreAddr: fireAddr.String(), StorageURL: "http://" + public.Addr().String(), StorageAPIURL: "http://" + api.Addr().String(),
		HealthURL: "http://" + api.Addr().String() + "/readyz", JWKSURL: "http://" + api.Addr().String() + "/oauth2/v3/certs",
		KeyFile: filepath.Join(o.dataDir, "storage", "service-account.json"), Buckets: o.buckets}
	if o.keyFile != "" {
		d.KeyFile = o.keyFile
	}
	d.TokenFile, d.BackupURL = o.tokenFile, backupURL
	if admin != "" {
		d.MetricsURL = admin + "/metrics"
	}
	if err := d.write(file); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(file)) }()
	d.print(stdout)

	select {
	case <-ctx.Done():
		log.Info("stopping", "version", built(), "reason", context.Cause(ctx).Error())
		return nil
	case err := <-failed:
		log.Info("stopping", "version", built(), "reason", err.Error())
		return fmt.Errorf("a listener failed: %w", err)
	}
}

// version is set by the image build through -ldflags "-X main.version=1.2.3".
var version string

// built returns the version of the image. If there is none, it returns the revision from which the
// program was built, or else the module's version.
func built() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return info.Main.Version
}

// readIndexes reads the index files. Without files it returns nil, so no indexes are enforced.
func readIndexes(paths []string) (*firestore.Indexes, error) {
	if len(paths) == 0 {
		return nil, nil
	}
	var files [][]byte
	for _, p := range paths {
		b, err := os.ReadFile(p)
		if err != nil {
			return nil, fmt.Errorf("cannot read the indexes: %w", err)
		}
		files = append(files, b)
	}
	indexes, err := firestore.ParseIndexes(files...)
	if err != nil {
		return nil, fmt.Errorf("cannot parse the indexes: %w", err)
	}
	return indexes, nil
}

// described returns the attributes of the startup log line. They include the number of indexes
// because a query without its index fails.
func (o *options) described(indexes *firestore.Indexes) []any {
	count := 0
	if indexes != nil {
		count = len(indexes.Composite)
	}
	return []any{"version", built(), "files", []string(o.indexes), "indexes", count}
}

func openStorage(o *options, apiURL, token string, log *slog.Logger) (*storage.Server, error) {
	so := storage.Options{Dir: filepath.Join(o.dataDir, "storage"), Buckets: o.buckets, PublicURL: o.publicURL, APIURL: apiURL, Token: token, Log: log,
		ObjectsDir: o.objectsDir, MaxUpload: int64(o.maxUpload), Reserve: int64(o.reserve), APIHosts: o.apiHosts}
	if o.corsFile != "" {
		b, err := os.ReadFile(o.corsFile)
		if err != nil {
			return nil, fmt.Errorf("cannot read the CORS rules: %w", err)
		}
		if err := json.Unmarshal(b, &so.CORS); err != nil {
			return nil, fmt.Errorf("cannot parse the CORS rules in %s: %w", o.corsFile, err)
		}
	}
	if o.keyFile != "" {
		b, err := os.ReadFile(o.keyFile)
		if err != nil {
			return nil, fmt.Errorf("cannot read the key file: %w", err)
		}
		so.Key = b
	}
	if o.pushURL != "" {
		so.Notify = &storage.Notify{URL: o.pushURL, Audience: o.pushAudience, Email: o.pushTokenMail}
	}
	return storage.Open(so)
}

// readToken reads a token file, if there is one. An empty file is an error. Otherwise callers would
// not need a token.
func readToken(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read token: %w", err)
	}
	text := strings.TrimSpace(string(b))
	if text == "" {
		return "", fmt.Errorf("read token: %s is empty", path)
	}
	if _, err := guard.Parse(text); err != nil {
		return "", fmt.Errorf("read token from %s: %w", path, err)
	}
	return text, nil
}

// checkRemote rejects an address that other machines can reach, unless --allow-remote is set and
// callers must send a token.
func checkRemote(addr string, allowed, guarded bool) error {
	a, err := net.ResolveTCPAddr("tcp", addr)
	switch {
	case err != nil:
		return err
	case a.IP.IsLoopback():
		return nil
	case !allowed:
		return fmt.Errorf("other machines can reach %s; pass --allow-remote to allow that", addr)
	case !guarded:
		return fmt.Errorf("other machines can reach %s, and without a token they could read and write all data; require a token with --token-file", addr)
	}
	return nil
}

// server returns a server that does not limit the duration of a request, because an upload may take
// arbitrarily long.
func server(h http.Handler) *http.Server {
	return &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute}
}

// health makes /readyz fail until all parts are ready. /livez succeeds from the start. While
// commits fail, both say so in their response text. The status remains 200 because reads work and a
// restart would not help.
func health(serving *atomic.Bool, fire *firestore.Server, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/readyz" && !serving.Load() {
			http.Error(w, "starting", http.StatusServiceUnavailable)
			return
		}
		h.ServeHTTP(w, r)
		if err := fire.CommitError(); err != nil && (r.URL.Path == "/readyz" || r.URL.Path == "/livez") {
			fmt.Fprintf(w, "but the last commit failed: %v\n", err)
		}
	})
}

// volumes maps the name of each volume in the metrics to its directory.
func (o *options) volumes() map[string]string {
	return map[string]string{"data": o.dataDir, "objects": cmp.Or(o.objectsDir, o.dataDir)}
}

// backups returns a handler that serves all records and objects. It aborts running backups when ctx
// is done.
func (o *options) backups(ctx context.Context, fire *firestore.Server, store *storage.Server, token string) (http.Handler, error) {
	tokens, err := guard.Parse(token)
	if err != nil {
		return nil, fmt.Errorf("read token from %s: %w", o.backupTokenFile, err)
	}
	return (&backup.Source{Records: fire, Objects: store, Tokens: tokens, Stop: ctx}).Handler(), nil
}

// serveBeside serves h on addr until stop is called. It does nothing if addr is empty.
func serveBeside(ctx context.Context, addr string, h http.Handler) (url string, stop func(), err error) {
	if addr == "" {
		return "", func() {}, nil
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return "", nil, err
	}
	s := server(h)
	go func() { _ = s.Serve(l) }() // stop makes Serve return; the main servers do not depend on this one
	return "http://" + l.Addr().String(), func() { stopServer(ctx, s) }, nil
}

// stopServer gives in-flight requests some time to finish, even though ctx is done.
func stopServer(ctx context.Context, s *http.Server) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if s.Shutdown(ctx) != nil {
		_ = s.Close()
	}
}

// write replaces the file atomically.
func (d description) write(path string) error {
	b, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", append(b, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

func (d description) print(w io.Writer) {
	fmt.Fprintf(w, `Firestore     %s
Storage       %s   signed URLs
Storage API   %s   JSON API
Health        %s
Signing key   %s
`, d.FirestoreAddr, d.StorageURL, d.StorageAPIURL, d.HealthURL, d.KeyFile)
	if d.TokenFile != "" {
		// Clients that find an emulator through these variables do not send a token, so the servers
		// would reject their calls.
		fmt.Fprintf(w, "Token         %s   for Firestore and the storage API\n", d.TokenFile)
		return
	}
	fmt.Fprintf(w, `
export FIRESTORE_EMULATOR_HOST=%s
export STORAGE_EMULATOR_HOST=%s
export GOOGLE_APPLICATION_CREDENTIALS=%s
`, d.FirestoreAddr, d.StorageAPIURL, d.KeyFile)
}
