// Package objectstore is the services' only access to object storage, either Google's or the local
// one.
//
// Every call has a deadline and is retried after temporary failures. A download returns one
// complete generation, checked against its CRC32C, even if the connection breaks many times.
// Uploads are atomic. Calls return this package's errors: [ErrNotFound], [ErrStale], or an apierr
// UNAVAILABLE if storage is unreachable or temporarily refuses calls. With a key file, signing a
// URL takes about a millisecond and does not need a network call. Without a key file, it requires a
// call to Google's IAM, which also has a deadline.
//
// The underlying client traces each call, so this package does not create any spans. Signed URLs
// and session URLs are credentials, so this package never includes them in errors or log lines.
package objectstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"iter"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"cloud.google.com/go/storage"
	"github.com/googleapis/gax-go/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"golang.org/x/oauth2"
	"golang.org/x/sync/errgroup"
	"google.golang.org/api/googleapi"
	"google.golang.org/api/iterator"
	"google.golang.org/api/option"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/outage"
)

// Config selects the bucket and the identity that signs URLs.
type Config struct {
	// Bucket is the bucket for all objects.
	Bucket string `env:"STORAGE_BUCKET" envDefault:"linkreel"`
	// PublicURL is the base URL of signed URLs for external clients. The bucket is part of the
	// path.
	PublicURL string `env:"STORAGE_PUBLIC_URL" envDefault:"https://storage.googleapis.com"`
	// PublicDial is the host:port that the service itself connects to for a URL under PublicURL.
	// Set it if PublicURL's host is unreachable from the service's network. If it is empty, the
	// service connects to PublicURL's host.
	PublicDial string `env:"STORAGE_PUBLIC_DIAL"`
	// Endpoint is the base URL of a local JSON API. If it is empty, the store uses Google's API
	// with the ambient credentials.
	Endpoint string `env:"STORAGE_ENDPOINT"`
	// Token is localcloud's bearer token. It is sent only to Endpoint. It is not sent to
	// Google, nor to PublicURL, because signed URLs are credentials themselves. If Token contains
	// several tokens, separated by commas, only the first is sent.
	Token string `env:"LOCALCLOUD_TOKEN"`
	// KeyFile is a service account key file for signing. If it is empty, IAM signs as the ambient
	// identity.
	KeyFile string `env:"STORAGE_KEY_FILE"`
	// ServiceAccount is the email address of the identity that IAM signs as. If it is empty, the
	// store asks the metadata server.
	ServiceAccount string `env:"STORAGE_SERVICE_ACCOUNT"`
	// Timeout bounds a call that does not transfer content, including all its attempts.
	Timeout time.Duration `env:"STORAGE_TIMEOUT" envDefault:"5s"`
	// StallTimeout is how long a transfer may go without progress. After that, an upload fails, and
	// a download is resumed a few times before it fails.
	StallTimeout time.Duration `env:"STORAGE_STALL_TIMEOUT" envDefault:"30s"`
	// TransferTimeout bounds one upload or download.
	TransferTimeout time.Duration `env:"STORAGE_TRANSFER_TIMEOUT" envDefault:"2h"`

	// Key is the content of a key file, as an alternative to KeyFile.
	Key []byte `env:"-"`
	// Clock returns the time for signatures; nil means time.Now.
	Clock func() time.Time `env:"-"`
}

// Errors that calls return.
var (
	// ErrNotFound means that the object, or its generation, does not exist.
	ErrNotFound = errors.New("no such object")
	// ErrStale means that the object does not have the generation that the caller specified.
	ErrStale = errors.New("object has changed since it was read")
	// ErrEncoded means that the object is stored with a Content-Encoding, which makes reading it
	// unsafe. See [Object.Encoded].
	ErrEncoded = errors.New("object is stored with a content encoding")
)

// Object is the metadata of an object.
type Object struct {
	Name            string
	Generation      int64
	Size            int64
	ContentType     string
	ContentEncoding string // set by the uploader, so it can have any value
	CacheControl    string
	Created         time.Time
	CRC32C          uint32
	MD5             []byte // nil for a composed object
	Moved           *Moved // nil unless the object was moved here

	stored int64 // the generation that storage assigned
}

// Moved describes the origin of a moved object. Records refer to objects by generation, and storage
// assigns a new generation to each upload, so this package returns a moved object's old generation
// to its callers.
type Moved struct {
	Generation int64  // the generation at the origin
	Of         string // the mover's name for the content; not used by this package
}

// Names of the custom metadata that stores a [Moved].
const (
	movedGeneration = "linkreel-generation"
	movedOf         = "linkreel-of"
)

