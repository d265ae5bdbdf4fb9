package videos_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/tenant"
	"github.com/linkreel/linkreel/libs/tenant/keeper"
	"github.com/linkreel/linkreel/libs/tenant/keeper/keepertest"
	"github.com/linkreel/linkreel/services/localcloud/storage"
	"github.com/linkreel/linkreel/services/videos"
)

// everywhere returns a video's public paths.
func (v made) everywhere() []string {
	return []string{v.path, "/embed/" + v.slug, v.path + "/session", v.path + "/status", v.path + "/thumbnail.jpg", v.path + "/video.mp4"}
}

func TestASuspendedAccountsPagesEndBeforeTheCallReturns(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *videos.Config, _ *storage.Options) { c.AbuseContact = "abuse@example.com" })
	v, other := w.ready(`{"title":"Fjord"}`), w.as("acc_b", http.MethodPost, "", `{}`).want(201).json()
	page := w.send(http.MethodGet, v.path, "").want(200)
	if !strings.Contains(page.body, `<a href="mailto:abuse@example.com" rel="nofollow">Report</a>`) {
		t.Error("the page does not have a link to report the video, want one")
	}
	waiting := other["slug"].(string)
	for _, path := range []string{"/embed/" + v.slug, "/embed/" + waiting, "/v/" + waiting, "/embed/none", "/v/none"} {
		if page := w.send(http.MethodGet, path, ""); !strings.Contains(page.body, `href="mailto:abuse@example.com"`) {
			t.Errorf("%s does not have a link to report the video, want one", path)
		}
	}
	watch, own := playlistOf(page, "playlist"), w.get(v.id)["playbackUrl"].(string)
	// Continuous requests ensure that the replica always has a fresh copy of the standing.
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				w.send(http.MethodGet, v.path, "")
			}
		}
	}()
	set := func(s tenant.State, version int64) {
		must(t, w.auth.SetState(t.Context(), "acc_a", tenant.Standing{State: s, Version: version}))
	}
	for round := range int64(2) {
		set(tenant.Suspended, 2+2*round)
		for _, path := range append(v.everywhere(), watch, own) {
			if a := w.send(http.MethodGet, path, ""); a.status != 410 {
				t.Errorf("GET %s for a suspended account returned %d, want 410", path, a.status)
			}
		}
		if a := w.send(http.MethodGet, v.path, "", header("Accept", "application/json")).want(410); a.code() != "ACCOUNT_SUSPENDED" {
			t.Error(a.body)
		}
		if p := w.send(http.MethodGet, v.path, ""); strings.Contains(p.body, "Fjord") || !strings.Contains(p.body, "<html") {
			t.Errorf("want an HTML page without the title, got:\n%s", p.body)
		}
		w.send(http.MethodGet, "/v/"+other["slug"].(string), "").want(200)
		set(tenant.Active, 3+2*round)
		w.send(http.MethodGet, v.path, "").want(200)
		w.send(http.MethodGet, own, "").want(200)
	}
	set(tenant.Suspended, 4) // a late decision with an old version
	w.send(http.MethodGet, v.path, "").want(200)
	close(stop)
	<-stopped
}

// A lift may arrive before its suspension.
func TestALateSuspensionIsIgnoredAfterItsLift(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.ready(`{"title":"Fjord"}`)
	for _, s := range []tenant.Standing{{State: tenant.Active, Version: 6}, {State: tenant.Suspended, Version: 5}} {
		must(t, w.auth.SetState(t.Context(), "acc_a", s))
	}
	w.send(http.MethodGet, v.path, "").want(200)
}

