package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/caarlos0/env/v11"
	"github.com/redis/go-redis/v9"
	"golang.org/x/oauth2/google"

	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/objectstore"
	"github.com/linkreel/linkreel/libs/redisdb"
)

// preflight checks, with the credentials and settings that the pods will have,
// what they need of Firestore, storage and Redis. It says in a sentence what is
// not right, and what to do about it.
type preflight struct {
	Firestore firestoredb.Config `envPrefix:"LINKREEL_"`
	Storage   objectstore.Config `envPrefix:"LINKREEL_"`
	RedisURL  string             `env:"LINKREEL_REDIS_URL"`
	RedisPass string             `env:"LINKREEL_REDIS_PASSWORD"`
	RedisCA   string             `env:"LINKREEL_REDIS_CA_FILE"`

	indexes, cors string // files of the chart
	notification  bool

	// Where Google's APIs are, and the client that carries the credentials.
	firestoreAPI, storageAPI string
	client                   *http.Client
	out                      io.Writer
}

func newPreflight(flags *flag.FlagSet) (*preflight, error) {
	p := &preflight{out: os.Stdout, firestoreAPI: "https://firestore.googleapis.com", storageAPI: "https://storage.googleapis.com"}
	flags.StringVar(&p.indexes, "indexes", "", "the chart's firestore.indexes.json")
	flags.StringVar(&p.cors, "cors", "", "the chart's cors.json")
	flags.BoolVar(&p.notification, "notification", false, "expect a notification of uploads")
	return p, env.Parse(p)
}

const (
	preflightTime = 2 * time.Minute
	// mostSkew is how far clocks may be apart. Leases and signatures go by them.
	mostSkew = 5 * time.Second
)

// run prints a line for each check and fails when one of them does.
func (p *preflight) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, preflightTime)
	defer cancel()
	if p.client == nil {
		client, err := google.DefaultClient(ctx, "https://www.googleapis.com/auth/cloud-platform")
		if err != nil {
			return fmt.Errorf("there are no credentials: %w. Bind the pod's service account to one of Google's (docs/operations.md, Identity)", err)
		}
		p.client = client
	}
	checks := []struct {
		name string
		do   func(context.Context) []string
	}{
		{"clock", p.checkClock}, {"indexes", p.checkIndexes}, {"TTL policies", p.checkTTL}, {"bucket", p.checkBucket}, {"owner", p.checkOwner},
		{"signing", p.checkSigning}, {"Redis", p.checkRedis},
	}
	if p.notification {
		checks = append(checks, struct {
			name string
			do   func(context.Context) []string
		}{"notification", p.checkNotification})
	}
	failed := 0
	for _, c := range checks {
		complaints := c.do(ctx)
		if len(complaints) == 0 {
			fmt.Fprintf(p.out, "ok      %s\n", c.name)
			continue
		}
		failed++
		for _, line := range complaints {
			fmt.Fprintf(p.out, "FAILED  %s: %s\n", c.name, line)
		}
	}
	if failed > 0 {
		return fmt.Errorf("preflight: %d of %d checks failed; see the lines above", failed, len(checks))
	}
	return nil
}

// get reads JSON from one of Google's APIs.
func (p *preflight) get(ctx context.Context, address string, into any) (http.Header, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	res, err := p.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	raw, err := io.ReadAll(io.LimitReader(res.Body, 16<<20))
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		var e struct {
			Error struct{ Message string } `json:"error"`
		}
		_ = json.Unmarshal(raw, &e)
		return res.Header, fmt.Errorf("it answers %d %s", res.StatusCode, e.Error.Message)
	}
	if into == nil {
		return res.Header, nil
	}
	return res.Header, json.Unmarshal(raw, into)
}

func (p *preflight) database() string {
	return fmt.Sprintf("%s/v1/projects/%s/databases/%s", p.firestoreAPI, url.PathEscape(p.Firestore.Project), p.Firestore.Database)
}

func (p *preflight) checkClock(ctx context.Context) []string {
	began := time.Now()
	header, err := p.get(ctx, p.database(), nil)
	if header == nil {
		return []string{fmt.Sprintf("Firestore cannot be reached: %v. Check networkPolicy.googleTo and the private endpoint.", err)}
	}
	date, perr := http.ParseTime(header.Get("Date"))
	if perr != nil {
		return nil
	}
	// The header has whole seconds, and was written somewhere between the request and now.
	if early, late := began.Sub(date), time.Until(date); early > mostSkew+time.Second || late > mostSkew {
		return []string{fmt.Sprintf("this node's clock and Google's are %v apart. Leases and signed addresses need clocks within %v; check NTP on the nodes.", max(early, late).Round(time.Second), mostSkew)}
	}
	return nil
}