// Encoded reports whether the object is stored with a Content-Encoding. Google decompresses a gzip
// object while serving it and ignores the requested range. As a result, Size and CRC32C do not
// describe the bytes that a reader receives, which may be a thousand times as many.
func (o Object) Encoded() bool {
	return o.ContentEncoding != "" && !strings.EqualFold(o.ContentEncoding, "identity")
}

var signatures = promauto.NewCounter(prometheus.CounterOpts{
	Name: "linkreel_storage_signatures_total",
	Help: "Signed URLs. Without a signing key, each signature costs a remote call.",
})

// Store is an open bucket. It is safe for concurrent use.
type Store struct {
	client     *storage.Client
	bucket     *storage.BucketHandle
	bucketName string
	public     *url.URL
	plain      *http.Client // for signed URLs
	signer     signer
	clock      func() time.Time
	breaker    *outage.Breaker

	timeout, stall, transfer time.Duration
}

// Open returns a store. It does not wait for storage, so a service can start even while storage is
// down.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	public, err := url.Parse(strings.TrimSuffix(cfg.PublicURL, "/"))
	if err != nil || public.Host == "" || cfg.Bucket == "" {
		return nil, fmt.Errorf("open storage: bucket %q and public URL %q do not form a valid address", cfg.Bucket, cfg.PublicURL)
	}
	s := &Store{
		breaker:    outage.New(outage.Config{Name: "storage", Failures: 5, Over: time.Second, Rest: time.Second}),
		bucketName: cfg.Bucket, public: public, clock: cfg.Clock, timeout: cmp.Or(cfg.Timeout, 5*time.Second),
		stall: cmp.Or(cfg.StallTimeout, 30*time.Second), transfer: cmp.Or(cfg.TransferTimeout, 2*time.Hour),
	}
	if s.clock == nil {
		s.clock = time.Now
	}
	if s.signer, err = newSigner(cfg, s.timeout); err != nil {
		return nil, fmt.Errorf("open storage: %w", err)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if cfg.PublicDial != "" {
		transport.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, cfg.PublicDial)
		}
	}
	s.plain = &http.Client{Transport: transport}
	opts := []option.ClientOption{storage.WithJSONReads(), storage.WithDisabledClientMetrics()}
	if cfg.Endpoint != "" {
		opts = append(opts, option.WithEndpoint(strings.TrimSuffix(cfg.Endpoint, "/")+"/storage/v1/"), localAuth(cfg.Token))
	}
	if s.client, err = storage.NewClient(ctx, opts...); err != nil {
		return nil, fmt.Errorf("open storage: %w", err)
	}
	// Every call is safe to repeat: reads, deletions that accept a missing object, and uploads of
	// the same bytes. The error function is set because the default retries uploads after fewer
	// errors. For example, it does not retry after a lost connection.
	s.client.SetRetry(storage.WithPolicy(storage.RetryAlways), storage.WithErrorFunc(storage.ShouldRetry),
		storage.WithBackoff(gax.Backoff{Initial: 100 * time.Millisecond, Max: 2 * time.Second, Multiplier: 2}))
	s.bucket = s.client.Bucket(cfg.Bucket)
	return s, nil
}

// localAuth returns the option for calls to local storage: the token, or no authentication if there
// is no token.
func localAuth(tokens string) option.ClientOption {
	token, _, _ := strings.Cut(tokens, ",")
	if token = strings.TrimSpace(token); token == "" {
		return option.WithoutAuthentication()
	}
	return option.WithTokenSource(oauth2.StaticTokenSource(&oauth2.Token{AccessToken: token}))
}

func newSigner(cfg Config, timeout time.Duration) (signer, error) {
	key := cfg.Key
	if key == nil && cfg.KeyFile != "" {
		b, err := os.ReadFile(cfg.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("read key file: %w", err)
		}
		key = b
	}
	if key != nil {
		return parseKeyFile(key)
	}
	return &iamSigner{email: cfg.ServiceAccount, timeout: timeout}, nil
}

// Close releases idle connections.
func (s *Store) Close() error {
	s.plain.CloseIdleConnections()
	return s.client.Close()
}

// concealed is an error with the URL removed from its text: session URLs are credentials.
type concealed struct {
	text string
	err  error
}

func (e *concealed) Error() string { return e.text }
func (e *concealed) Unwrap() error { return e.err }

func conceal(err error) error {
	if e := (*url.Error)(nil); errors.As(err, &e) {
		return &concealed{text: strings.ReplaceAll(err.Error(), e.URL, "storage"), err: err}
	}
	return err
}