func TestATakedownIsTheOperatorsToLift(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v, other := w.ready(`{"title":"Fjord"}`), w.ready(`{}`)
	own := w.get(v.id)["playbackUrl"].(string)
	page := w.send(http.MethodGet, v.path, "").want(200)
	native := playlistOf(page, "native")
	media := native[:strings.LastIndex(native, "/")+1] + firstAddress(w.send(http.MethodGet, strings.Replace(native, "master", "720p", 1), "").want(200))
	order := tenant.Order{ID: "tkd_1", Target: tenant.Target{URL: v.share}, Reason: "phishing", At: time.UnixMilli(1_700_000_000_000)}
	took, err := w.auth.TakeDown(t.Context(), order)
	must(t, err)
	if took.RecordID != v.id || took.AccountID != "acc_a" || took.URL != v.share || took.Kind != tenant.KindVideo {
		t.Errorf("TakeDown returned %+v, want the ids, URL and kind of the video", took)
	}
	for _, path := range append(v.everywhere(), own, native, media) {
		if a := w.send(http.MethodGet, path, ""); a.status != 410 {
			t.Errorf("GET %s for a video that was taken down returned %d, want 410", path, a.status)
		}
	}
	if a := w.send(http.MethodGet, v.path, "", header("Accept", "application/json")).want(410); a.code() != "TAKEN_DOWN" {
		t.Error(a.body)
	}
	w.send(http.MethodGet, other.path, "").want(200)
	got := w.get(v.id)
	if d, _ := got["takenDown"].(map[string]any); d["reason"] != "phishing" || d["at"] != 1_700_000_000_000.0 || got["playbackUrl"] != nil || got["downloadUrl"] != nil {
		t.Errorf("the owner gets %v, want the takedown and no playback URLs", got)
	}
	w.api(http.MethodPatch, "/"+v.id, `{"takenDown":null,"title":"New"}`).want(200)
	w.setAccess(v, `{"privacy":"unlisted"}`).want(200)
	w.send(http.MethodGet, v.path, "").want(410)

	// A second takedown order for the same video, this time by id, returns the current takedown.
	order.ID, order.Target = "tkd_2", tenant.Target{ID: v.id}
	if again, err := w.auth.TakeDown(t.Context(), order); err != nil || again.ID != "tkd_1" {
		t.Errorf("the second TakeDown returned %+v and error %v, want the current takedown tkd_1", again, err)
	}
	must(t, w.auth.Lift(t.Context(), tenant.Takedown{ID: "tkd_2", RecordID: v.id}))
	w.send(http.MethodGet, v.path, "").want(410) // tkd_2 is not the current takedown
	must(t, w.auth.Lift(t.Context(), took))
	must(t, w.auth.Lift(t.Context(), took))
	w.send(http.MethodGet, v.path, "").want(200)

	// auth lost the response, so it only knows the URL in the order.
	order.Target = tenant.Target{URL: v.share}
	_, err = w.auth.TakeDown(t.Context(), order)
	must(t, err)
	w.send(http.MethodGet, v.path, "").want(410)
	must(t, w.auth.Lift(t.Context(), tenant.Takedown{ID: order.ID, Kind: tenant.KindVideo, URL: v.share}))
	w.send(http.MethodGet, v.path, "").want(200)
	for _, address := range []string{"https://go.example/x", w.base + "/v/nothing"} {
		must(t, w.auth.Lift(t.Context(), tenant.Takedown{ID: order.ID, Kind: tenant.KindVideo, URL: address}))
	}
	for _, target := range []tenant.Target{{ID: "vid_0000000000000000000000"}, {ID: "lnk_x"}, {URL: "https://go.example/x"}, {URL: w.base + "/v/nothing"}} {
		if _, err := w.auth.TakeDown(t.Context(), tenant.Order{ID: "tkd_3", Target: target}); apierr.CodeOf(err) != apierr.VideoNotFound {
			t.Errorf("TakeDown of %v returned %v, want %s", target, err, apierr.VideoNotFound)
		}
	}
	w.api(http.MethodDelete, "/"+v.id, "").want(204)
	must(t, w.auth.Lift(t.Context(), took))
}

func TestAnErasedAccountLeavesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, quick)
	gone := w.create(`{"externalId":"x"}`)
	w.api(http.MethodDelete, "/"+gone.id, "").want(204) // leaves a purge task that lasts for days
	done, busy := w.ready(`{"tags":["a"]}`), w.create(`{"externalId":"y"}`)
	w.put(busy, "a film")
	w.get(busy.id)
	job, err := w.jobs.Claim(t.Context(), w.job(busy.id).ID, "hand", time.Minute)
	must(t, err)
	stranger := w.as("acc_b", http.MethodPost, "", `{"externalId":"y"}`).want(201).json()["videoId"].(string)

	must(t, w.auth.SetState(t.Context(), "acc_a", tenant.Standing{State: tenant.Deleting, Version: 2}))
	w.send(http.MethodGet, done.path, "").want(410)
	if erased, err := w.auth.Erased(t.Context(), "acc_a"); err != nil || erased {
		t.Fatalf("Erased right after the order returned %v and error %v, want false", erased, err)
	}
	// A restarted loop resumes where it stopped.
	for range 3 {
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(300*time.Millisecond, cancel)
		var all sync.WaitGroup
		for _, l := range w.svc.Loops {
			if l.Name == "accounts" || l.Name == "sweep" {
				all.Go(func() { _ = l.Run(ctx) })
			}
		}
		all.Wait()
		cancel()
	}
	// A worker that has not noticed the erasure writes one more object.
	w.object("videos/"+busy.id+"/1-1/late.mp4", "late")
	w.loop("accounts")
	w.loop("sweep")
	eventually(t, "erased", func() bool {
		w.clock.Advance(30 * time.Second)
		erased, err := w.auth.Erased(t.Context(), "acc_a")
		must(t, err)
		return erased
	})
	if _, err := w.jobs.Get(t.Context(), job.ID); err == nil {
		t.Error("the job's record still exists, want it deleted")
	}
	for _, id := range []string{gone.id, done.id, busy.id} {
		if left := append(w.objects("videos/"+id), w.objects("uploads/"+id)...); len(left) != 0 {
			t.Errorf("storage still contains %v, want no objects", left)
		}
	}
	for _, c := range []string{"videos", "videoPurges", "videoExternalIds", "jobs", "videoSlugs"} {
		docs, err := w.db.Collection(c).Documents(t.Context()).GetAll()
		must(t, err)
		for _, d := range docs {
			// A tombstone contains only the video's id and times.
			if fields := slices.Sorted(maps.Keys(d.Data())); c == "videoPurges" && slices.Equal(fields, []string{"due", "late", "since", "until"}) {
				continue
			}
			if text := fmt.Sprint(d.Ref.ID, d.Data()); strings.Contains(text, "acc_a") || strings.Contains(text, done.id) || strings.Contains(text, busy.id) || strings.Contains(text, gone.id) {
				t.Errorf("collection %s still contains %s, want no trace of the account", c, text)
			}
		}
	}
	if _, err := w.db.Collection("videoSlugs").Doc(done.slug).Get(t.Context()); err != nil {
		t.Errorf("looking up the slug returned %v, want it reserved after the erasure", err)
	}
	w.as("acc_b", http.MethodGet, "/"+stranger, "").want(200)
	if erased, err := w.auth.Erased(t.Context(), "acc_never"); err != nil || erased {
		t.Errorf("Erased for an account without an erasure returned %v and error %v, want false", erased, err)
	}
}

func TestAnErasureBeginsWithoutWaitingForASweep(t *testing.T) {
	t.Parallel()
	w := newWorld(t) // a loop that sweeps once an hour
	v := w.create(`{}`)
	w.loop("accounts")
	w.loop("sweep")
	must(t, w.auth.SetState(t.Context(), "acc_a", tenant.Standing{State: tenant.Deleting, Version: 2}))
	eventually(t, "record deleted", func() bool {
		_, err := w.db.Collection("videos").Doc(v.id).Get(t.Context())
		return errors.Is(firestoredb.Map(err), firestoredb.ErrNotFound)
	})
}

func TestAnAccountNeverSeenIsErasedSoon(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	must(t, w.auth.SetState(t.Context(), "acc_new", tenant.Standing{State: tenant.Deleting, Version: 1}))
	w.clock.Advance(keeper.Settle)
	if erased, err := w.auth.Erased(t.Context(), "acc_new"); err != nil || !erased {
		t.Errorf("Erased returned %v and error %v, want true", erased, err)
	}
}

func TestAnExportHasEachVideoOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.ready(`{"title":"Fjord","tags":["a"],"privacy":"password","password":"sesame"}`)
	want := map[string]bool{v.id: true}
	for range 5 {
		want[w.create(`{}`).id] = true
	}
	w.as("acc_b", http.MethodPost, "", `{}`).want(201)
	var out bytes.Buffer
	by := &identity.Principal{AccountID: "acc_a", KeyID: "key_acc_a"}
	must(t, w.auth.Export(identity.WithPrincipal(t.Context(), by), "acc_a", &out))
	if strings.Contains(out.String(), "argon2") || strings.Contains(out.String(), "sesame") || strings.Contains(out.String(), "X-Goog") {
		t.Error("the export contains a password, a hash or a signed URL, want none")
	}
	for line := range strings.Lines(out.String()) {
		var item struct {
			Type string
			Data map[string]any
		}
		must(t, json.Unmarshal([]byte(line), &item))
		id := item.Data["id"].(string)
		if item.Type != "video" || !want[id] {
			t.Errorf("the export contains the line %s, want each video once", line)
		}
		delete(want, id)
		if id == v.id {
			w.send(http.MethodGet, item.Data["downloadUrl"].(string), "").want(302)
		}
	}
	if len(want) != 0 {
		t.Errorf("the export is missing the videos %v, want all videos", want)
	}
}

func TestWhatIsCommittedAfterAnErasureIsErasedToo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, quick)
	w.loop("accounts")
	w.loop("sweep")
	keepertest.TakesWhatIsCommittedLate(t, keepertest.Service{
		Holder: w.auth, Account: "acc_a", Forward: w.clock.Advance,
		// The key is still valid here: the test's auth does not know about the erasure.
		Commit: func() { w.create(`{}`) },
		Left: func() int {
			found, err := w.db.Collection("videos").Documents(t.Context()).GetAll()
			must(t, err)
			return len(found)
		},
	})
}
