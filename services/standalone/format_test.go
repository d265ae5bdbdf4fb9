package standalone_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/linkreel/linkreel/libs/boot"
	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/services/auth"
	"github.com/linkreel/linkreel/services/events"
	"github.com/linkreel/linkreel/services/links"
	"github.com/linkreel/linkreel/services/localcloud/cloudtest"
	"github.com/linkreel/linkreel/services/localcloud/redistest"
	worker "github.com/linkreel/linkreel/services/transcoding-worker"
	"github.com/linkreel/linkreel/services/videos"
)

// A build that does not recognize a database's format must stop with a clear error. It must not
// change or delete anything.
func TestEveryServiceRefusesADatabaseOfAnotherFormat(t *testing.T) {
	t.Parallel()
	for name, service := range map[string]func(*testing.T, map[string]string) *boot.Service{
		"auth": from(auth.New), "events": from(events.New), "links": from(links.New), "videos": from(videos.New), "worker": from(worker.New),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cloud := cloudtest.Start(t, cloudtest.Options{Buckets: []string{"media"}})
			if _, err := cloud.Client(t).Doc("accounts/acc_1").Set(t.Context(), map[string]any{"name": "earlier account"}); err != nil {
				t.Fatal(err)
			}
			before := cloud.Firestore.Stats().Writes
			svc := service(t, map[string]string{
				"LINKREEL_REDIS_URL": redistest.Start(t), "LINKREEL_FIRESTORE_PROJECT": cloudtest.Project, "LINKREEL_FIRESTORE_ENDPOINT": cloud.Endpoint,
				"LINKREEL_STORAGE_BUCKET": "media", "LINKREEL_STORAGE_ENDPOINT": cloud.APIURL, "LINKREEL_STORAGE_PUBLIC_URL": cloud.PublicURL,
				"LINKREEL_INTERNAL_TOKEN": "x", "LINKREEL_TOKEN_SECRET": strings.Repeat("00", 32), "LINKREEL_WEBHOOK_SECRET_KEY": strings.Repeat("k", 32),
				"LINKREEL_JAIL": "reduced", "LINKREEL_SPOOL_DIR": t.TempDir(), "LINKREEL_SCRATCH_DIR": t.TempDir(),
			})
			group, ctx := errgroup.WithContext(context.WithoutCancel(t.Context()))
			boot.StartLoops(ctx, group, svc)
			if err := group.Wait(); !errors.Is(err, firestoredb.ErrFormat) || !strings.Contains(err.Error(), "docs/operations.md") {
				t.Errorf("the service stopped with %v, want %v and a reference to docs/operations.md", err, firestoredb.ErrFormat)
			}
			if n := cloud.Firestore.Stats().Writes - before; n != 0 {
				t.Errorf("the service made %d writes, want 0", n)
			}
		})
	}
}
