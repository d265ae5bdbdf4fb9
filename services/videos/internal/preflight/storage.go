package preflight

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/objectstore"
)

// corsRule is a CORS rule on the bucket or in the chart's file.
type corsRule struct {
	Origin, Method, ResponseHeader []string
}

func (r corsRule) covers(w corsRule) bool {
	has := func(have, want []string) bool {
		return slices.Contains(have, "*") || !slices.ContainsFunc(want, func(s string) bool {
			return !slices.ContainsFunc(have, func(h string) bool { return strings.EqualFold(h, s) })
		})
	}
	return len(r.Origin) > 0 && has(r.Method, w.Method) && has(r.ResponseHeader, w.ResponseHeader)
}

func (p *preflight) bucket() string {
	return p.storageAPI + "/storage/v1/b/" + url.PathEscape(p.Storage.Bucket)
}

func (p *preflight) checkBucket(ctx context.Context) {
	name := p.Storage.Bucket
	var bucket struct {
		CORS             []corsRule `json:"cors"`
		IAMConfiguration struct{ PublicAccessPrevention string }
		SoftDeletePolicy struct{ RetentionDurationSeconds string }
	}
	if _, err := p.get(ctx, p.bucket(), &bucket); err != nil {
		p.complain("the bucket %s cannot be read: %v. Check cloud.google.bucket, and that the account has storage.buckets.get "+
			"(roles/storage.legacyBucketReader).", name, err)
		return
	}
	var rules []corsRule
	if !p.want(p.cors, &rules) {
		return
	}
	for _, w := range rules {
		if !slices.ContainsFunc(bucket.CORS, func(have corsRule) bool { return have.covers(w) }) {
			p.complain("the CORS configuration of bucket %s does not let browsers %s with the headers they need. "+
				"Run gcloud storage buckets update gs://%s --cors-file=cors.json.", name, strings.Join(w.Method, ", "), name)
		}
	}
	if bucket.IAMConfiguration.PublicAccessPrevention != "enforced" {
		p.complain("the bucket %s does not enforce public access prevention, so one wrong policy would publish private videos. "+
			"Run gcloud storage buckets update gs://%s --public-access-prevention.", name, name)
	}
	if s := bucket.SoftDeletePolicy.RetentionDurationSeconds; s == "" || s == "0" {
		p.note("%s has no soft delete, so objects deleted by mistake cannot be restored. Run gcloud storage buckets update gs://%s "+
			"--soft-delete-duration=7d, or leave soft delete off if deleted videos must be removed immediately.", name, name)
	}
}

func (p *preflight) openBucket(ctx context.Context) *objectstore.Store {
	store, err := objectstore.Open(ctx, p.Storage)
	if err != nil {
		p.complain("%v", err)
		return nil
	}
	return store
}

// checkOwner reports a database written by a different version because none of the services will
// start with it. It also reports a bucket that belongs to a different database because the videos
// service will not start with it.
func (p *preflight) checkOwner(ctx context.Context) {
	db, err := firestoredb.Open(ctx, p.Firestore)
	if err != nil {
		p.complain("%v", err)
		return
	}
	defer func() { _ = db.Close() }()
	store := p.openBucket(ctx)
	if store == nil {
		return
	}
	defer func() { _ = store.Close() }()
	database, err := db.Peek(ctx) // it must remain empty because linkreel move requires an empty target
	switch {
	case errors.Is(err, firestoredb.ErrFormat):
		p.complain("%v.", err)
		return
	case err != nil:
		p.complain("the database cannot be read: %v. The account needs roles/datastore.user.", err)
		return
	}
	switch owner, err := store.Owner(ctx); {
	case errors.Is(err, objectstore.ErrForeign):
		p.complain("%v. If the bucket is this release's, delete that object; videos writes it again.", err)
	case err != nil:
		p.complain("%s cannot be read: %v. The account needs roles/storage.objectAdmin on the bucket %s.",
			objectstore.OwnerObject, err, p.Storage.Bucket)
	case owner != "" && owner != database:
		p.complain("the bucket %s belongs to the database %s, and this release uses %s. Give each release its own bucket. "+
			"To move it to this release permanently, delete its object %s first.", p.Storage.Bucket, owner, cmp.Or(database, "an empty one"), objectstore.OwnerObject)
	}
}

func (p *preflight) checkNotification(ctx context.Context) {
	var list struct {
		Items []struct {
			EventTypes []string `json:"event_types"`
		}
	}
	if _, err := p.get(ctx, p.bucket()+"/notificationConfigs", &list); err != nil {
		p.complain("the notifications of bucket %s cannot be listed: %v", p.Storage.Bucket, err)
		return
	}
	for _, n := range list.Items {
		if len(n.EventTypes) == 0 || slices.Contains(n.EventTypes, "OBJECT_FINALIZE") {
			return
		}
	}
	p.complain("the bucket %s sends no notifications about uploads, so processing starts seconds to minutes late. Create the notification "+
		"(docs/operations.md, Notification of uploads), or leave cloud.google.notification.serviceAccount empty.", p.Storage.Bucket)
}

// checkSigning uploads and reads an object through signed URLs, as browsers do.
func (p *preflight) checkSigning(ctx context.Context) {
	store := p.openBucket(ctx)
	if store == nil {
		return
	}
	defer func() { _ = store.Close() }()
	object, content := "preflight/"+identity.NewNonce(), []byte("preflight")
	put, _, err := store.SignPut(ctx, object, 10*time.Minute)
	if err != nil {
		p.complain("cannot sign URLs: %v. The account needs roles/iam.serviceAccountTokenCreator on itself, "+
			"and the IAM Credentials API must be enabled.", err)
		return
	}
	defer func() { _ = store.Delete(context.WithoutCancel(ctx), object, 0) }()
	get, _, err := store.SignGet(ctx, object, 10*time.Minute, objectstore.GetOptions{})
	if err != nil {
		p.complain("cannot sign URLs: %v", err)
		return
	}
	what := "upload"
	if err = send(ctx, http.MethodPut, put, content, nil); err == nil {
		what, err = "download", send(ctx, http.MethodGet, get, nil, content)
	}
	if err != nil {
		p.complain("a signed %s is refused: %v. The account that signs needs roles/storage.objectAdmin on the bucket %s.",
			what, err, p.Storage.Bucket)
	}
}

// send requests a signed URL. Its errors must not contain the URL.
func send(ctx context.Context, method, address string, body, want []byte) error {
	req, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(body))
	if err != nil {
		return errors.New("the signed URL is not a valid URL")
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err
		}
		return err
	}
	defer func() { _ = res.Body.Close() }()
	got, err := io.ReadAll(io.LimitReader(res.Body, 1<<16))
	if err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK || want != nil && !bytes.Equal(got, want) {
		return fmt.Errorf("storage returned status %d", res.StatusCode)
	}
	return nil
}
