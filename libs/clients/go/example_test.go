package client_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	client "github.com/linkreel/linkreel/libs/clients/go"
)

// deployment is a fake Linkreel deployment, so the examples run anywhere.
func deployment(answers map[string]string) *httptest.Server {
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, ok := answers[r.Method+" "+r.URL.Path]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			answer = `{"error":{"code":"LINK_NOT_FOUND","message":"This link does not exist.","requestId":"r1"}}`
		}
		_, _ = fmt.Fprint(w, answer)
	}))
}

func Example() {
	srv := deployment(map[string]string{
		"POST /api/v1/links": `{"id":"lnk_1","slug":"spring","shortUrl":"https://go.example/spring","destinationUrl":"https://example.com/sale"}`,
	})
	defer srv.Close()

	c, err := client.New(client.Config{BaseURL: srv.URL, Key: "lr_live_example"})
	if err != nil {
		log.Fatal(err)
	}
	link, err := c.CreateLink(context.Background(), client.LinkCreate{
		URL: "https://example.com/sale", Slug: "spring", ExpiresAt: client.At(time.Now().Add(7 * 24 * time.Hour)),
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(link.ShortURL)
	// Output: https://go.example/spring
}

// The loop fetches each page when it needs it.
func ExampleClient_Links() {
	srv := deployment(map[string]string{
		"GET /api/v1/links": `{"data":[{"_id":"lnk_2","id":"lnk_2","slug":"b","clicks":7},{"_id":"lnk_1","id":"lnk_1","slug":"a","clicks":3}],"hasMore":false,"nextCursor":null}`,
	})
	defer srv.Close()
	c, err := client.New(client.Config{BaseURL: srv.URL, Key: "lr_live_example"})
	if err != nil {
		log.Fatal(err)
	}
	for link, err := range c.Links(context.Background(), client.ListLinksQuery{}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(link.Slug, link.Clicks)
	}
	// Output:
	// b 7
	// a 3
}

// Branch on the code of an error, never on its text.
func ExampleHasCode() {
	srv := deployment(nil)
	defer srv.Close()
	c, err := client.New(client.Config{BaseURL: srv.URL, Key: "lr_live_example"})
	if err != nil {
		log.Fatal(err)
	}
	_, err = c.GetLink(context.Background(), "lnk_gone")
	fmt.Println(client.HasCode(err, "LINK_NOT_FOUND"), client.IsNotFound(err))
	// Output: true true
}

// An update changes only the fields that you set: Set replaces a value, and Clear empties
// it.
func ExampleClient_UpdateLink() {
	srv := deployment(map[string]string{"PATCH /api/v1/links/lnk_1": `{"success":true,"slug":"spring"}`})
	defer srv.Close()
	c, err := client.New(client.Config{BaseURL: srv.URL, Key: "lr_live_example"})
	if err != nil {
		log.Fatal(err)
	}
	changed, err := c.UpdateLink(context.Background(), "lnk_1", client.LinkUpdate{
		URL: client.Set("https://example.com/summer"), ExpiresAt: client.Clear[client.Time](),
	})
	fmt.Println(changed.Slug, err)
	// Output: spring <nil>
}
