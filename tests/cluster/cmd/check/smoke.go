package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// clip is a two-second video of a test pattern with a tone.
//
//go:embed clip.mp4
var clip []byte

// smoke stops with an error at the first failed check.
func smoke(ctx context.Context, t *target, write bool) error {
	ctx, cancel := context.WithTimeout(ctx, 4*time.Minute)
	defer cancel()
	if err := look(ctx, t); err != nil {
		return err
	}
	if !write {
		return nil
	}
	return tryOut(ctx, t)
}

// look runs the checks that do not need a key and do not change any records.
func look(ctx context.Context, t *target) error {
	for _, c := range []struct {
		what, address string
		status        int
		holds         string
	}{
		{"auth serves the API document", t.base + "/openapi.json", http.StatusOK, `"openapi"`},
		{"auth requires a key", t.base + "/api/v1/account", http.StatusUnauthorized, "MISSING_API_KEY"},
		{"auth responds to unknown addresses", t.base + "/api/nothing-here", http.StatusNotFound, "NOT_FOUND"},
		{"links requires a key", t.base + "/api/v1/links", http.StatusUnauthorized, "MISSING_API_KEY"},
		{"links responds to an unknown slug", t.short + "/no-such-slug-here", http.StatusNotFound, ""},
		{"events requires a key", t.base + "/api/v1/events", http.StatusUnauthorized, "MISSING_API_KEY"},
		{"events requires a key for webhooks", t.base + "/api/v1/webhooks", http.StatusUnauthorized, "MISSING_API_KEY"},
		{"console has a sign-in page", t.base + "/app/sign-in", http.StatusOK, "<form"},
		{"videos requires a key", t.base + "/api/v1/videos", http.StatusUnauthorized, "MISSING_API_KEY"},
		{"videos responds to an unknown slug", t.base + "/v/no-such-slug-here", http.StatusNotFound, ""},
		{"the operator API is not on the public address", t.base + "/admin/v1/accounts/acc_none", http.StatusNotFound, ""},
		{"key verification is not on the public address", t.base + "/internal/v1/keys/verify", http.StatusNotFound, ""},
	} {
		a, err := t.want(ctx, c.status, http.MethodGet, c.address, "", nil, nil)
		if err != nil {
			return fmt.Errorf("%s: %w", c.what, err)
		}
		if !bytes.Contains(a.body, []byte(c.holds)) {
			return fmt.Errorf("%s: the response lacks %s: %.300s", c.what, c.holds, a.body)
		}
		ok(c.what)
	}
	return nil
}

// tryOut creates an account, uses it, and suspends it.
func tryOut(ctx context.Context, t *target) (err error) {
	account, key, err := makeAccount(ctx, t, "enterprise")
	if err != nil {
		return err
	}
	ok("the operator creates an account and a key")
	defer func() {
		_, suspendErr := t.want(ctx, http.StatusOK, http.MethodPatch, t.operator+"/admin/v1/accounts/"+account, t.token, map[string]any{"suspended": true}, nil)
		err = errors.Join(err, suspendErr)
	}()
	if err := tryLink(ctx, t, key); err != nil {
		return err
	}
	return tryVideo(ctx, t, key)
}

// makeAccount creates an account and a key with scopes, or with the default ones if scopes is
// empty.
func makeAccount(ctx context.Context, t *target, plan string, scopes ...string) (account, key string, err error) {
	if t.token == "" {
		return "", "", errors.New("LINKREEL_ADMIN_TOKEN is not set")
	}
	var made struct{ ID string }
	if _, err := t.want(ctx, http.StatusCreated, http.MethodPost, t.operator+"/admin/v1/accounts", t.token,
		map[string]any{"name": "check " + plan, "plan": plan}, &made); err != nil {
		return "", "", fmt.Errorf("cannot create an account: %w", err)
	}
	_, key, err = makeKey(ctx, t, made.ID, scopes...)
	return made.ID, key, err
}

// makeKey creates a key with scopes, or with the default ones if scopes is empty.
func makeKey(ctx context.Context, t *target, account string, scopes ...string) (id, key string, err error) {
	body := map[string]any{"name": "helm test"}
	if len(scopes) > 0 {
		body["scopes"] = scopes
	}
	var made struct{ ID, Key string }
	if _, err := t.want(ctx, http.StatusCreated, http.MethodPost, t.operator+"/admin/v1/accounts/"+account+"/keys", t.token, body, &made); err != nil {
		return "", "", fmt.Errorf("cannot create a key: %w", err)
	}
	return made.ID, made.Key, nil
}