// wanted is the chart's file.
type wanted struct {
	Indexes []struct {
		CollectionGroup, QueryScope string
		Fields                      []indexField
	}
	FieldOverrides []struct {
		CollectionGroup, FieldPath string
		TTL                        bool `json:"ttl"`
	}
}

type indexField struct{ FieldPath, Order, ArrayConfig string }

func (p *preflight) want() (w wanted, err error) {
	raw, err := os.ReadFile(p.indexes)
	if err == nil {
		err = json.Unmarshal(raw, &w)
	}
	return w, err
}

// shape names an index by what it is on. Google adds the document's name at the end.
func shape(group, scope string, fields []indexField) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s (%s)", group, strings.ToLower(scope))
	for _, f := range fields {
		if f.FieldPath != "__name__" {
			fmt.Fprintf(&b, " %s %s%s", strings.ReplaceAll(f.FieldPath, "`", ""), strings.ToLower(f.Order), strings.ToLower(f.ArrayConfig))
		}
	}
	return b.String()
}

// part finds what follows a word in a resource's name.
func part(name, word string) string {
	_, rest, _ := strings.Cut(name, "/"+word+"/")
	first, _, _ := strings.Cut(rest, "/")
	return first
}

const deployIndexes = "Deploy the chart's firestore.indexes.json (docs/operations.md, Firestore)."

func (p *preflight) checkIndexes(ctx context.Context) (out []string) {
	w, err := p.want()
	if err != nil {
		return []string{fmt.Sprintf("the list of indexes cannot be read: %v", err)}
	}
	have := map[string]string{} // to the state
	for token := ""; ; {
		var page struct {
			Indexes []struct {
				Name, QueryScope, State string
				Fields                  []indexField
			}
			NextPageToken string
		}
		address := p.database() + "/collectionGroups/-/indexes?pageSize=300&pageToken=" + url.QueryEscape(token)
		if _, err := p.get(ctx, address, &page); err != nil {
			return []string{fmt.Sprintf("Firestore's indexes cannot be listed: %v. The account needs roles/datastore.viewer or roles/datastore.user, and the database %s of project %s has to exist.", err, p.Firestore.Database, p.Firestore.Project)}
		}
		for _, i := range page.Indexes {
			have[shape(part(i.Name, "collectionGroups"), i.QueryScope, i.Fields)] = i.State
		}
		if token = page.NextPageToken; token == "" {
			break
		}
	}
	for _, i := range w.Indexes {
		name := shape(i.CollectionGroup, i.QueryScope, i.Fields)
		switch state, found := have[name]; {
		case !found:
			out = append(out, "the index "+name+" is missing. "+deployIndexes)
		case state != "READY":
			out = append(out, fmt.Sprintf("the index %s is %s, so its queries fail. Wait until it is READY.", name, state))
		}
	}
	return out
}

func (p *preflight) checkTTL(ctx context.Context) (out []string) {
	w, err := p.want()
	if err != nil {
		return []string{fmt.Sprintf("the list of TTL policies cannot be read: %v", err)}
	}
	have := map[string]string{}
	for token := ""; ; {
		var page struct {
			Fields []struct {
				Name      string
				TTLConfig struct{ State string } `json:"ttlConfig"`
			}
			NextPageToken string
		}
		address := p.database() + "/collectionGroups/-/fields?filter=" + url.QueryEscape("ttlConfig:*") + "&pageSize=300&pageToken=" + url.QueryEscape(token)
		if _, err := p.get(ctx, address, &page); err != nil {
			return []string{fmt.Sprintf("Firestore's TTL policies cannot be listed: %v", err)}
		}
		for _, f := range page.Fields {
			have[part(f.Name, "collectionGroups")+"."+part(f.Name, "fields")] = f.TTLConfig.State
		}
		if token = page.NextPageToken; token == "" {
			break
		}
	}
	for _, f := range w.FieldOverrides {
		name := f.CollectionGroup + "." + f.FieldPath
		switch state, found := have[name]; {
		case !f.TTL:
		case !found:
			out = append(out, "the TTL policy of "+name+" is missing, so records that have ended would stay for ever. "+deployIndexes)
		case state == "NEEDS_REPAIR":
			out = append(out, "the TTL policy of "+name+" needs repair. Disable it and deploy it again.")
		}
	}
	return out
}

