package objectstore

import (
	"context"
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"cloud.google.com/go/compute/metadata"
	"google.golang.org/api/iamcredentials/v1"
	"google.golang.org/api/option"

	"github.com/linkreel/linkreel/libs/apierr"
)

// MaxTTL is the longest lifetime of a signed URL.
const MaxTTL = 7 * 24 * time.Hour

// signer signs bytes as an identity.
type signer interface {
	account(ctx context.Context) (string, error)
	sign(ctx context.Context, account string, b []byte) ([]byte, error)
}

// keySigner signs with the key in a service account key file. This takes about a millisecond and
// does not need a network call.
type keySigner struct {
	email string
	key   *rsa.PrivateKey
}

func parseKeyFile(b []byte) (*keySigner, error) {
	var f struct {
		Email string `json:"client_email"`
		PEM   string `json:"private_key"`
	}
	if err := json.Unmarshal(b, &f); err != nil {
		return nil, fmt.Errorf("parse service account key: %w", err)
	}
	block, _ := pem.Decode([]byte(f.PEM))
	if block == nil || f.Email == "" {
		return nil, errors.New("parse service account key: no private_key or no client_email")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		// The older PKCS #1 format, which Google's clients also accept and which Helm generates.
		var pkcs1Err error
		if parsed, pkcs1Err = x509.ParsePKCS1PrivateKey(block.Bytes); pkcs1Err != nil {
			return nil, fmt.Errorf("parse service account key: %w", err)
		}
	}
	key, ok := parsed.(*rsa.PrivateKey)
	if !ok {
		return nil, errors.New("parse service account key: not an RSA key")
	}
	return &keySigner{email: f.Email, key: key}, nil
}

func (k *keySigner) account(context.Context) (string, error) { return k.email, nil }

func (k *keySigner) sign(_ context.Context, _ string, b []byte) ([]byte, error) {
	sum := sha256.Sum256(b)
	return rsa.SignPKCS1v15(nil, k.key, crypto.SHA256, sum[:])
}

// iamSigner lets Google sign as the process's identity. That identity needs the token-creator
// role on itself, but no key.
type iamSigner struct {
	timeout time.Duration
	options []option.ClientOption // set by tests

	mu      sync.Mutex
	email   string
	service *iamcredentials.Service
}

func (s *iamSigner) account(ctx context.Context) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.email == "" {
		ctx, cancel := context.WithTimeout(ctx, s.timeout)
		defer cancel()
		email, err := metadata.EmailWithContext(ctx, "default")
		if err != nil {
			return "", apierr.Down(fmt.Errorf("read the service account from the metadata server: %w", err))
		}
		s.email = email
	}
	return s.email, nil
}

func (s *iamSigner) connect() (*iamcredentials.Service, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.service == nil {
		// Do not use the caller's context: the client keeps the context to refresh its credentials
		// later.
		service, err := iamcredentials.NewService(context.Background(), s.options...)
		if err != nil {
			return nil, err
		}
		s.service = service
	}
	return s.service, nil
}

