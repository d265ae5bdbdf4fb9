// Command tour demonstrates the client: links, bulk requests, a video, a webhook and the event
// feed. It never creates a record twice and never misses an event, even on an unreliable network.
//
//	LINKREEL_BASE_URL=http://localhost:8080 LINKREEL_API_KEY=lr_live_… go run ./examples/tour clip.mp4
//
// The webhook is received on this machine, which `make run` allows.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"time"

	client "github.com/linkreel/linkreel/libs/clients/go"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("usage: tour VIDEO-FILE")
	}
	c, err := client.New(client.Config{BaseURL: os.Getenv("LINKREEL_BASE_URL"), Key: os.Getenv("LINKREEL_API_KEY"), Attempts: 20})
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	if err := tour(ctx, c, os.Args[1], os.Stdout); err != nil {
		log.Fatalf("%T: %v", err, err) //nolint:gocritic // the process ends, and the context with it
	}
}

func tour(ctx context.Context, c *client.Client, film string, out io.Writer) error {
	now, err := c.ListEvents(ctx, client.ListEventsQuery{Wait: new(0)}) // its cursor is the position before all later changes
	if err != nil {
		return err
	}
	// Create, search, edit, delete.
	link, err := c.CreateLink(ctx, client.LinkCreate{URL: "https://example.com/spring", Title: "Spring", Tags: []string{"tour"}})
	if err != nil {
		return err
	}
	for found, err := range c.Links(ctx, client.ListLinksQuery{Q: "spring", Tag: []string{"tour"}}) {
		if err != nil {
			return err
		}
		fmt.Fprintln(out, "found", found.ShortURL)
	}
	if _, err := c.UpdateLink(ctx, link.ID, client.LinkUpdate{Title: client.Set("Summer"), ExpiresAt: client.Set(client.At(time.Now().Add(time.Hour)))}); err != nil {
		return err
	}
	if err := c.DeleteLink(ctx, link.ID); err != nil {
		return err
	}
	_, err = c.GetLink(ctx, link.ID)
	fmt.Fprintln(out, "deleted:", client.IsNotFound(err))

	// Create a thousand links, ten of which are invalid.
	items := make([]client.LinkCreate, 1000)
	for i := range items {
		items[i] = client.LinkCreate{URL: fmt.Sprint("https://example.com/", i), Tags: []string{"bulk"}}
		if i%100 == 99 {
			items[i].URL = "no address"
		}
	}
	results, err := c.CreateLinks(ctx, items)
	var part *client.BulkError
	if errors.As(err, &part) { // results holds the results so far; repeating the call resumes
		results, err = c.CreateLinks(ctx, items, client.IdempotencyKey(part.Key))
	}
	if err != nil {
		return err
	}
	made := map[string]int{link.ID: 0} // the number of events in the feed, by link
	var ids []string
	for _, r := range results {
		if r.Data != nil {
			ids = append(ids, r.Data.ID)
			made[r.Data.ID] = 0
		}
	}
	fmt.Fprintf(out, "bulk: %d created, %d rejected\n", len(ids), len(results)-len(ids))
	if err := video(ctx, c, film, out); err != nil {
		return err
	}
	if err := feed(ctx, c, now.NextCursor, made, out); err != nil {
		return err
	}
	gone, err := c.DeleteLinks(ctx, ids)
	fmt.Fprintln(out, "cleared:", len(gone))
	return err
}

// video uploads a video, waits until it plays, and receives the webhook message about it.
func video(ctx context.Context, c *client.Client, film string, out io.Writer) error {
	secret, messages := make(chan string, 1), make(chan string, 10)
	hooks := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ours := <-secret
		secret <- ours
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err == nil {
			err = client.VerifyWebhook(ours, r.Header, body)
		}
		var message struct{ Type string }
		if err != nil || json.Unmarshal(body, &message) != nil {
			http.Error(w, fmt.Sprint(err), http.StatusUnauthorized)
			return
		}
		messages <- message.Type
	}))
	defer hooks.Close()
	hook, err := c.CreateWebhook(ctx, client.WebhookCreate{URL: hooks.URL + "/hooks", Events: []string{"video.ready"}})
	if err != nil {
		return err
	}
	secret <- hook.Secret
	made, err := c.UploadVideo(ctx, film, client.VideoCreate{Title: "Tour"}, func(sent, size int64) { fmt.Fprintf(out, "sent %d of %d\n", sent, size) })
	if err != nil {
		return err
	}
	v, err := c.WaitVideo(ctx, made.VideoID, nil)
	if err != nil {
		return err
	}
	select {
	case message := <-messages:
		fmt.Fprintln(out, "plays at", v.ShareURL, "webhook:", message)
	case <-time.After(time.Minute):
		return errors.New("no webhook message arrived")
	}
	if err := c.DeleteWebhook(ctx, hook.ID); err != nil {
		return err
	}
	return c.DeleteVideo(ctx, v.ID)
}

// feed reads the feed like a program that stops after 500 events and later resumes at the same
// position.
func feed(ctx context.Context, c *client.Client, after *string, made map[string]int, out io.Writer) error {
	seen, enough := 0, errors.New("enough")
	for _, stop := range []int{500, len(made)} {
		var err error
		after, err = c.FollowEvents(ctx, client.ListEventsQuery{Type: []string{"link.created"}, After: after}, func(e client.Event) error {
			if seen == stop {
				return enough // this event is not processed, so the next call reads it again
			}
			made[e.Object]++
			if seen++; seen == len(made) {
				return enough
			}
			return nil
		})
		if !errors.Is(err, enough) {
			return err
		}
	}
	once := 0
	for _, n := range made {
		if n == 1 {
			once++
		}
	}
	fmt.Fprintf(out, "feed: each link once: %t\n", once == len(made))
	return nil
}