// corsRule is an entry of the bucket's CORS, and of the chart's file.
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

func (p *preflight) checkBucket(ctx context.Context) (out []string) {
	var bucket struct {
		CORS             []corsRule `json:"cors"`
		IAMConfiguration struct{ PublicAccessPrevention string }
		SoftDeletePolicy struct{ RetentionDurationSeconds string }
	}
	if _, err := p.get(ctx, p.storageAPI+"/storage/v1/b/"+url.PathEscape(p.Storage.Bucket), &bucket); err != nil {
		return []string{fmt.Sprintf("the bucket %s cannot be read: %v. Check cloud.google.bucket, and that the account has storage.buckets.get (roles/storage.legacyBucketReader).", p.Storage.Bucket, err)}
	}
	var rules []corsRule
	raw, err := os.ReadFile(p.cors)
	if err == nil {
		err = json.Unmarshal(raw, &rules)
	}
	if err != nil {
		return []string{fmt.Sprintf("the wanted CORS cannot be read: %v", err)}
	}
	for _, w := range rules {
		if !slices.ContainsFunc(bucket.CORS, func(have corsRule) bool { return have.covers(w) }) {
			out = append(out, fmt.Sprintf("the CORS of bucket %s does not let browsers %s with the headers they need. Run gcloud storage buckets update gs://%s --cors-file=cors.json.", p.Storage.Bucket, strings.Join(w.Method, ", "), p.Storage.Bucket))
		}
	}
	if bucket.IAMConfiguration.PublicAccessPrevention != "enforced" {
		out = append(out, fmt.Sprintf("the bucket %s does not enforce public access prevention, so one wrong policy would publish private videos. Run gcloud storage buckets update gs://%s --public-access-prevention.", p.Storage.Bucket, p.Storage.Bucket))
	}
	if s := bucket.SoftDeletePolicy.RetentionDurationSeconds; s == "" || s == "0" {
		fmt.Fprintf(p.out, "note    bucket: %s has no soft delete, so nothing brings back what was deleted by mistake. Run gcloud storage buckets update gs://%s --soft-delete-duration=7d, or keep it so if deleted videos must be gone at once.\n", p.Storage.Bucket, p.Storage.Bucket)
	}
	return out
}

// checkOwner refuses the bucket of another database: videos would not start on it.
func (p *preflight) checkOwner(ctx context.Context) []string {
	db, err := firestoredb.Open(ctx, p.Firestore)
	if err != nil {
		return []string{err.Error()}
	}
	defer func() { _ = db.Close() }()
	store, err := objectstore.Open(ctx, p.Storage)
	if err != nil {
		return []string{err.Error()}
	}
	defer func() { _ = store.Close() }()
	database, err := db.Identity(ctx)
	if err != nil {
		return []string{fmt.Sprintf("the database cannot be read: %v. The account needs roles/datastore.user.", err)}
	}
	switch owner, err := store.Owner(ctx); {
	case errors.Is(err, objectstore.ErrForeign):
		return []string{fmt.Sprintf("%v. If the bucket is this release's, delete that object; videos writes it again.", err)}
	case err != nil:
		return []string{fmt.Sprintf("%s cannot be read: %v. The account needs roles/storage.objectAdmin on the bucket %s.", objectstore.OwnerObject, err, p.Storage.Bucket)}
	case owner != "" && owner != database:
		return []string{fmt.Sprintf("the bucket %s belongs to the database %s, and this release uses %s. Give each release a bucket of its own. If this bucket is to change hands for good, delete its object %s first.", p.Storage.Bucket, owner, database, objectstore.OwnerObject)}
	}
	return nil
}