func (s *iamSigner) sign(ctx context.Context, account string, b []byte) ([]byte, error) {
	service, err := s.connect() // does not take a context because the client outlives the call
	if err != nil {
		return nil, fmt.Errorf("open IAM credentials: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var resp *iamcredentials.SignBlobResponse
	err = measure("sign", func() (err error) {
		resp, err = service.Projects.ServiceAccounts.SignBlob("projects/-/serviceAccounts/"+account,
			&iamcredentials.SignBlobRequest{Payload: base64.StdEncoding.EncodeToString(b)}).Context(ctx).Do()
		return mapError(err)
	})
	if err != nil {
		return nil, err
	}
	signature, err := base64.StdEncoding.DecodeString(resp.SignedBlob)
	if err != nil {
		return nil, fmt.Errorf("decode signature: %w", err)
	}
	return signature, nil
}

// signed builds a V4 signed URL. storage.SignedURL does the same, but it uses the wall clock, which
// tests cannot control. It also parses the key on each call and does not take a context. A test
// checks that both return the same result.
func (s *Store) signed(
	ctx context.Context, method, object string, ttl time.Duration, headers map[string]string, query url.Values,
) (string, time.Time, error) {
	if object == "" || ttl < time.Second || ttl > MaxTTL {
		return "", time.Time{}, fmt.Errorf("sign address: object %q or lifetime %v is not valid", object, ttl)
	}
	account, err := s.signer.account(ctx)
	if err != nil {
		return "", time.Time{}, fmt.Errorf("sign address: %w", err)
	}
	now := s.clock().UTC()
	stamp, day := now.Format("20060102T150405Z"), now.Format("20060102")
	scope := day + "/auto/storage/goog4_request"
	names := []string{"host"}
	for h := range headers {
		names = append(names, h)
	}
	slices.Sort(names)
	q := url.Values{
		"X-Goog-Algorithm":     {"GOOG4-RSA-SHA256"},
		"X-Goog-Credential":    {account + "/" + scope},
		"X-Goog-Date":          {stamp},
		"X-Goog-Expires":       {strconv.Itoa(int(ttl / time.Second))},
		"X-Goog-SignedHeaders": {strings.Join(names, ";")},
	}
	for k, v := range query {
		q[k] = v
	}
	path := escapePath(s.public.Path + "/" + s.bucketName + "/" + object)
	var b strings.Builder
	b.WriteString(method + "\n" + path + "\n" + strings.ReplaceAll(q.Encode(), "+", "%20") + "\n")
	for _, h := range names {
		v := headers[h]
		if h == "host" {
			v = s.public.Hostname() // without the port, as in Google's clients
		}
		b.WriteString(h + ":" + v + "\n")
	}
	b.WriteString("\n" + strings.Join(names, ";") + "\nUNSIGNED-PAYLOAD")
	sum := sha256.Sum256([]byte(b.String()))
	signature, err := s.signer.sign(ctx, account, []byte("GOOG4-RSA-SHA256\n"+stamp+"\n"+scope+"\n"+hex.EncodeToString(sum[:])))
	if err != nil {
		return "", time.Time{}, fmt.Errorf("sign address: %w", err)
	}
	signatures.Inc()
	q.Set("X-Goog-Signature", hex.EncodeToString(signature))
	return s.public.Scheme + "://" + s.public.Host + path + "?" + q.Encode(), now.Truncate(time.Second).Add(ttl.Truncate(time.Second)), nil
}

func escapePath(p string) string {
	segments := strings.Split(p, "/")
	for i := range segments {
		segments[i] = strings.ReplaceAll(url.QueryEscape(segments[i]), "+", "%20")
	}
	return strings.Join(segments, "/")
}

// SignPut returns a URL to which anyone can PUT the object, even several times, until the URL
// expires. The URL does not require any headers, so the caller must check size and type after the
// upload.
func (s *Store) SignPut(ctx context.Context, object string, ttl time.Duration) (address string, expires time.Time, err error) {
	return s.signed(ctx, http.MethodPut, object, ttl, nil, nil)
}

// GetOptions change the response to a signed read. Zero fields keep the object's values.
type GetOptions struct {
	ContentType        string
	ContentDisposition string
	Generation         int64 // the URL only returns this generation
}

// SignGet returns a URL from which anyone can read the object until the URL expires. HEAD and range
// requests also work.
func (s *Store) SignGet(ctx context.Context, object string, ttl time.Duration, o GetOptions) (address string, expires time.Time, err error) {
	q := url.Values{}
	if o.ContentType != "" {
		q.Set("response-content-type", o.ContentType)
	}
	if o.ContentDisposition != "" {
		q.Set("response-content-disposition", o.ContentDisposition)
	}
	if o.Generation != 0 {
		q.Set("generation", strconv.FormatInt(o.Generation, 10))
	}
	return s.signed(ctx, http.MethodGet, object, ttl, nil, q)
}

// StartResumable starts a resumable upload. most is the maximum number of bytes; 0 means as many as
// storage accepts. It returns the session's URL, which is a credential for this object and is valid
// for a week or until [Store.EndResumable]. A web page can send to the session only if origin is
// the page's origin: Google's storage applies the CORS rule for the origin that started the session
// to all later requests. Programs do not need an origin.
//
// SignPut does not offer such a limit: the signature would include the header with the length
// range, so every client would have to send that header.
func (s *Store) StartResumable(ctx context.Context, object, origin string, most int64) (session string, err error) {
	// The signature includes these headers, so the request below must send them unchanged.
	headers := map[string]string{"x-goog-resumable": "start"}
	if most > 0 {
		headers["x-goog-content-length-range"] = fmt.Sprintf("0,%d", most)
	}
	address, _, err := s.signed(ctx, http.MethodPost, object, time.Minute, headers, nil)
	if err != nil {
		return "", err
	}
	err = s.do(ctx, "session", "start upload of "+object, func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, nil)
		if err != nil {
			return err
		}
		for name, value := range headers {
			req.Header.Set(name, value)
		}
		if origin != "" {
			req.Header.Set("Origin", origin)
		}
		resp, err := s.plain.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10))
		if session = resp.Header.Get("Location"); resp.StatusCode != http.StatusCreated || session == "" {
			return answered(resp)
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	return session, nil
}

// EndResumable ends a session: storage drops the received bytes and accepts no more. It has no
// effect on an unknown session or on a session that has become an object. The call can be repeated
// until it succeeds.
func (s *Store) EndResumable(ctx context.Context, session string) error {
	// Keep a finished session: if the last response was lost, the client learns from the session
	// that its file has arrived.
	if _, whole, err := s.Received(ctx, session); whole || errors.Is(err, ErrNotFound) {
		return nil
	}
	return s.do(ctx, "session", "end upload session", func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodDelete, session, http.NoBody)
		if err != nil {
			return nil // not a URL, so there is no session
		}
		req.TransferEncoding = []string{"identity"} // makes net/http send Content-Length: 0, which Google requires
		resp, err := s.plain.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10))
		// Google returns 499 for a cancelled session, and other codes below 500 for an unknown
		// session. A retry would not change the result.
		if err := answered(resp); resp.StatusCode >= 400 && apierr.CodeOf(err) == apierr.Unavailable {
			return err
		}
		return nil
	})
}

