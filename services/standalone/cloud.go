package standalone

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"time"

	"github.com/linkreel/linkreel/libs/events/outbox"
	"github.com/linkreel/linkreel/libs/httpapi/idempotency"
	"github.com/linkreel/linkreel/libs/outage"
	"github.com/linkreel/linkreel/libs/tags"
	"github.com/linkreel/linkreel/libs/transcode/jobs"
	"github.com/linkreel/linkreel/services/auth"
	"github.com/linkreel/linkreel/services/events"
	"github.com/linkreel/linkreel/services/links"
	"github.com/linkreel/linkreel/services/localcloud/firestore"
	"github.com/linkreel/linkreel/services/localcloud/redisproc"
	"github.com/linkreel/linkreel/services/localcloud/storage"
	"github.com/linkreel/linkreel/services/videos"
)

// project is the name of the local Google Cloud project, and bucket is the name of its bucket.
const (
	project = "linkreel-local"
	bucket  = "linkreel-media"
)

// recordsFile, objectsDir and auditDir are the names under which the data directory stores records,
// objects and the revocation trail.
const (
	recordsFile = "firestore.db"
	objectsDir  = "objects"
	auditDir    = "audit"
)

func (s *Stack) startRedis(ctx context.Context) (err error) {
	s.Redis, err = redisproc.Start(ctx, redisproc.Options{Dir: s.dir.join("redis")})
	if err != nil {
		return err
	}
	s.onClose(func(context.Context) error { return s.Redis.Stop() })
	s.group.Go(s.superviseRedis)
	return nil
}

// superviseRedis restarts Redis whenever it exits, as a cluster would.
func (s *Stack) superviseRedis() error {
	for {
		select {
		case <-s.ctx.Done():
			return nil
		case <-s.Redis.Done():
		}
		slog.Warn("redis exited; restarting it")
		if !outage.Pause(s.ctx, 500*time.Millisecond) {
			return nil
		}
		if err := s.Redis.Restart(s.ctx); err != nil && s.ctx.Err() == nil {
			slog.Warn("cannot restart redis; retrying", "error", err)
		}
	}
}

// Indexes returns the index files of every service and library that has collections.
func Indexes() [][]byte {
	return [][]byte{
		auth.Indexes(), events.Indexes(), links.Indexes(), videos.Indexes(),
		idempotency.Indexes, outbox.Indexes, tags.Indexes, jobs.Indexes,
	}
}

// parsedIndexes returns the indexes in the form that the local Firestore expects.
func parsedIndexes() (*firestore.Indexes, error) {
	indexes, err := firestore.ParseIndexes(Indexes()...)
	if err != nil {
		return nil, fmt.Errorf("indexes: %w", err)
	}
	return indexes, nil
}

func (s *Stack) startFirestore(context.Context) error {
	indexes, err := parsedIndexes()
	if err != nil {
		return err
	}
	s.Firestore, err = firestore.Open(firestore.Options{Path: s.dir.join(recordsFile), Indexes: indexes, Token: s.cloudToken, ReadOnly: wasReadOnly(s.dir)})
	if err != nil {
		return err
	}
	s.onClose(func(context.Context) error { return s.Firestore.Close() })
	addr, err := s.Firestore.Listen("127.0.0.1:0")
	if err != nil {
		return err
	}
	s.firestore = addr.String()
	return nil
}

// The upload limit is a little above the videos service's maximum file size, so a slightly larger
// file still fails with that service's own error. Uploads also leave disk space free for records.
const (
	defaultMaxVideo = 10 << 30
	uploadMargin    = 64 << 20
	diskReserve     = 256 << 20
)

func (s *Stack) startStorage(context.Context) (err error) {
	maxVideo := int64(defaultMaxVideo)
	if v := environment(s.cfg.Env, nil)["LINKREEL_VIDEO_MAX_BYTES"]; v != "" {
		if maxVideo, err = strconv.ParseInt(v, 10, 64); err != nil {
			return fmt.Errorf("configuration: LINKREEL_VIDEO_MAX_BYTES: %w", plain(err))
		}
	}
	s.Storage, err = storage.Open(storage.Options{
		Dir: s.dir.join(objectsDir), Buckets: []string{bucket}, PublicURL: s.UploadURL, APIURL: s.storageURL(), Token: s.cloudToken,
		// Allow every origin because embeds run on other hosts and a signed URL is itself the
		// credential.
		CORS: []storage.CORS{{Origin: []string{"*"}, Method: []string{"GET", "HEAD", "PUT", "POST"},
			ResponseHeader: []string{
				"Content-Type", "Content-Range", "Content-Length", "Range", "ETag", "Location", "x-goog-resumable",
			}, MaxAgeSeconds: 3600}},
		Notify: &storage.Notify{
			URL: s.BaseURL + videos.StorageHookPath, Events: []string{"OBJECT_FINALIZE"},
			Subscription: "projects/" + project + "/subscriptions/uploads",
		},
		MaxUpload: maxVideo + uploadMargin, Reserve: diskReserve,
	})
	if err != nil {
		return err
	}
	s.onClose(func(context.Context) error { return s.Storage.Close() })
	if err := os.WriteFile(s.storageKeyFile(), s.Storage.ServiceAccountKey(), 0o600); err != nil {
		return fmt.Errorf("storage key: %w", err)
	}
	return nil
}

func (s *Stack) openReadOnly(context.Context) (err error) {
	s.readOnly, err = openReadOnly(s.dir, s.Firestore, s.Storage)
	return err
}

func (s *Stack) storageURL() string { return "http://" + s.storage.Addr().String() }

func (s *Stack) storageKeyFile() string { return s.dir.join("storage-key.json") }
