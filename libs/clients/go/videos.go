package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Error implements error. [Client.WaitVideo] returns a VideoError for a failed video.
func (e *VideoError) Error() string { return e.Message + " (" + e.Code + ")" }

// WaitVideo waits until the video is ready, and returns it. If the video fails, the error is a
// *[VideoError]. If WaitVideo returns an error, it also returns the last response, if any. seen, if
// set, is called with each response. To bound the wait, use a ctx with a deadline. If the key may
// read events, the client uses long polls to wait for the video's events. Otherwise it reads the
// video every second at first, and then less often.
func (c *Client) WaitVideo(ctx context.Context, id string, seen func(*Video)) (v *Video, err error) {
	after, held := c.newestEvent(ctx, id)
	for wait := time.Second; ; wait = min(wait*5/4, 5*time.Second) {
		now, err := c.GetVideo(ctx, id)
		if err != nil {
			return v, err
		}
		v = now
		if seen != nil {
			seen(v)
		}
		switch v.Status {
		case "ready":
			return v, nil
		case "failed":
			if v.Error == nil {
				v.Error = &VideoError{Code: "INTERNAL", Message: "The video failed."}
			}
			return v, v.Error
		}
		if held {
			// Wait only briefly: progress does not produce events, and seen must be called for it
			// too.
			page, err := c.ListEvents(ctx, ListEventsQuery{Object: id, After: &after, Wait: new(5)})
			if held = err == nil; held {
				if page.NextCursor != nil {
					after = *page.NextCursor
				}
				continue
			}
		}
		if err := c.cfg.Sleep(ctx, wait); err != nil {
			return v, err
		}
	}
}

// newestEvent returns the cursor after which an object's new events appear. ok is false if the
// object has no events, or if the feed cannot be read because the deployment is too old or the key
// does not have the scope events:read.
func (c *Client) newestEvent(ctx context.Context, object string) (after string, ok bool) {
	page, err := c.ListEvents(ctx, ListEventsQuery{Object: object, Limit: 1})
	if err != nil {
		return "", false
	}
	if len(page.Data) > 0 {
		after = page.Data[0].ID
	}
	return after, after != ""
}

// UploadVideo creates a video, uploads its file and returns the new record. progress, if set, is
// called with the number of uploaded bytes and the size of the file. opts apply to the request that
// creates the video. If the upload fails, UploadVideo returns the record together with the error.
// To resume, read the video and call [Client.SendVideo], even in another process.
func (c *Client) UploadVideo(
	ctx context.Context, path string, in VideoCreate, progress func(sent, size int64), opts ...Option,
) (*VideoCreated, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // the file was only read, so Close cannot lose data
	made, err := c.CreateVideo(ctx, in, opts...)
	if err != nil {
		return nil, err
	}
	v, err := c.GetVideo(ctx, made.VideoID)
	if err != nil {
		return made, err
	}
	return made, c.SendVideo(ctx, v, file, progress)
}

// SendVideo uploads the file for a video that does not have one yet. If the video has an upload
// session, bytes that have already arrived are not sent again. If an upload address is no longer
// valid, SendVideo gets a new one.
func (c *Client) SendVideo(ctx context.Context, v *Video, file *os.File, progress func(sent, size int64)) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if progress == nil {
		progress = func(_, _ int64) {}
	}
	// Three attempts are enough: one may fail because the session has ended, and the next because
	// the address has expired.
	for try := 1; ; try++ {
		err := c.Upload(ctx, Upload{
			File: file, Size: info.Size(), ContentType: mime.TypeByExtension(filepath.Ext(file.Name())),
			URL: v.UploadURL, Session: v.ResumableUploadURL, Progress: func(n int64) { progress(n, info.Size()) },
		})
		if !errors.Is(err, ErrUploadGone) || try == 3 {
			return err
		}
		again, gerr := c.GetVideo(ctx, v.ID)
		if gerr != nil {
			return gerr
		}
		if again.Status == "processing" || again.Status == "ready" {
			return nil // the file has arrived; only the response was lost
		}
		if again.ResumableUploadURL == v.ResumableUploadURL {
			again.ResumableUploadURL = "" // that session has ended, so send the file in one piece
		}
		v = again
	}
}

// Upload describes a file to send to object storage.
type Upload struct {
	File io.ReaderAt
	Size int64
	// ContentType may be empty.
	ContentType string
	// URL accepts the whole file in one PUT. Session, if set, accepts it in parts and remembers how
	// much has arrived, so even another process can resume.
	URL, Session string
	// Part is the size of a part; 0 means 8 MiB. Storage requires multiples of 256 KiB.
	Part int64
	// Progress, if set, is called with the number of uploaded bytes.
	Progress func(sent int64)
}

// UploadError is returned if a file could not be uploaded because its upload address is no longer
// valid ([ErrUploadGone]) or because every attempt failed. [Client.SendVideo] resumes the upload.
type UploadError struct{ Err error }