// answered returns the error for an unexpected response.
func answered(resp *http.Response) error {
	err := fmt.Errorf("storage returned status %s", resp.Status)
	if code := resp.StatusCode; code >= 500 || code == http.StatusTooManyRequests || code == http.StatusRequestTimeout {
		return apierr.Down(err)
	}
	return err
}

// Received returns how many of a session's bytes have arrived. whole means that the object already
// exists. ErrNotFound means that the session no longer exists.
func (s *Store) Received(ctx context.Context, session string) (n int64, whole bool, err error) {
	return s.session(ctx, session, "*")
}

// FinishResumable creates an object from a session's bytes, if exactly size bytes have
// arrived. Otherwise the session does not change, and whole is false.
func (s *Store) FinishResumable(ctx context.Context, session string, size int64) (whole bool, err error) {
	_, whole, err = s.session(ctx, session, strconv.FormatInt(size, 10))
	return whole, err
}

func (s *Store) session(ctx context.Context, session, total string) (n int64, whole bool, err error) {
	err = s.do(ctx, "session", "query upload session", func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodPut, session, http.NoBody)
		if err != nil {
			return errors.New("its address is malformed") // err would contain the URL
		}
		req.Header.Set("Content-Range", "bytes */"+total)
		resp, err := s.plain.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10))
		switch resp.StatusCode {
		case http.StatusOK, http.StatusCreated:
			whole = true
		case http.StatusPermanentRedirect:
			last, some := strings.CutPrefix(resp.Header.Get("Range"), "bytes=0-")
			if !some {
				return nil
			}
			if n, err = strconv.ParseInt(last, 10, 64); err != nil {
				return fmt.Errorf("range %q", last)
			}
			n++
		// 499 is Google's status for a cancelled session.
		case http.StatusNotFound, http.StatusGone, 499:
			return ErrNotFound
		default:
			return answered(resp)
		}
		return nil
	})
	return n, whole, err
}
