package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Error makes VideoError an error: [Client.WaitUntilReady] returns it for a failed
// video.
func (e *VideoError) Error() string { return e.Message + " (" + e.Code + ")" }

// CreateVideo makes a record and an address to upload to.
func (c *Client) CreateVideo(ctx context.Context, in VideoCreate) (*VideoCreated, error) {
	return answer[VideoCreated](ctx, c, http.MethodPost, "/api/v1/videos", in)
}

// Video reads one video.
func (c *Client) Video(ctx context.Context, id string) (*Video, error) {
	return answer[Video](ctx, c, http.MethodGet, "/api/v1/videos/"+url.PathEscape(id), nil)
}

// Videos lists the newest videos. limit is 1 to 100; 0 is the service's default.
func (c *Client) Videos(ctx context.Context, limit int) ([]VideoSummary, error) {
	q := url.Values{}
	if limit > 0 {
		q.Set("limit", strconv.Itoa(limit))
	}
	page, err := answer[VideoList](ctx, c, http.MethodGet, "/api/v1/videos"+query(q), nil)
	return page.Data, err
}

// VideoFilter narrows a list of videos. A video must match all fields that are not
// empty.
type VideoFilter struct {
	Query      string // words of title, description, slug or tags
	Tags       []string
	Status     string
	Privacy    string
	ExternalID string
}

// VideosWhere walks the videos that match a filter, newest first, and reads pages as it
// goes. It ends after the first error.
func (c *Client) VideosWhere(ctx context.Context, f VideoFilter) iter.Seq2[VideoSummary, error] {
	q := filter(f.Tags, map[string]string{
		"limit": "100", "q": f.Query, "status": f.Status, "privacy": f.Privacy, "externalId": f.ExternalID,
	})
	return func(yield func(VideoSummary, error) bool) {
		for path := "/api/v1/videos" + query(q); path != ""; {
			var page struct{ Data []VideoSummary }
			next := ""
			err := c.Do(ctx, Call{Method: http.MethodGet, Path: path, Out: &page, Answered: func(h http.Header) { next = NextPage(h) }})
			if err != nil {
				yield(VideoSummary{}, err)
				return
			}
			for _, v := range page.Data {
				if !yield(v, nil) {
					return
				}
			}
			path = next
		}
	}
}

// NextPage returns the path and query of the next page of a list of videos, taken from
// the Link header with rel="next". On the last page it returns "". It ignores the host of
// that link, so that the client sends the key only to its own deployment.
func NextPage(h http.Header) string {
	for _, line := range h.Values("Link") {
		for part := range strings.SplitSeq(line, ",") {
			target, params, _ := strings.Cut(strings.TrimSpace(part), ";")
			if !strings.Contains(strings.ReplaceAll(params, " ", ""), `rel="next"`) {
				continue
			}
			u, err := url.Parse(strings.Trim(target, "<> "))
			if err == nil && strings.HasPrefix(u.Path, "/api/v1/videos") {
				return u.RequestURI()
			}
		}
	}
	return ""
}

// VideoAccess reads who may see a video.
func (c *Client) VideoAccess(ctx context.Context, id string) (*VideoAccess, error) {
	return answer[VideoAccess](ctx, c, http.MethodGet, "/api/v1/videos/"+url.PathEscape(id)+"/access", nil)
}

// SetVideoAccess replaces the rule for who may see a video. Once it returns, no page or
// playlist follows the old rule.
func (c *Client) SetVideoAccess(ctx context.Context, id string, in VideoAccessUpdate) (*VideoAccess, error) {
	return answer[VideoAccess](ctx, c, http.MethodPut, "/api/v1/videos/"+url.PathEscape(id)+"/access", in)
}

// Captions lists the languages of a video's captions.
func (c *Client) Captions(ctx context.Context, id string) ([]Caption, error) {
	return list[Caption](ctx, c, "/api/v1/videos/"+url.PathEscape(id)+"/captions")
}

// DeleteCaptions removes the captions of a language.
func (c *Client) DeleteCaptions(ctx context.Context, id, lang string) error {
	return c.call(ctx, http.MethodDelete, "/api/v1/videos/"+url.PathEscape(id)+"/captions/"+url.PathEscape(lang), nil, nil)
}

// SetThumbnail uses the frame at a second of the video as its thumbnail. If second is nil,
// it restores the thumbnail that the service chose.
func (c *Client) SetThumbnail(ctx context.Context, id string, second *float64) error {
	return c.call(ctx, http.MethodPut, "/api/v1/videos/"+url.PathEscape(id)+"/thumbnail", VideoThumbnail{second}, nil)
}

// UpdateVideo changes title and description.
func (c *Client) UpdateVideo(ctx context.Context, id string, in VideoUpdate) error {
	return c.call(ctx, http.MethodPatch, "/api/v1/videos/"+url.PathEscape(id), in, nil)
}

// DeleteVideo removes a video in any state.
func (c *Client) DeleteVideo(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodDelete, "/api/v1/videos/"+url.PathEscape(id), nil, nil)
}