func (e *UploadError) Error() string { return "upload: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *UploadError) Unwrap() error { return e.Err }

// ErrUploadGone means that the upload address no longer works. Read the video again to
// get a new one.
var ErrUploadGone = errors.New("the upload address is no longer valid")

// Upload sends a file and resumes after a broken connection. With a Session, bytes that have
// already arrived are not sent again.
func (c *Client) Upload(ctx context.Context, u Upload) error {
	if u.Part <= 0 {
		u.Part = 8 << 20
	}
	if u.Progress == nil {
		u.Progress = func(int64) {}
	}
	if u.Session != "" {
		return c.uploadSession(ctx, u)
	}
	for attempt := 1; ; attempt++ {
		u.Progress(0)
		body := io.NewSectionReader(u.File, 0, u.Size)
		res, err := c.put(ctx, u.URL, u.ContentType, "", body, u.Size, func(n int64) { u.Progress(n) })
		if err == nil && res.status < 300 {
			u.Progress(u.Size)
			return nil
		}
		if err := c.again(ctx, res, err, attempt); err != nil {
			return &UploadError{err}
		}
	}
}

// uploadSession implements Google Cloud Storage's protocol for resumable uploads. A 308 response
// has a Range header that lists the bytes that have arrived. A 2xx response means that all bytes
// have arrived.
func (c *Client) uploadSession(ctx context.Context, u Upload) error {
	// Only attempts without progress are counted, because a long upload over an unreliable
	// connection may fail many times.
	at, best, known := int64(0), int64(0), false
	for attempt := 1; ; {
		var res *putAnswer
		var err error
		if !known {
			res, err = c.put(ctx, u.Session, "", fmt.Sprintf("bytes */%d", u.Size), nil, 0, nil)
		} else {
			n := min(u.Part, u.Size-at)
			span := fmt.Sprintf("bytes %d-%d/%d", at, at+n-1, u.Size)
			if u.Size == 0 {
				span = "bytes */0"
			}
			start := at
			res, err = c.put(
				ctx, u.Session, u.ContentType, span, io.NewSectionReader(u.File, at, n), n,
				func(sent int64) { u.Progress(start + sent) },
			)
		}
		switch {
		case err == nil && res.status < 300:
			u.Progress(u.Size)
			return nil
		case err == nil && res.status == http.StatusPermanentRedirect: // 308: send the rest
			next := arrived(res.rng)
			switch {
			case next > best:
				best, attempt = next, 1 // there was progress, so start counting attempts again
			case known:
				attempt++
			}
			if attempt > c.cfg.Attempts {
				return &UploadError{errors.New("storage accepts no more bytes")}
			}
			at, known = next, true
			u.Progress(at)
			continue
		}
		known = false // ask how much has arrived before sending more
		if err := c.again(ctx, res, err, attempt); err != nil {
			return &UploadError{err}
		}
		attempt++
	}
}

// arrived returns the number of bytes in a Range header: 1235 for "bytes=0-1234".
func arrived(rng string) int64 {
	_, last, ok := strings.Cut(rng, "-")
	n, err := strconv.ParseInt(last, 10, 64)
	if !ok || err != nil {
		return 0
	}
	return n + 1
}

type putAnswer struct {
	status int
	rng    string
	text   string
	after  time.Duration
}

// endedStatuses lists the statuses that storage returns for a URL that is no longer valid. Google
// Cloud Storage uses 499 for a cancelled session.
var endedStatuses = []int{http.StatusBadRequest, http.StatusForbidden, http.StatusNotFound, http.StatusGone, 499}

// again waits before another attempt, or returns an error if another attempt would not help.
func (c *Client) again(ctx context.Context, res *putAnswer, err error, attempt int) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err == nil {
		switch {
		case slices.Contains(endedStatuses, res.status):
			return fmt.Errorf("%w: status %d: %s", ErrUploadGone, res.status, res.text)
		case res.status != http.StatusTooManyRequests && res.status != http.StatusRequestTimeout && res.status < 500:
			return &APIError{
				Status: res.status, Code: "HTTP_" + strconv.Itoa(res.status), Message: fmt.Sprintf("storage returned status %d: %s", res.status, res.text),
			}
		}
		err = &APIError{
			Status: res.status, Code: "HTTP_" + strconv.Itoa(res.status), Message: "storage returned status " + strconv.Itoa(res.status),
			RetryAfter: res.after,
		}
		if res.status == http.StatusRequestTimeout { // a part of the request was lost in transit
			err = lost(&call{method: http.MethodPut, path: "the upload address"}, errors.New("storage returned status 408"))
		}
	} else {
		err = lost(&call{method: http.MethodPut, path: "the upload address"}, err)
	}
	wait, retry := c.wait(err, attempt)
	if !retry || attempt >= c.cfg.Attempts {
		return err
	}
	return c.cfg.Sleep(ctx, wait)
}

func (c *Client) put(
	ctx context.Context, address, contentType, contentRange string, body io.Reader, size int64, progress func(int64),
) (*putAnswer, error) {
	if body != nil && progress != nil {
		body = &counter{body, 0, progress}
	}
	if size == 0 {
		body = http.NoBody
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, address, body)
	if err != nil {
		return nil, err
	}
	req.ContentLength = size
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	if contentRange != "" {
		req.Header.Set("Content-Range", contentRange)
	}
	// The client does not follow redirects: here 308 is not a redirect, and a signed URL is valid
	// for one host only.
	res, err := c.cfg.HTTPClient.Do(req)
	if err != nil {
		return nil, withoutAddress(err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(res.Body, 500))
	if err != nil {
		return nil, err
	}
	return &putAnswer{res.StatusCode, res.Header.Get("Range"), string(text), retryAfter(res.Header)}, nil
}

type counter struct {
	io.Reader
	n    int64
	tell func(int64)
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += int64(n)
	c.tell(c.n)
	return n, err
}
