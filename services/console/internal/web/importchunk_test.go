package web

import (
	"fmt"
	"strings"
	"testing"

	client "github.com/linkreel/linkreel/libs/clients/go"
)

// An import with long rows is sent in requests that the API accepts.
func TestAnImportSendsNoRequestThatIsTooLarge(t *testing.T) {
	t.Parallel()
	items := make([]client.LinkCreate, 250)
	for i := range items {
		items[i] = client.LinkCreate{URL: fmt.Sprint("https://a.example/", i), OGDescription: strings.Repeat("x", i%3*20_000)}
	}
	sent := 0
	for len(items) > sent {
		n := chunk(items[sent:])
		size := 0
		for _, item := range items[sent : sent+n] {
			size += len(item.URL) + len(item.OGDescription)
		}
		if n < 1 || n > bulkSize || size > 1<<20 {
			t.Fatalf("a request has %d rows and %d bytes, want 1 to %d rows and at most 1 MiB", n, size, bulkSize)
		}
		sent += n
	}
}