// mapError converts an error from the client library to one of this package's errors. Temporary
// failures become UNAVAILABLE, unless the caller has cancelled the call.
func mapError(err error) error {
	err = conceal(err)
	var api *googleapi.Error
	var network net.Error
	switch {
	case err == nil:
		return nil
	case errors.Is(err, storage.ErrObjectNotExist):
		return fmt.Errorf("%w: %w", ErrNotFound, err)
	case errors.Is(err, context.Canceled) && !errors.Is(err, errStalled):
		return err
	case errors.As(err, &api) && api.Code == http.StatusPreconditionFailed:
		return fmt.Errorf("%w: %w", ErrStale, err)
	case errors.As(err, &api) && api.Code == http.StatusNotFound:
		return fmt.Errorf("%w: %w", ErrNotFound, err)
	case storage.ShouldRetry(err), errors.Is(err, context.DeadlineExceeded), errors.As(err, &network), errors.Is(err, errStalled):
		return apierr.Down(err)
	}
	return err
}

// do runs one call that does not transfer content. operation is the call's name in metrics, and
// what is its name in errors.
func (s *Store) do(ctx context.Context, operation, what string, f func(context.Context) error) error {
	err := s.breaker.Call(ctx, s.timeout, func(ctx context.Context) error {
		return measure(operation, func() error { return mapError(f(ctx)) })
	})
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

func (s *Store) handle(object string, generation int64) *storage.ObjectHandle {
	h := s.bucket.Object(object)
	if generation != 0 {
		h = h.Generation(generation)
	}
	return h
}

func objectOf(a *storage.ObjectAttrs) Object {
	o := Object{Name: a.Name, Generation: a.Generation, Size: a.Size, ContentType: a.ContentType, ContentEncoding: a.ContentEncoding,
		CacheControl: a.CacheControl, Created: a.Created, CRC32C: a.CRC32C, MD5: a.MD5, stored: a.Generation}
	if g, err := strconv.ParseInt(a.Metadata[movedGeneration], 10, 64); err == nil && g > 0 {
		o.Generation, o.Moved = g, &Moved{g, a.Metadata[movedOf]}
	}
	return o
}

// attrs reads one generation of an object. Generation 0 means the live generation.
func (s *Store) attrs(ctx context.Context, object string, generation int64) (*storage.ObjectAttrs, error) {
	a, err := s.handle(object, generation).Attrs(ctx)
	if generation == 0 || !errors.Is(err, storage.ErrObjectNotExist) {
		return a, err
	}
	live, e := s.handle(object, 0).Attrs(ctx)
	if e == nil && objectOf(live).Generation != generation {
		e = err
	}
	return live, e
}

// Stat returns the live object.
func (s *Store) Stat(ctx context.Context, object string) (Object, error) {
	return s.stat(ctx, object, 0)
}

func (s *Store) stat(ctx context.Context, object string, generation int64) (o Object, err error) {
	err = s.do(ctx, "stat", "stat object "+object, func(ctx context.Context) error {
		a, err := s.attrs(ctx, object, generation)
		if err == nil {
			o = objectOf(a)
		}
		return err
	})
	return o, err
}

// Delete removes an object; generation 0 means the live generation. If the object does not exist,
// Delete succeeds.
func (s *Store) Delete(ctx context.Context, object string, generation int64) error {
	err := s.do(ctx, "delete", "delete object "+object, func(ctx context.Context) error {
		err := s.handle(object, generation).Delete(ctx)
		if generation == 0 || !errors.Is(err, storage.ErrObjectNotExist) {
			return err
		}
		a, err := s.attrs(ctx, object, generation) // the object may have been moved
		if err != nil {
			return err
		}
		return s.handle(object, a.Generation).Delete(ctx)
	})
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

// List returns an iterator over the objects with a prefix, sorted by name. It ends after the first
// error.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		ctx, cancel := context.WithTimeout(ctx, s.transfer)
		defer cancel()
		q := &storage.Query{Prefix: prefix, Projection: storage.ProjectionNoACL}
		page := iterator.NewPager(s.bucket.Objects(ctx, q), 1000, "")
		for {
			var batch []*storage.ObjectAttrs
			var next string
			err := measure("list", func() (err error) {
				next, err = page.NextPage(&batch)
				return mapError(err)
			})
			if err != nil {
				yield(Object{}, fmt.Errorf("list %q: %w", prefix, err))
				return
			}
			for _, a := range batch {
				if !yield(objectOf(a), nil) {
					return
				}
			}
			if next == "" {
				return
			}
		}
	}
}

