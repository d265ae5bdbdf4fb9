package storage_test

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"time"

	gcs "cloud.google.com/go/storage"

	"github.com/linkreel/linkreel/services/localcloud/storage"
)

// A bucket accepts an upload to a URL that Google's own client has signed.
func Example() {
	dir, err := os.MkdirTemp("", "storage-")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	server, err := storage.Open(storage.Options{Dir: dir, Buckets: []string{"media"}, MaxUpload: 1 << 20})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = server.Close() }()
	public := httptest.NewServer(server.PublicHandler())
	defer public.Close()

	var key struct {
		Email string `json:"client_email"`
		PEM   string `json:"private_key"`
	}
	if err := json.Unmarshal(server.ServiceAccountKey(), &key); err != nil {
		log.Fatal(err)
	}
	address, err := gcs.SignedURL("media", "hello.txt", &gcs.SignedURLOptions{
		GoogleAccessID: key.Email, PrivateKey: []byte(key.PEM), Method: http.MethodPut, Expires: time.Now().Add(time.Hour),
		Scheme: gcs.SigningSchemeV4, Insecure: true, Hostname: strings.TrimPrefix(public.URL, "http://"),
	})
	if err != nil {
		log.Fatal(err)
	}
	for _, u := range []string{address, strings.Replace(address, "hello.txt", "other.txt", 1)} {
		req, err := http.NewRequest(http.MethodPut, u, strings.NewReader("hello"))
		if err != nil {
			log.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			log.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		fmt.Println(resp.Status)
	}
	// Output:
	// 200 OK
	// 403 Forbidden
}
