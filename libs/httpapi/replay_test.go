package httpapi_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/google/go-cmp/cmp"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/httpapi"
	"github.com/linkreel/linkreel/libs/httpapi/idempotency"
	"github.com/linkreel/linkreel/libs/record"
	"github.com/linkreel/linkreel/services/localcloud/cloudtest"
)

// A replay repeats the response's headers, except those for a single exchange (request id, rate
// limit, CORS origin), which are new.
func TestAReplayHasEveryHeaderOfTheFirstAnswer(t *testing.T) {
	t.Parallel()
	for name, handler := range map[string]fiber.Handler{
		"record": func(c *fiber.Ctx) error {
			c.Set(fiber.HeaderETag, `"r1"`)
			c.Set(fiber.HeaderLink, `</next>; rel="next"`)
			return httpapi.Created(c, "/api/v1/links/1", map[string]string{"id": "1"})
		},
		"error response": func(*fiber.Ctx) error { return apierr.New(apierr.SlugTaken, "The slug is taken.") },
	} {
		for _, access := range []httpapi.Access{{}, {OneCommit: true}} {
			t.Run(fmt.Sprintf("%s, in one commit: %v", name, access.OneCommit), func(t *testing.T) {
				t.Parallel()
				cloud := cloudtest.Start(t, cloudtest.Options{})
				store := idempotency.NewFirestore(firestoredb.Use(cloud.Client(t), 0), "secret", nil)
				dial := serve(t, httpapi.Options{
					Idempotency: store, CORSOrigins: []string{"https://one.example", "https://two.example"},
					Now: func() time.Time { return time.Unix(1_800_000_000, 0) }, // a fixed clock, so both responses show the same second
				}, func(a *httpapi.API) {
					a.Handle("POST", "/api/v1/links", access, handler)
				})
				first, _ := ask(t, dial, request("POST", "/api/v1/links", "creator", "Idempotency-Key: k\r\nOrigin: https://one.example\r\n", "{}"))
				again, _ := ask(t, dial, request("POST", "/api/v1/links", "readonly", "Idempotency-Key: k\r\nOrigin: https://two.example\r\n", "{}"))
				if again.Header.Get("Idempotent-Replayed") != "true" || again.Header.Get("X-Request-Id") == first.Header.Get("X-Request-Id") ||
					again.Header.Get("Access-Control-Allow-Origin") != "https://two.example" {
					t.Errorf("replay headers = %v, want Idempotent-Replayed, a new request id and the new origin", again.Header)
				}
				if cc := first.Header.Get("Cache-Control"); cc == "" {
					t.Errorf("first response headers = %v, want Cache-Control", first.Header)
				}
				without := func(h http.Header) http.Header {
					h = h.Clone()
					for _, name := range []string{"Idempotent-Replayed", "X-Request-Id", "Date", "Access-Control-Allow-Origin"} {
						h.Del(name)
					}
					return h
				}
				if diff := cmp.Diff(without(first.Header), without(again.Header)); diff != "" {
					t.Errorf("headers (-first +replay):\n%s", diff)
				}
				kept, err := store.Begin(t.Context(), idempotency.Request{Account: "b", Route: "POST /api/v1/links", Key: "k", Secret: "creator", Body: []byte("{}")})
				if err != nil {
					t.Fatal(err)
				}
				for name := range kept.Replay.Header {
					switch http.CanonicalHeaderKey(name) {
					case "X-Request-Id", "Date", "Ratelimit", "X-Ratelimit-Remaining", "Access-Control-Allow-Origin", "Vary":
						t.Errorf("header %s was stored, want it omitted because it belongs to a single exchange", name)
					}
				}
			})
		}
	}
}

// The slug that was taken during the first attempt is now free, so the second attempt reaches its
// commit.
func TestARefusalThatIsRepeatedHasNothingOfWhatTheSecondTryAlmostMade(t *testing.T) {
	t.Parallel()
	cloud := cloudtest.Start(t, cloudtest.Options{})
	db := firestoredb.Use(cloud.Client(t), 0)
	records, tries := record.Open(db, record.Options{}), 0
	dial := serve(t, httpapi.Options{Idempotency: idempotency.NewFirestore(db, "secret", nil)}, func(a *httpapi.API) {
		a.Handle("POST", "/api/v1/links", httpapi.Access{OneCommit: true}, func(c *fiber.Ctx) error {
			if tries++; tries == 1 {
				return apierr.New(apierr.SlugTaken, "The slug is taken.")
			}
			return records.Commit(c.UserContext(), "create", func(tx *record.Tx) error {
				tx.Create(db.Ref("things", "lnk_1"), map[string]any{})
				c.Set(fiber.HeaderETag, `"r1"`)
				return httpapi.Created(c, "/api/v1/links/lnk_1", map[string]string{"id": "lnk_1"})
			})
		})
	})
	for range 2 {
		res, body := ask(t, dial, request("POST", "/api/v1/links", "creator", "Idempotency-Key: k\r\n", "{}"))
		if codeOf(body) != "SLUG_TAKEN" || res.Header.Get("Location") != "" || res.Header.Get("ETag") != "" {
			t.Errorf("got %d %v with headers %v, want SLUG_TAKEN without Location and ETag", res.StatusCode, body, res.Header)
		}
	}
	if tries != 2 {
		t.Errorf("got %d attempts, want 2", tries)
	}
}

func TestARefusalAtTheEndOfARequestsTimeIsKept(t *testing.T) {
	t.Parallel()
	cloud := cloudtest.Start(t, cloudtest.Options{})
	store := idempotency.NewFirestore(firestoredb.Use(cloud.Client(t), 0), "secret", nil)
	dial := serve(t, httpapi.Options{Idempotency: store, Timeout: 100 * time.Millisecond}, func(a *httpapi.API) {
		a.Handle("POST", "/api/v1/links", httpapi.Access{OneCommit: true}, func(c *fiber.Ctx) error {
			<-c.UserContext().Done()
			return apierr.New(apierr.SlugTaken, "The slug is taken.")
		})
	})
	for _, replayed := range []string{"", "true"} {
		res, body := ask(t, dial, request("POST", "/api/v1/links", "creator", "Idempotency-Key: k\r\n", "{}"))
		if codeOf(body) != "SLUG_TAKEN" || res.Header.Get("Idempotent-Replayed") != replayed {
			t.Errorf("got %d %v with Idempotent-Replayed %q, want SLUG_TAKEN with %q", res.StatusCode, body, res.Header.Get("Idempotent-Replayed"), replayed)
		}
	}
}
