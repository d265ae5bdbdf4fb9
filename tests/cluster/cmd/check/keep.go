package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"time"
)

// keeping is the output of keep and the input to kept.
type keeping struct {
	Key        string     `json:"key"`
	Ended      string     `json:"ended"` // a key that the caller revokes after the backup
	EndedID    string     `json:"endedId"`
	Video      string     `json:"video"`
	PlayedFrom string     `json:"playedFrom"` // the owner's playback URL, which contains a grant
	Links      []keptLink `json:"links"`      // in the order of creation
}

type keptLink struct {
	ShortURL string    `json:"shortUrl"`
	At       time.Time `json:"at"` // when the create was acknowledged
}

// fill creates links and videos that kept does not check.
func fill(ctx context.Context, t *target, links, videos int) error {
	_, key, err := makeAccount(ctx, t, "enterprise")
	if err != nil {
		return err
	}
	started := time.Now()
	if err := (&written{key: key}).bulk(ctx, t, links); err != nil {
		return err
	}
	ok(fmt.Sprintf("%d links were created in %.0f s", links, time.Since(started).Seconds()))
	return manyVideos(ctx, t, videos, 1, clip)
}

// keep creates two keys and a video, followed by ten links a second until ctx is done. Every call
// must succeed because a backup must not disturb callers. At the end, keep prints what it has
// created.
func keep(ctx context.Context, t *target) error {
	account, key, err := makeAccount(ctx, t, "enterprise")
	if err != nil {
		return err
	}
	k := keeping{Key: key}
	if k.EndedID, k.Ended, err = makeKey(ctx, t, account); err != nil {
		return err
	}
	if k.Video, err = upload(ctx, t, key, clip); err != nil {
		return err
	}
	if k.PlayedFrom, err = ready(ctx, t, key, k.Video); err != nil {
		return err
	}
	if err := play(ctx, t, k.PlayedFrom); err != nil {
		return fmt.Errorf("cannot play the video: %w", err)
	}
	fmt.Println("     begun")
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return json.NewEncoder(os.Stdout).Encode(k)
		case <-tick.C:
		}
		var made keptLink
		if _, err := t.want(context.WithoutCancel(ctx), http.StatusCreated, http.MethodPost, t.base+"/api/v1/links", key,
			map[string]any{"url": "https://example.com/kept"}, &made); err != nil {
			return fmt.Errorf("cannot create link %d: %w", len(k.Links)+1, err)
		}
		made.At = time.Now()
		k.Links = append(k.Links, made)
	}
}

// kept compares a restored deployment with the records that keep created. file contains the output
// of keep, and before is when the backup began.
func kept(ctx context.Context, t *target, file, before string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	began, err := time.Parse(time.RFC3339Nano, before)
	if err != nil {
		return fmt.Errorf("-before is not a time: %w", err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("cannot read the records: %w", err)
	}
	var k keeping
	if err := json.Unmarshal(text, &k); err != nil {
		return fmt.Errorf("cannot read the records: %w", err)
	}
	if err := k.links(ctx, t, began); err != nil {
		return err
	}
	for key, status := range map[string]int{k.Key: http.StatusOK, k.Ended: http.StatusUnauthorized} {
		if _, err := t.want(ctx, status, http.MethodGet, t.base+"/api/v1/account", key, nil, nil); err != nil {
			return err
		}
	}
	ok("the key works, and the key that was revoked after the backup does not")
	playback, err := ready(ctx, t, k.Key, k.Video)
	if err != nil {
		return err
	}
	if err := play(ctx, t, playback); err != nil {
		return fmt.Errorf("cannot play the video: %w", err)
	}
	if _, err := t.want(ctx, http.StatusForbidden, http.MethodGet, k.PlayedFrom, "", nil, nil); err != nil {
		return fmt.Errorf("the playback address from before the restore: %w", err)
	}
	ok("the video plays at a new address, and the grant from before the restore is rejected")
	return nil
}

// links checks that every link acknowledged before the backup began still redirects. Some of the
// later links may be back too. But a backup is a snapshot of a single moment, so a link must not be
// back if an older one is lost.
func (k *keeping) links(ctx context.Context, t *target, began time.Time) error {
	old, found, lost := 0, 0, ""
	for _, l := range k.Links {
		a, err := t.call(ctx, http.MethodGet, l.ShortURL, "", nil)
		if err != nil {
			return err
		}
		isOld := l.At.Before(began)
		switch {
		case a.status == http.StatusFound && lost != "":
			return fmt.Errorf("%s is back, but %s, which was created earlier, is lost", l.ShortURL, lost)
		case a.status == http.StatusFound:
			found++
		case a.status != http.StatusNotFound:
			return fmt.Errorf("%s returns %d", l.ShortURL, a.status)
		case isOld:
			return fmt.Errorf("%s is lost: it was acknowledged at %s, and the backup began at %s", l.ShortURL, l.At, began)
		default:
			lost = l.ShortURL
		}
		if isOld {
			old++
		}
	}
	if old == 0 || lost == "" {
		return fmt.Errorf("of %d links, %d were created before the backup and %d are back; want some links from before, and some lost", len(k.Links), old, found)
	}
	ok(fmt.Sprintf("%d of %d links are back: all %d from before the backup, and the first %d created during or after it", found, len(k.Links), old, found-old))
	return nil
}
