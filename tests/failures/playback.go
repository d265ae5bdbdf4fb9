package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// play plays the end of the newest video that is ready. If it cannot determine which one that is,
// it plays the same video as last time.
func (s *stack) play(ctx context.Context, _ int) {
	videos := "http://" + s.counts.addrs["videos.api"]
	var page struct{ Data []struct{ ID string } }
	if _, err := call(ctx, http.MethodGet, videos+"/api/v1/videos?status=ready&limit=1", s.key, nil, &page); err == nil && len(page.Data) > 0 {
		var video struct{ PlaybackURL string }
		if _, err := call(ctx, http.MethodGet, videos+"/api/v1/videos/"+page.Data[0].ID, s.key, nil, &video); err == nil {
			s.playback.Store(video.PlaybackURL)
		}
	}
	address, _ := s.playback.Load().(string)
	if address == "" {
		return
	}
	// There is no ingress to forward the public URL to videos.
	u, err := url.Parse(address)
	if err != nil {
		s.say("the playback address %q is not valid: %v", address, err)
		return
	}
	begin := time.Now()
	status, err := fetchLast(ctx, videos+u.RequestURI())
	if ctx.Err() == nil {
		s.counts.add("playback", status, err, time.Since(begin))
	}
}

// fetchLast fetches a playlist, the last playlist in it, and the last segment in that.
func fetchLast(ctx context.Context, address string) (status int, err error) {
	for range 3 {
		var text string
		if status, text, err = fetch(ctx, address); err != nil || status != http.StatusOK {
			return status, err
		}
		if !strings.HasPrefix(text, "#EXTM3U") {
			return status, nil
		}
		base, err := url.Parse(address)
		if err != nil {
			return 0, err
		}
		for line := range strings.Lines(text) {
			if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
				continue
			}
			last, err := base.Parse(line)
			if err != nil {
				return 0, err
			}
			address = last.String()
		}
	}
	return 0, fmt.Errorf("%s is not a segment", address)
}

// fetch fetches a URL. It follows one redirect.
func fetch(ctx context.Context, address string) (status int, text string, err error) {
	for range 2 {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
		if err != nil {
			return 0, "", err
		}
		resp, err := client.Do(req)
		if err != nil {
			return 0, "", err
		}
		body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<24))
		_ = resp.Body.Close() // the body has been read
		if err != nil {
			return 0, "", err
		}
		status, text = resp.StatusCode, string(body)
		if status != http.StatusFound && status != http.StatusTemporaryRedirect {
			break
		}
		address = resp.Header.Get("Location")
	}
	return status, text, nil
}