// DeletePrefix deletes every object with the prefix. It can be repeated until it succeeds. It
// rejects an empty prefix, which would empty the bucket.
func (s *Store) DeletePrefix(ctx context.Context, prefix string) error {
	if prefix == "" {
		return errors.New("delete prefix: an empty prefix would empty the bucket")
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for o, err := range s.List(ctx, prefix) {
		if err != nil {
			g.Go(func() error { return err })
			break
		}
		// Delete the live generation because objects that were written after the listing must be
		// deleted too.
		g.Go(func() error { return s.Delete(ctx, o.Name, 0) })
	}
	return g.Wait()
}

// UploadOptions configure an upload.
type UploadOptions struct {
	ContentType     string
	CacheControl    string
	ContentEncoding string
	Moved           *Moved // nil if the object was not moved here
	// IfGeneration, if set, is the generation that the object must have; 0 means that the object
	// must not exist yet. If the object has a different generation, the call fails with ErrStale.
	// There is one exception: with 0, the call succeeds if the object already has exactly these
	// bytes, so that an upload can be retried.
	IfGeneration *int64
}

func (o UploadOptions) on(h *storage.ObjectHandle) *storage.ObjectHandle {
	switch {
	case o.IfGeneration == nil:
		return h
	case *o.IfGeneration == 0:
		return h.If(storage.Conditions{DoesNotExist: true})
	}
	return h.If(storage.Conditions{GenerationMatch: *o.IfGeneration})
}

// chunk is the maximum number of bytes that an upload keeps in memory in case it must resend them.
const chunk = 8 << 20

// chunkFor returns a smaller buffer size for a small source because the client library allocates
// the whole buffer at the start.
func chunkFor(r io.Reader) int {
	size := int64(chunk)
	switch r := r.(type) {
	case interface{ Len() int }:
		size = int64(r.Len())
	case *os.File:
		if fi, err := r.Stat(); err == nil && fi.Mode().IsRegular() {
			size = fi.Size()
		}
	}
	const unit = 256 << 10
	return int(min(chunk, (size/unit+1)*unit))
}

// Upload stores all bytes of r. If r fails, nothing is stored.
func (s *Store) Upload(ctx context.Context, object string, r io.Reader, o UploadOptions) (Object, error) {
	var made Object
	err := measure("upload", func() (err error) {
		made, err = s.upload(ctx, object, r, o)
		return err
	})
	if err != nil {
		return Object{}, fmt.Errorf("upload %q: %w", object, err)
	}
	return made, nil
}

func (s *Store) upload(ctx context.Context, object string, r io.Reader, o UploadOptions) (Object, error) {
	ctx, cancel := context.WithTimeout(ctx, s.transfer)
	defer cancel()
	ctx, abort := context.WithCancelCause(ctx)
	defer abort(nil)
	watch := time.AfterFunc(s.stall, func() { abort(errStalled) })
	defer watch.Stop()
	w := o.on(s.bucket.Object(object)).NewWriter(ctx)
	w.ChunkSize = chunkFor(r)
	w.ChunkRetryDeadline = s.stall
	w.ChunkTransferTimeout = s.stall
	w.ProgressFunc = func(int64) { watch.Reset(s.stall) }
	w.ContentType, w.CacheControl, w.ContentEncoding = o.ContentType, o.CacheControl, o.ContentEncoding
	if o.Moved != nil {
		w.Metadata = map[string]string{movedGeneration: strconv.FormatInt(o.Moved.Generation, 10), movedOf: o.Moved.Of}
	}
	sum := crc32.New(castagnoli)
	n, err := io.Copy(w, io.TeeReader(r, sum))
	if err != nil {
		abort(err) // before Close, which would store the bytes sent so far
		_ = w.Close()
		return Object{}, mapError(orStalled(ctx, err))
	}
	watch.Reset(s.stall)
	if err := w.Close(); err != nil {
		err = mapError(orStalled(ctx, err))
		if errors.Is(err, ErrStale) && o.IfGeneration != nil && *o.IfGeneration == 0 {
			// The object may come from this upload, if its first response was lost, or from an
			// earlier run of the same job.
			if cur, e := s.Stat(ctx, object); e == nil && cur.Size == n && cur.CRC32C == sum.Sum32() {
				return cur, nil
			}
		}
		return Object{}, err
	}
	made := objectOf(w.Attrs())
	if made.Size != n || made.CRC32C != sum.Sum32() {
		err := errors.New("storage has different bytes than were sent")
		return Object{}, errors.Join(apierr.Down(err), s.Delete(ctx, object, made.Generation))
	}
	return made, nil
}

// orStalled adds errStalled to the error if the stall timer stopped the transfer.
func orStalled(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), errStalled) {
		return fmt.Errorf("%w: %w", errStalled, conceal(err))
	}
	return err
}

// UploadFile uploads the file at path, like [Store.Upload].
func (s *Store) UploadFile(ctx context.Context, object, path string, o UploadOptions) (Object, error) {
	f, err := os.Open(path)
	if err != nil {
		return Object{}, fmt.Errorf("upload %q: %w", object, err)
	}
	defer func() { _ = f.Close() }()
	return s.Upload(ctx, object, f, o)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)
