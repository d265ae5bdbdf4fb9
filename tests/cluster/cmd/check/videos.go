package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// manyVideos uploads count videos and waits until every one is ready. Whatever
// happens to pods meanwhile may cost time and no video.
func manyVideos(ctx context.Context, t *target, count int) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	_, key, err := makeAccount(ctx, t, "enterprise")
	if err != nil {
		return err
	}
	started := time.Now()
	var waiting []string
	for range count {
		id, err := upload(ctx, t, key)
		if err != nil {
			return err
		}
		waiting = append(waiting, id)
	}
	fmt.Printf("     %d videos uploaded\n", count)
	for len(waiting) > 0 {
		var video struct{ Status string }
		_, err := t.want(ctx, http.StatusOK, http.MethodGet, t.base+"/api/v1/videos/"+waiting[0], key, nil, &video)
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("%d of %d videos are not ready: %w", len(waiting), count, ctx.Err())
		case err == nil && video.Status == "ready":
			waiting = waiting[1:]
			continue
		case err == nil && video.Status == "failed":
			return fmt.Errorf("video %s failed", waiting[0])
		}
		select { // not there yet, or an answer that a restart cost
		case <-ctx.Done():
		case <-time.After(500 * time.Millisecond):
		}
	}
	ok(fmt.Sprintf("%d of %d videos are ready after %.0f s", count, count, time.Since(started).Seconds()))
	return nil
}

// reach fails when any of the addresses does not accept a connection.
func reach(ctx context.Context, addresses []string) error {
	var errs []error
	for _, address := range addresses {
		conn, err := (&net.Dialer{Timeout: 3 * time.Second}).DialContext(ctx, "tcp", address)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		ok("reached " + address)
		errs = append(errs, conn.Close())
	}
	return errors.Join(errs...)
}
