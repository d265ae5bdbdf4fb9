package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

// manyVideos uploads count videos and waits until every video is ready in all its renditions.
// Failing pods may cause delays, but videos must not be lost. manyVideos prints each change in
// progress so that a script can kill pods during a job. A video can be played long before its job
// ends.
func manyVideos(ctx context.Context, t *target, count, renditions int, film []byte) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	_, key, err := makeAccount(ctx, t, "enterprise")
	if err != nil {
		return err
	}
	started := time.Now()
	var waiting []string
	for range count {
		id, err := upload(ctx, t, key, film)
		if err != nil {
			return err
		}
		waiting = append(waiting, id)
	}
	fmt.Printf("     %d uploaded\n", count)
	last := ""
	for {
		working := 0
		var left []string
		for _, id := range waiting {
			var video struct {
				Status     string
				Progress   int
				Renditions []json.RawMessage
			}
			_, err := t.want(ctx, http.StatusOK, http.MethodGet, t.base+"/api/v1/videos/"+id, key, nil, &video)
			switch {
			case ctx.Err() != nil:
				return fmt.Errorf("%d of %d videos are not ready: %w", len(waiting), count, ctx.Err())
			case err == nil && video.Status == "failed":
				return fmt.Errorf("the video %s failed", id)
			case err == nil && video.Status == "ready" && len(video.Renditions) >= renditions:
				continue
			case err == nil && (video.Status == "ready" || video.Progress > 0):
				working++
			}
			left = append(left, id) // not ready, or a restart interrupted the request
		}
		if waiting = left; len(waiting) == 0 {
			break
		}
		if now := fmt.Sprintf("     %d begun, %d ready", working, count-len(waiting)); now != last {
			fmt.Println(now)
			last = now
		}
		select {
		case <-ctx.Done():
		case <-time.After(300 * time.Millisecond):
		}
	}
	ok(fmt.Sprintf("%d of %d videos are ready after %.0f s", count, count, time.Since(started).Seconds()))
	return nil
}

// reach fails if one of the addresses does not accept a connection.
func reach(ctx context.Context, addresses []string) error {
	errs := make([]error, len(addresses))
	var wg sync.WaitGroup
	for i, address := range addresses {
		wg.Go(func() {
			conn, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "tcp", address)
			if err != nil {
				errs[i] = err
				return
			}
			ok("reached " + address)
			errs[i] = conn.Close()
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