// PutCaptions sets the captions of one language, a WebVTT file.
func (c *Client) PutCaptions(ctx context.Context, id, lang string, vtt []byte) error {
	return c.Do(ctx, Call{
		Method: http.MethodPut, Path: "/api/v1/videos/" + url.PathEscape(id) + "/captions/" + url.PathEscape(lang), Body: vtt,
		ContentType: "text/vtt",
	})
}

// WaitUntilReady waits until the video is ready, and returns it. For a failed video the
// error is a *[VideoError]. seen, if set, is called with each response. If the key may read
// events, the client waits for the video's events in a long poll. Otherwise it reads the
// video every second at first, and then less often.
func (c *Client) WaitUntilReady(ctx context.Context, id string, seen func(*Video)) (*Video, error) {
	after, held := c.newestEvent(ctx, id)
	for wait := time.Second; ; wait = min(wait*5/4, 5*time.Second) {
		v, err := c.Video(ctx, id)
		if err != nil {
			return nil, err
		}
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
			// The wait is short so that seen also gets the progress, which is not an event.
			page, err := c.Events(ctx, EventQuery{Object: id, Forward: true, After: after, Wait: 5 * time.Second})
			if held = err == nil; held {
				after = or(page.NextCursor, after)
				continue
			}
		}
		if err := c.cfg.Sleep(ctx, wait); err != nil {
			return v, err
		}
	}
}

// newestEvent returns the cursor at which to start reading new events of an object. ok is
// false if the object has no events, or if the feed cannot be read: the deployment is too
// old, or the key has no scope events:read.
func (c *Client) newestEvent(ctx context.Context, object string) (after string, ok bool) {
	page, err := c.Events(ctx, EventQuery{Object: object, Limit: 1})
	if err != nil {
		return "", false
	}
	if len(page.Data) > 0 {
		after = page.Data[0].ID
	}
	return after, after != ""
}

// Upload describes a file to send to object storage.
type Upload struct {
	File io.ReaderAt
	Size int64
	// ContentType may be empty.
	ContentType string
	// URL takes the whole file in one PUT. Session, if set, takes it in parts and
	// remembers how much has arrived, even after this program ends.
	URL, Session string
	// Part is the size of a part; 0 means 8 MiB. Storage requires multiples of 256 KiB.
	Part int64
	// Progress, if set, is called with the number of bytes that have arrived.
	Progress func(sent int64)
}

// ErrUploadGone means that the upload address no longer works. Read the video again to
// get a new one.
var ErrUploadGone = errors.New("the upload address is no longer valid")

// Upload sends a file and resumes after broken connections. With a Session, bytes that
// have arrived are not sent again.
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
			return fmt.Errorf("upload: %w", err)
		}
	}
}

// uploadSession follows the protocol of Google Cloud Storage's resumable
// sessions: A 308 with Range says which bytes have arrived, and a 2xx says that all have.
func (c *Client) uploadSession(ctx context.Context, u Upload) error {
	// Tries are counted from the last progress, because a long upload over a bad connection
	// may break many times.
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
				best, attempt = next, 1 // there was progress, so count tries anew
			case known:
				attempt++
			}
			if attempt > c.cfg.Attempts {
				return errors.New("upload: storage takes no more bytes")
			}
			at, known = next, true
			u.Progress(at)
			continue
		}
		known = false // ask what has arrived before sending more
		if err := c.again(ctx, res, err, attempt); err != nil {
			return fmt.Errorf("upload: %w", err)
		}
		attempt++
	}
}

// arrived reads "bytes=0-1234" as 1235.
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

// again waits before another attempt, or returns an error if another attempt would not help.
func (c *Client) again(ctx context.Context, res *putAnswer, err error, attempt int) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err == nil {
		switch {
		case slices.Contains([]int{http.StatusForbidden, http.StatusNotFound, http.StatusGone, http.StatusBadRequest}, res.status):
			return fmt.Errorf("%w: status %d: %s", ErrUploadGone, res.status, res.text)
		case res.status != http.StatusTooManyRequests && res.status != http.StatusRequestTimeout && res.status < 500:
			return fmt.Errorf("storage answered %d: %s", res.status, res.text)
		}
		err = &Error{
			Status: res.status, Code: "HTTP_" + strconv.Itoa(res.status), Message: "storage answered " + strconv.Itoa(res.status),
			RetryAfter: res.after,
		}
	} else {
		err = &lost{err}
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
	// Follow no redirects: 308 is a response here, and a signed URL is valid for one
	// host.
	hc := *c.cfg.HTTPClient
	hc.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	res, err := hc.Do(req)
	if err != nil {
		return nil, withoutAddress(err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(res.Body, 500))
	if err != nil {
		return nil, err
	}
	a := &putAnswer{status: res.StatusCode, rng: res.Header.Get("Range"), text: string(text)}
	if s, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil {
		a.after = time.Duration(s) * time.Second
	}
	return a, nil
}

// withoutAddress drops the address that net/http puts into its errors. A signed URL
// is a credential, and errors end up in logs and chats.
func withoutAddress(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
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
