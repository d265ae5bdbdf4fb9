package preflight

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/objectstore"
	"github.com/linkreel/linkreel/services/localcloud/cloudtest"
	"github.com/linkreel/linkreel/services/localcloud/redistest"
)

// project fakes Google's APIs for one Google Cloud project. Its responses are built from the
// chart's files. Each test case changes one response.
type project struct {
	indexes, fields []any
	bucket          map[string]any
	notifications   []any
	skew            time.Duration
	refuse          string // requests whose path contains this text get status 403
}

const files = "../../../../charts/linkreel/files"

func (g *project) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Date", time.Now().Add(g.skew).UTC().Format(http.TimeFormat))
	w.Header().Set("Content-Type", "application/json")
	if g.refuse != "" && strings.Contains(r.URL.Path, g.refuse) {
		w.WriteHeader(http.StatusForbidden)
		_, _ = fmt.Fprint(w, `{"error":{"message":"Missing permission"}}`)
		return
	}
	var body any
	switch path := r.URL.Path; {
	case strings.HasSuffix(path, "/indexes"):
		// Send two pages, as Google does for a large project.
		half := len(g.indexes) / 2
		if body = map[string]any{"indexes": g.indexes[:half], "nextPageToken": "2"}; r.URL.Query().Get("pageToken") == "2" {
			body = map[string]any{"indexes": g.indexes[half:]}
		}
	case strings.HasSuffix(path, "/fields"):
		body = map[string]any{"fields": g.fields}
	case strings.HasSuffix(path, "/notificationConfigs"):
		body = map[string]any{"items": g.notifications}
	case strings.HasPrefix(path, "/storage/v1/b/"):
		body = g.bucket
	default:
		body = map[string]any{}
	}
	_ = json.NewEncoder(w).Encode(body)
}

// rightProject returns a project that has everything the chart requires.
func rightProject(t *testing.T) *project {
	t.Helper()
	var w wanted
	if !(&preflight{out: t.Output()}).want(filepath.Join(files, "firestore.indexes.json"), &w) {
		t.FailNow()
	}
	g := &project{notifications: []any{map[string]any{"event_types": []string{"OBJECT_FINALIZE"}}}}
	for i, index := range w.Indexes {
		var fields []any
		for _, f := range index.Fields {
			one := map[string]any{"fieldPath": f.FieldPath}
			if f.Order != "" {
				one["order"] = f.Order
			} else {
				one["arrayConfig"] = f.ArrayConfig
			}
			fields = append(fields, one)
		}
		fields = append(fields, map[string]any{"fieldPath": "__name__", "order": "ASCENDING"})
		g.indexes = append(g.indexes, map[string]any{
			"name":       fmt.Sprintf("projects/p/databases/(default)/collectionGroups/%s/indexes/i%d", index.CollectionGroup, i),
			"queryScope": index.QueryScope, "state": "READY", "fields": fields,
		})
	}
	for _, f := range w.FieldOverrides {
		if f.TTL {
			g.fields = append(g.fields, map[string]any{
				"name":      fmt.Sprintf("projects/p/databases/(default)/collectionGroups/%s/fields/%s", f.CollectionGroup, f.FieldPath),
				"ttlConfig": map[string]any{"state": "ACTIVE"},
			})
		}
	}
	g.bucket = map[string]any{
		"cors":             []any{map[string]any{"origin": []string{"*"}, "method": []string{"GET", "HEAD", "PUT", "POST"}, "responseHeader": []string{"Content-Type", "Content-Range", "Content-Length", "Range", "ETag", "Location", "x-goog-resumable"}}},
		"iamConfiguration": map[string]any{"publicAccessPrevention": "enforced"},
		"softDeletePolicy": map[string]any{"retentionDurationSeconds": "604800"},
	}
	return g
}

func TestPreflightNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	good := redistest.Start(t)
	evicting := redistest.Start(t)
	if err := redis.NewClient(&redis.Options{Addr: evicting}).ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err(); err != nil {
		t.Fatal(err)
	}
	locked := redistest.Start(t)
	if err := redis.NewClient(&redis.Options{Addr: locked}).ConfigSet(t.Context(), "requirepass", "a/b#c").Err(); err != nil {
		t.Fatal(err)
	}
	storage, database, old := startCloud(t)
	theirs := storage
	theirs.Bucket = "theirs"
	claim(t, theirs, "projects/p/databases/(default)#db_theirs")
	for name, tt := range map[string]struct {
		spoil func(g *project, p *preflight)
		want  string // part of the output; "" means that every check passes
	}{
		"complete setup":                   {func(*project, *preflight) {}, ""},
		"missing index":                    {func(g *project, _ *preflight) { g.indexes = g.indexes[1:] }, "FAILED  indexes: the index "},
		"index that is still building":     {func(g *project, _ *preflight) { g.indexes[0].(map[string]any)["state"] = "CREATING" }, "is CREATING"},
		"no permission to list indexes":    {func(g *project, _ *preflight) { g.refuse = "/indexes" }, "roles/datastore.viewer"},
		"missing TTL policy":               {func(g *project, _ *preflight) { g.fields = g.fields[1:] }, "FAILED  TTL policies: the TTL policy for "},
		"no permission to read the bucket": {func(g *project, _ *preflight) { g.refuse = "/storage/v1/b/" }, "cloud.google.bucket"},
		"bucket without CORS":              {func(g *project, _ *preflight) { delete(g.bucket, "cors") }, "--cors-file"},
		"CORS without PUT": {func(g *project, _ *preflight) {
			g.bucket["cors"].([]any)[0].(map[string]any)["method"] = []string{"GET", "HEAD"}
		}, "--cors-file"},
		"bucket without public access prevention": {func(g *project, _ *preflight) { delete(g.bucket, "iamConfiguration") }, "public access prevention"},
		"bucket owned by another database":        {func(_ *project, p *preflight) { p.Storage.Bucket = "theirs" }, "FAILED  owner: the bucket theirs belongs to the database projects/p/databases/(default)#db_theirs"},
		"Redis not yet installed by the chart":    {func(_ *project, p *preflight) { p.Redis.URL, p.ownRedis = "127.0.0.1:1", true }, ""},
		"database written by an older version":    {func(_ *project, p *preflight) { p.Firestore = old }, "FAILED  owner: the database was written by another version"},
		"no notification configured":              {func(g *project, _ *preflight) { g.notifications = nil }, "sends no notifications"},
		"notification for a different event": {func(g *project, _ *preflight) {
			g.notifications = []any{map[string]any{"event_types": []string{"OBJECT_DELETE"}}}
		}, "sends no notifications"},
		"clock skew":                          {func(g *project, _ *preflight) { g.skew = -time.Minute }, "FAILED  clock"},
		"Redis that evicts keys":              {func(_ *project, p *preflight) { p.Redis.URL = evicting }, "allkeys-lru"},
		"Redis without the required password": {func(_ *project, p *preflight) { p.Redis.URL = locked }, "FAILED  Redis: cannot reach Redis"},
		"Redis password in its own variable":  {func(_ *project, p *preflight) { p.Redis.URL, p.Redis.Password = locked, "a/b#c" }, ""},
		"unreachable Redis":                   {func(_ *project, p *preflight) { p.Redis.URL = "127.0.0.1:1" }, "FAILED  Redis: cannot reach Redis"},
		"missing signing key": {func(_ *project, p *preflight) {
			p.Storage.Key, p.Storage.KeyFile = nil, filepath.Join(t.TempDir(), "none.json")
		}, "FAILED  signing"},
		"upload to a missing bucket": {func(_ *project, p *preflight) { p.Storage.Bucket = "another" }, "FAILED  signing: a signed upload is refused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := rightProject(t)
			server := httptest.NewServer(g)
			t.Cleanup(server.Close)
			p, err := parse([]string{"-notification", "-indexes=" + filepath.Join(files, "firestore.indexes.json"), "-cors=" + filepath.Join(files, "cors.json")})
			if err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			p.out, p.client, p.firestoreAPI, p.storageAPI = &out, server.Client(), server.URL, server.URL
			p.Firestore, p.Storage, p.Redis.URL = database, storage, good
			tt.spoil(g, p)
			err = p.run(t.Context())
			if (err == nil) != (tt.want == "") || !strings.Contains(out.String(), tt.want) {
				t.Errorf("run returned %v, want output that contains %q, and an error only if that text is not empty; got:\n%s", err, tt.want, out.String())
			}
			if n := strings.Count(out.String(), "FAILED"); tt.want != "" && n == 0 || strings.Contains(out.String(), "X-Goog-Signature") {
				t.Errorf("the output has %d FAILED lines, want at least one if a check fails, and no signed URL; got:\n%s", n, out.String())
			}
		})
	}
}

// startCloud starts object storage that checks signatures, an empty database, and a database
// written by an older version.
func startCloud(t *testing.T) (bucket objectstore.Config, database firestoredb.Config, old firestoredb.Config) {
	t.Helper()
	before := cloudtest.Start(t, cloudtest.Options{})
	if _, err := before.Client(t).Doc("links/1").Set(t.Context(), map[string]any{"url": "https://example.com/"}); err != nil {
		t.Fatal(err)
	}
	local := cloudtest.Start(t, cloudtest.Options{Buckets: []string{"media", "theirs"}})
	client, err := local.Firestore.Client(t.Context(), "p")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if found, err := client.Collections(context.WithoutCancel(t.Context())).GetAll(); err != nil || len(found) > 0 {
			t.Errorf("the empty database has %d collections after all runs (error %v), want none", len(found), err)
		}
	})
	return objectstore.Config{Bucket: "media", PublicURL: local.PublicURL, Endpoint: local.APIURL, Key: local.Key, Timeout: 5 * time.Second},
		firestoredb.Config{Project: "p", Database: "(default)", Endpoint: local.Endpoint},
		firestoredb.Config{Project: cloudtest.Project, Endpoint: before.Endpoint}
}

func claim(t *testing.T, bucket objectstore.Config, database string) {
	t.Helper()
	store, err := objectstore.Open(t.Context(), bucket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	if err := store.Claim(t.Context(), database); err != nil {
		t.Fatal(err)
	}
}