func tryLink(ctx context.Context, t *target, key string) error {
	const destination = "https://example.com/helm-test"
	var made struct{ ID, Slug, ShortURL string }
	if _, err := t.want(ctx, http.StatusCreated, http.MethodPost, t.base+"/api/v1/links", key, map[string]any{"url": destination}, &made); err != nil {
		return fmt.Errorf("cannot create a link: %w", err)
	}
	if want := t.short + "/" + made.Slug; made.ShortURL != want {
		return fmt.Errorf("shortUrl is %s, want %s; check that hosts.short and hosts.port are the public address", made.ShortURL, want)
	}
	a, err := t.want(ctx, http.StatusFound, http.MethodGet, made.ShortURL, "", nil, nil)
	if err != nil {
		return fmt.Errorf("cannot follow the link: %w", err)
	}
	if got := a.header.Get("Location"); got != destination {
		return fmt.Errorf("the link redirects to %q, want %q", got, destination)
	}
	ok("a link is created and followed")
	if err := until(ctx, 30*time.Second, "the click is counted", func() (bool, error) {
		var link struct{ Clicks int }
		_, err := t.want(ctx, http.StatusOK, http.MethodGet, t.base+"/api/v1/links/"+made.ID, key, nil, &link)
		return link.Clicks == 1, err
	}); err != nil {
		return err
	}
	if _, err := t.want(ctx, http.StatusNoContent, http.MethodDelete, t.base+"/api/v1/links/"+made.ID, key, nil, nil); err != nil {
		return fmt.Errorf("cannot delete the link: %w", err)
	}
	if _, err := t.want(ctx, http.StatusNotFound, http.MethodGet, made.ShortURL, "", nil, nil); err != nil {
		return fmt.Errorf("the deleted link still responds: %w", err)
	}
	ok("a deleted link returns 404 immediately")
	return nil
}

func tryVideo(ctx context.Context, t *target, key string) error {
	started := time.Now()
	id, err := upload(ctx, t, key, clip)
	if err != nil {
		return err
	}
	ok("a video is uploaded")
	playback, err := ready(ctx, t, key, id)
	if err != nil {
		return err
	}
	fmt.Printf("     upload to ready: %.1f s\n", time.Since(started).Seconds())
	if err := play(ctx, t, playback); err != nil {
		return fmt.Errorf("cannot play the video: %w", err)
	}
	ok("the video plays: master playlist, media playlist, bytes from storage")
	if _, err := t.want(ctx, http.StatusNoContent, http.MethodDelete, t.base+"/api/v1/videos/"+id, key, nil, nil); err != nil {
		return fmt.Errorf("cannot delete the video: %w", err)
	}
	ok("a video is deleted")
	return nil
}

// ready waits until a video is ready, and returns the URL where its owner can play it.
func ready(ctx context.Context, t *target, key, id string) (playback string, err error) {
	var video struct {
		Status, PlaybackURL string
		Error               json.RawMessage
	}
	err = until(ctx, 3*time.Minute, "the video is ready", func() (bool, error) {
		_, err := t.want(ctx, http.StatusOK, http.MethodGet, t.base+"/api/v1/videos/"+id, key, nil, &video)
		if err == nil && video.Status == "failed" {
			err = fmt.Errorf("the video failed: %s", video.Error)
		}
		return video.Status == "ready", err
	})
	return video.PlaybackURL, err
}

func upload(ctx context.Context, t *target, key string, film []byte) (id string, err error) {
	var made struct{ VideoID, UploadURL string }
	if _, err := t.want(ctx, http.StatusCreated, http.MethodPost, t.base+"/api/v1/videos", key, map[string]any{"title": "helm test"}, &made); err != nil {
		return "", fmt.Errorf("cannot create a video: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, made.UploadURL, bytes.NewReader(film))
	if err != nil {
		return "", fmt.Errorf("the upload address is invalid: %w", err)
	}
	req.Header.Set("Content-Type", "video/mp4")
	a, err := t.send(req)
	if err != nil {
		return "", fmt.Errorf("cannot upload the video: %w", err)
	}
	if a.status != http.StatusOK {
		return "", fmt.Errorf("the upload to %s returned %d, want 200: %.300s", withoutQuery(made.UploadURL), a.status, a.body)
	}
	return made.VideoID, nil
}

// play follows the first rendition of a master playlist to its media file.
func play(ctx context.Context, t *target, master string) error {
	address := master
	for range 2 { // from the master to the media playlist, and from there to storage
		a, err := t.want(ctx, http.StatusOK, http.MethodGet, address, "", nil, nil)
		if err != nil {
			return err
		}
		next := firstAddress(string(a.body))
		if next == "" {
			return fmt.Errorf("the playlist %s has no address: %.300s", withoutQuery(address), a.body)
		}
		if address, err = resolve(address, next); err != nil {
			return err
		}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Range", "bytes=0-99")
	a, err := t.send(req)
	if err != nil {
		return err
	}
	if a.status != http.StatusPartialContent || len(a.body) != 100 {
		return fmt.Errorf("a range of %s returned %d with %d bytes, want 206 with 100", withoutQuery(address), a.status, len(a.body))
	}
	return nil
}

// firstAddress returns the first line of a playlist that is not a comment.
func firstAddress(playlist string) string {
	for line := range strings.Lines(playlist) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			return line
		}
	}
	return ""
}

// until calls done every half second until done returns true. It stops immediately if done returns
// an error.
func until(ctx context.Context, limit time.Duration, what string, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		yes, err := done()
		if err != nil {
			return err
		}
		if yes {
			ok(what)
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("condition not met within %s: %s", limit, what)
		case <-tick.C:
		}
	}
}

func resolve(base, ref string) (string, error) {
	b, err := url.Parse(base)
	if err != nil {
		return "", err
	}
	u, err := b.Parse(ref)
	if err != nil {
		return "", err
	}
	return u.String(), nil
}

func ok(what string) { fmt.Println("ok  ", what) }