func (p *preflight) checkNotification(ctx context.Context) []string {
	var list struct {
		Items []struct {
			EventTypes []string `json:"event_types"`
		}
	}
	if _, err := p.get(ctx, p.storageAPI+"/storage/v1/b/"+url.PathEscape(p.Storage.Bucket)+"/notificationConfigs", &list); err != nil {
		return []string{fmt.Sprintf("the notifications of bucket %s cannot be listed: %v", p.Storage.Bucket, err)}
	}
	for _, n := range list.Items {
		if len(n.EventTypes) == 0 || slices.Contains(n.EventTypes, "OBJECT_FINALIZE") {
			return nil
		}
	}
	return []string{fmt.Sprintf("the bucket %s notifies nobody of uploads, so videos start seconds to minutes late. Create the notification (docs/operations.md, Notification of uploads), or leave cloud.google.notification.serviceAccount empty.", p.Storage.Bucket)}
}

// checkSigning uploads and reads an object by signed addresses, as browsers do.
func (p *preflight) checkSigning(ctx context.Context) []string {
	store, err := objectstore.Open(ctx, p.Storage)
	if err != nil {
		return []string{err.Error()}
	}
	defer func() { _ = store.Close() }()
	object, content := "preflight/"+identity.NewNonce(), []byte("preflight")
	put, _, err := store.SignPut(ctx, object, 10*time.Minute)
	if err != nil {
		return []string{fmt.Sprintf("addresses cannot be signed: %v. The account needs roles/iam.serviceAccountTokenCreator on itself, and the IAM Credentials API has to be enabled.", err)}
	}
	defer func() { _ = store.Delete(context.WithoutCancel(ctx), object, 0) }()
	if err := send(ctx, http.MethodPut, put, content, nil); err != nil {
		return []string{fmt.Sprintf("a signed upload is refused: %v. The account that signs needs roles/storage.objectAdmin on the bucket %s.", err, p.Storage.Bucket)}
	}
	get, _, err := store.SignGet(ctx, object, 10*time.Minute, objectstore.GetOptions{})
	if err != nil {
		return []string{fmt.Sprintf("addresses cannot be signed: %v", err)}
	}
	if err := send(ctx, http.MethodGet, get, nil, content); err != nil {
		return []string{fmt.Sprintf("a signed download is refused: %v. The account that signs needs roles/storage.objectAdmin on the bucket %s.", err, p.Storage.Bucket)}
	}
	return nil
}

// send uses a signed address, which no error may show.
func send(ctx context.Context, method, address string, body, want []byte) error {
	req, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(body))
	if err != nil {
		return errors.New("the address is not one")
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
		return fmt.Errorf("storage answers %d", res.StatusCode)
	}
	return nil
}

func (p *preflight) checkRedis(ctx context.Context) (out []string) {
	if p.RedisURL == "" {
		return nil // the chart's own one, which is not there yet
	}
	client, err := redisdb.Open(redisdb.Config{URL: p.RedisURL, Password: p.RedisPass, CAFile: p.RedisCA})
	if err != nil {
		return []string{err.Error()}
	}
	defer func() { _ = client.Close() }()
	facts, err := redisFacts(ctx, client)
	if err != nil {
		return []string{fmt.Sprintf("Redis cannot be reached: %v. Check the address, the password, redis.external.caFile and networkPolicy.redisTo.", err)}
	}
	if policy := facts["maxmemory_policy"]; policy != "noeviction" {
		out = append(out, fmt.Sprintf("Redis has the maxmemory-policy %s, which drops clicks and wake-ups when memory is short. Set it to noeviction.", policy))
	}
	// valkey_version is there beside redis_version, which Valkey keeps at 7.2.
	if major, _, _ := strings.Cut(facts["redis_version"], "."); len(major) == 1 && major < "7" {
		out = append(out, fmt.Sprintf("Redis is version %s. Use 7 or later, or Valkey.", facts["redis_version"]))
	}
	if facts["aof_enabled"] != "1" {
		fmt.Fprintln(p.out, "note    Redis: it has no append-only file, so a restart loses the clicks of the time since its last snapshot.")
	}
	if now, err := client.Time(ctx).Result(); err == nil {
		if skew := time.Since(now).Abs(); skew > mostSkew {
			out = append(out, fmt.Sprintf("the clocks of Redis and this node are %v apart. Rate limits go by them; check NTP.", skew.Round(time.Second)))
		}
	}
	return out
}

func redisFacts(ctx context.Context, client redis.UniversalClient) (map[string]string, error) {
	text, err := client.Info(ctx).Result()
	facts := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			facts[name] = value
		}
	}
	return facts, err
}
