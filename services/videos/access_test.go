package videos_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/linkreel/linkreel/libs/restored"
	"github.com/linkreel/linkreel/libs/transcode"
)

func (w *world) setAccess(v made, body string, settings ...setting) answer {
	w.t.Helper()
	return w.api(http.MethodPut, "/"+v.id+"/access", body, settings...)
}

func TestAccessIsReplacedAsAWhole(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.ready(`{"privacy":"password","password":"one"}`)
	open := map[string]any{"privacy": "public", "expiresAt": nil, "allowDownload": true, "embedOrigins": []any{}}
	if diff := cmp.Diff(map[string]any{"privacy": "password", "expiresAt": nil, "allowDownload": true, "embedOrigins": []any{}}, w.api(http.MethodGet, "/"+v.id+"/access", "").want(200).json()); diff != "" {
		t.Error(diff)
	}
	// An update may omit the password if the video has one.
	w.setAccess(v, `{"privacy":"password","allowDownload":false,"embedOrigins":["https://A.example","https://a.example:443","http://[::1]:8080"]}`).want(200)
	w.guess(v, "one").want(303)
	got := w.api(http.MethodGet, "/"+v.id+"/access", "").want(200)
	if diff := cmp.Diff(map[string]any{"privacy": "password", "expiresAt": nil, "allowDownload": false, "embedOrigins": []any{"https://a.example", "http://[::1]:8080"}}, got.json()); diff != "" {
		t.Error(diff)
	}
	// A PUT with the body of the GET response does not change anything.
	again := w.setAccess(v, got.body).want(200)
	if again.header.Get("ETag") != got.header.Get("ETag") {
		t.Error("a PUT of the current rule changed the ETag, want no change")
	}
	w.setAccess(v, `{"privacy":"password","password":"two"}`, header("If-Match", `"r1"`)).want(412)
	w.setAccess(v, `{"privacy":"password","password":"two"}`).want(200)
	w.guess(v, "one").want(403)
	w.guess(v, "two").want(303)
	if diff := cmp.Diff(open, w.setAccess(v, `{"privacy":"public"}`).want(200).json()); diff != "" {
		t.Error(diff)
	}
	w.setAccess(v, `{"privacy":"password"}`).want(400) // the old rule's password no longer exists
	for body, field := range map[string]string{
		`{"privacy":"public","password":"x"}`:     "password not_allowed",
		`{"privacy":"expiring"}`:                  "expiresAt required",
		`{"privacy":"expiring","expiresAt":1000}`: "expiresAt out_of_range",
		`{"privacy":"secret"}`:                    "privacy invalid_value",
		`{}`:                                      "privacy required", // a default could make a protected video public
		`{"allowDownload":false}`:                 "privacy required",
		`{"privacy":"public","embedOrigins":["https://a.example/path"]}`:                                              "embedOrigins.0 invalid_format",
		`{"privacy":"public","embedOrigins":["https://a.example","*"]}`:                                               "embedOrigins.1 invalid_format",
		`{"privacy":"public","embedOrigins":["https://a.example; script-src *"]}`:                                     "embedOrigins.0 invalid_format",
		`{"privacy":"public","embedOrigins":["https://*.example.com"]}`:                                               "embedOrigins.0 invalid_format",
		`{"privacy":"public","embedOrigins":["ftp://a.example"]}`:                                                     "embedOrigins.0 invalid_format",
		`{"privacy":"public","allowDownload":"yes"}`:                                                                  "allowDownload invalid_type",
		`{"privacy":"public","embedOrigins":[` + strings.Repeat(`"https://a.example",`, 20) + `"https://b.example"]}`: "embedOrigins too_long",
	} {
		a := w.setAccess(v, body).want(400)
		d := a.json()["error"].(map[string]any)["details"].([]any)[0].(map[string]any)
		if got := fmt.Sprint(d["field"], " ", d["code"]); got != field {
			t.Errorf("PUT of %s reported %s, want %s", body, got, field)
		}
	}
	if diff := cmp.Diff(open, w.api(http.MethodGet, "/"+v.id+"/access", "").json()); diff != "" {
		t.Errorf("a rejected PUT changed the rule (-before +after):\n%s", diff)
	}
	w.as("acc_b", http.MethodPut, "/"+v.id+"/access", `{"privacy":"nonsense"}`).want(404)
	w.as("acc_b", http.MethodGet, "/"+v.id+"/access", "").want(404)
	if a := w.as("acc_free", http.MethodPut, "/"+v.id+"/access", `{}`).want(403); a.code() != "PLAN_REQUIRED" {
		t.Error(a.body)
	}
}

func TestOnceAccessChangedNothingOfTheOldRuleIsGiven(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.ready(`{"privacy":"public","title":"Plans"}`)
	page := w.send(http.MethodGet, v.path, "").want(200)
	watch, long := playlistOf(page, "playlist"), playlistOf(page, "native")
	media := firstAddress(w.send(http.MethodGet, strings.Replace(long, "master", "720p", 1), "").want(200))
	folder := long[:strings.LastIndex(long, "/")+1]
	own := w.get(v.id)
	for _, address := range []string{watch, long} {
		w.send(http.MethodGet, address, "").want(200)
	}
	w.send(http.MethodGet, folder+media, "").want(302)

	w.setAccess(v, `{"privacy":"password","password":"p"}`).want(200)
	for _, address := range []string{watch, long, folder + media, strings.Replace(long, "master", "720p", 1), strings.Replace(watch, "master.m3u8", "storyboard.vtt", 1)} {
		if a := w.send(http.MethodGet, address, ""); a.status != 403 {
			t.Errorf("GET %s with access under the old rule returned %d, want 403", address, a.status)
		}
	}
	if p := w.send(http.MethodGet, v.path, "").want(200); strings.Contains(p.body, "Plans") || !strings.Contains(p.body, "<form") {
		t.Errorf("want a password form without the title, got this page:\n%s", p.body)
	}
	for path, status := range map[string]int{"/session": 403, "/status": 403, "/video.mp4": 404, "/thumbnail.jpg": 404} {
		w.send(http.MethodGet, v.path+path, "").want(status)
	}
	w.send(http.MethodGet, "/oembed?url="+url.QueryEscape(v.share), "").want(403)
	// The owner's URLs work under every rule.
	w.send(http.MethodGet, own["playbackUrl"].(string), "").want(200)
	w.send(http.MethodGet, own["downloadUrl"].(string), "").want(302)

	// After the password changes, a viewer who has unlocked the video must unlock it again.
	b := w.browser()
	b.guess(v, "p").want(303)
	b.send(http.MethodGet, v.path+"/session", "").want(200)
	w.setAccess(v, `{"privacy":"password","password":"q"}`).want(200)
	b.send(http.MethodGet, v.path+"/session", "").want(403)
	w.setAccess(v, `{"privacy":"public"}`).want(200)
	w.send(http.MethodGet, v.path+"/session", "").want(200)
}

// TestNoReplicaGivesWhatTheOldRuleGave switches a video between public and protected through one
// replica, while visitors send requests to both replicas.
func TestNoReplicaGivesWhatTheOldRuleGave(t *testing.T) {
	t.Parallel()
	one := newWorld(t)
	two := one.replica()
	v := one.ready(`{"privacy":"password","password":"p"}`)
	for round := range 5 {
		one.setAccess(v, `{"privacy":"public"}`).want(200)
		page := two.send(http.MethodGet, v.path, "").want(200)
		watch, long := playlistOf(page, "playlist"), playlistOf(page, "native")
		media := strings.Replace(long, "master", "720p", 1)
		file := long[:strings.LastIndex(long, "/")+1] + firstAddress(two.send(http.MethodGet, media, "").want(200))
		for _, w := range []*world{one, two} {
			for _, address := range []string{watch, long, media} {
				w.send(http.MethodGet, strings.TrimPrefix(address, one.base), "").want(200)
			}
		}
		changer, other := one, two
		if round%2 == 1 {
			changer, other = two, one
		}
		changer.setAccess(v, `{"privacy":"password","password":"p"}`).want(200)
		for _, w := range []*world{other, changer} {
			for _, address := range []string{watch, long, media, file} {
				if a := w.send(http.MethodGet, strings.TrimPrefix(address, one.base), ""); a.status != 403 {
					t.Errorf("round %d: GET %s with access under the old rule returned %d, want 403", round, address, a.status)
				}
			}
			if p := w.send(http.MethodGet, v.path, "").want(200); !strings.Contains(p.body, "<form") {
				t.Errorf("round %d: the page has no password form, want one", round)
			}
		}
	}
}

// firstAddress returns the first media URL of a playlist.
func firstAddress(playlist answer) string {
	for line := range strings.SplitSeq(playlist.body, "\n") {
		if line != "" && !strings.HasPrefix(line, "#") {
			return line
		}
	}
	playlist.t.Fatalf("no media URL in the playlist:\n%s", playlist.body)
	return ""
}

func TestPlayersThatCannotRenewGetAddressesOfOurs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.ready(`{}`)
	page := w.send(http.MethodGet, v.path, "").want(200)
	native := playlistOf(page, "native")
	folder := native[:strings.LastIndex(native, "/")+1]
	name := firstAddress(w.send(http.MethodGet, folder+"720p.m3u8", "").want(200))
	if strings.Contains(name, "/") || !strings.HasSuffix(name, ".mp4") {
		t.Fatalf("the first media URL is %q, want an .mp4 file name", name)
	}
	led := w.send(http.MethodGet, folder+name, "").want(302)
	to, err := url.Parse(led.header.Get("Location"))
	must(t, err)
	var seconds int
	_, err = fmt.Sscan(to.Query().Get("X-Goog-Expires"), &seconds)
	if err != nil || seconds > 900 || !strings.HasPrefix(to.String(), w.uploads) {
		t.Errorf("the media URL redirects to %s, want a storage URL signed for at most 900 s", to)
	}
	w.send(http.MethodGet, to.String(), "").want(200)
	for _, bad := range []string{"media~", "media~..~x.mp4", "media~1-1~720p.mp4", strings.Replace(name, "720p", "download", 1), "media~captions~en.mp4", strings.Replace(name, "~", "~..~", 1)} {
		w.send(http.MethodGet, folder+url.PathEscape(bad), "").want(404)
	}
	// Every signed URL on a page or in a playlist expires within 15 minutes.
	for _, address := range w.send(http.MethodGet, v.path+"/session", "").want(200).json()["media"].([]any) {
		u, err := url.Parse(address.(string))
		must(t, err)
		if _, err := fmt.Sscan(u.Query().Get("X-Goog-Expires"), &seconds); err != nil || seconds > 900 {
			t.Errorf("a URL is signed for %d s, want at most 900", seconds)
		}
	}
}

func TestOnlyNamesThatPlaylistsGaveLeadToMedia(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.create(`{}`)
	w.put(v, "a film")
	w.get(v.id)
	first, err := w.jobs.Claim(t.Context(), w.job(v.id).ID, "hand", time.Minute)
	must(t, err)
	must(t, w.jobs.Nack(t.Context(), tokenOf(first)))
	w.work(v.id, func(o *transcode.Outcome) { // published by the second attempt
		o.Renditions[0].Object = o.Prefix + "720p-source.mp4"
	})
	w.get(v.id)
	native := playlistOf(w.send(http.MethodGet, v.path, "").want(200), "native")
	folder := native[:strings.LastIndex(native, "/")+1]
	generation := strconv.FormatInt(first.Generation, 10)
	for list, want := range map[string]string{"720p": "720p-source", "360p": "360p", "audio": "audio"} {
		name := firstAddress(w.send(http.MethodGet, folder+list+".m3u8", "").want(200))
		if want = "media~" + generation + "-2~" + want + ".mp4"; name != want {
			t.Errorf("the media URL in %s is %q, want %q", list, name, want)
		}
		w.send(http.MethodGet, folder+name, "").want(302)
		// A player may still have a playlist from an earlier attempt.
		w.send(http.MethodGet, folder+strings.Replace(name, "-2~", "-1~", 1), "").want(302)
	}
	for _, bad := range []string{
		"-2~" + strings.Repeat("x", 15_000) + ".mp4", "-2~000001.mp4", "-2~1080p.mp4", "-2~parts~720p.mp4", "-2~download.mp4", "-2~720p.mp4.mp4", "-2~720p-source-source.mp4",
		"-3~720p.mp4", "-0~720p.mp4", "--1~720p.mp4", "-000002~720p.mp4", "-+2~720p.mp4",
	} {
		if a := w.send(http.MethodGet, folder+"media~"+generation+bad, ""); a.status != 404 {
			t.Errorf("GET of media name %.40s returned %d, want 404", bad, a.status)
		}
	}
	for _, bad := range []string{"media~0" + generation + "-2~720p.mp4", "media~parts-" + generation + "~0-2~720p.mp4"} {
		w.send(http.MethodGet, folder+bad, "").want(404)
	}
}

func TestAnExpiredVideoComesBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.ready(fmt.Sprintf(`{"privacy":"expiring","expiresAt":%d}`, time.Now().Add(time.Hour).UnixMilli()))
	w.clock.Advance(2 * time.Hour)
	w.send(http.MethodGet, v.path, "").want(410)
	own := w.get(v.id) // the owner can still watch and download the video
	w.send(http.MethodGet, own["playbackUrl"].(string), "").want(200)
	w.send(http.MethodGet, own["downloadUrl"].(string), "").want(302)
	got := w.api(http.MethodGet, "/"+v.id+"/access", "").want(200)
	w.setAccess(v, got.body).want(200) // a PUT may repeat the video's current expiry even if it has passed
	w.send(http.MethodGet, v.path, "").want(410)
	w.setAccess(v, fmt.Sprintf(`{"privacy":"expiring","expiresAt":%d}`, w.clock.Now().Add(time.Hour).UnixMilli())).want(200)
	w.send(http.MethodGet, v.path, "").want(200)
}

// TestARuleOlderThanARestoreSaysSo writes only the record of a restore because the test does not
// need an actual restore.
func TestARuleOlderThanARestoreSaysSo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v, other := w.ready(`{"privacy":"unlisted"}`), w.ready(`{"privacy":"unlisted"}`)
	w.clock.Advance(time.Hour)
	r, err := restored.Write(t.Context(), w.db, w.clock.Now().Add(-2*time.Hour))
	must(t, err)
	for _, call := range w.svc.WarmUp { // one of these calls reads the record, as at startup
		if call.To == "Firestore" {
			must(t, call.Do(t.Context()))
		}
	}
	shown := func(id string) any { return w.get(id)["accessRestoredAt"] }
	at := float64(r.RestoredAt.UnixMilli())
	if got := shown(v.id); got != at {
		t.Fatalf("accessRestoredAt = %v, want %v", got, at)
	}
	if page := w.send(http.MethodGet, v.path, "").want(200); strings.Contains(page.body, "accessRestoredAt") {
		t.Error("the public page contains accessRestoredAt, want it only in the API")
	}
	w.clock.Advance(time.Minute)
	w.api(http.MethodPatch, "/"+v.id, `{"title":"New"}`).want(200)
	if got := shown(v.id); got != at {
		t.Errorf("accessRestoredAt after a title change = %v, want %v", got, at)
	}
	rule := w.api(http.MethodGet, "/"+v.id+"/access", "").want(200).body
	confirmed := w.setAccess(v, rule).want(200)
	if got := shown(v.id); got != nil {
		t.Errorf("accessRestoredAt after the rule was confirmed = %v, want none", got)
	}
	if again := w.setAccess(v, rule).want(200); again.header.Get("ETag") != confirmed.header.Get("ETag") {
		t.Error("confirming the rule again changed the ETag, want no change")
	}
	w.setAccess(other, `{"privacy":"public"}`).want(200)
	if got := shown(other.id); got != nil {
		t.Errorf("accessRestoredAt after a new rule = %v, want none", got)
	}
	if got := shown(w.ready(`{"privacy":"unlisted"}`).id); got != nil {
		t.Errorf("accessRestoredAt for a video created after the restore = %v, want none", got)
	}
}

func TestDownloadsAndFramesAreTheOwnersToAllow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.ready(`{}`)
	w.setAccess(v, `{"privacy":"public","allowDownload":false,"embedOrigins":["https://www.example.com","https://docs.example.com:8443"]}`).want(200)
	w.send(http.MethodGet, v.path+"/video.mp4", "").want(404)
	if page := w.send(http.MethodGet, v.path, "").want(200); strings.Contains(page.body, "video.mp4") {
		t.Error("the page contains the file's URL, want none while downloads are off")
	}
	w.send(http.MethodGet, w.get(v.id)["downloadUrl"].(string), "").want(302)
	embed := w.send(http.MethodGet, "/embed/"+v.slug, "").want(200)
	if csp := embed.header.Get("Content-Security-Policy"); !strings.HasSuffix(csp, "frame-ancestors https://www.example.com https://docs.example.com:8443") {
		t.Errorf("Content-Security-Policy is %q, want it to end with frame-ancestors and both origins", csp)
	}
	w.setAccess(v, `{"privacy":"public"}`).want(200)
	w.send(http.MethodGet, v.path+"/video.mp4", "").want(302)
}

// The maximum number of languages is a validation rule, not a plan quota.
func TestTheFiftyFirstLanguageIsRefusedAsABrokenRule(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.create(`{}`)
	put := func(lang string) answer {
		return w.api(http.MethodPut, "/"+v.id+"/captions/"+lang, "WEBVTT\n", header("Content-Type", "text/vtt"))
	}
	for i := range 50 {
		put(fmt.Sprintf("x%c%c", 'a'+i/26, 'a'+i%26)).want(200)
	}
	a := put("de").want(400)
	if a.code() != "VALIDATION_ERROR" || !strings.Contains(a.body, `"out_of_range"`) || !strings.Contains(a.body, `"max":50`) {
		t.Error(a.body)
	}
	put("xaa").want(200) // replacing an existing track still works
}

func TestCaptionsAreListedAndDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.ready(`{}`)
	for _, lang := range []string{"pt-BR", "de", "tlh"} {
		w.api(http.MethodPut, "/"+v.id+"/captions/"+lang, "WEBVTT\n", header("Content-Type", "text/vtt")).want(200)
	}
	var list struct {
		Data []struct{ Language, Name string }
	}
	must(t, json.Unmarshal([]byte(w.api(http.MethodGet, "/"+v.id+"/captions", "").want(200).body), &list))
	var got []string
	for _, c := range list.Data {
		got = append(got, c.Language+" "+c.Name)
	}
	if diff := cmp.Diff([]string{"de Deutsch", "pt-BR português", "tlh tlh"}, got); diff != "" {
		t.Error(diff)
	}
	if page := w.send(http.MethodGet, v.path, ""); !strings.Contains(page.body, `label="Deutsch"`) {
		t.Error("the page has no caption label Deutsch, want the language's name in that language")
	}
	w.api(http.MethodDelete, "/"+v.id+"/captions/DE", "").want(204)
	w.api(http.MethodDelete, "/"+v.id+"/captions/de", "").want(404)
	w.api(http.MethodDelete, "/"+v.id+"/captions/not_a_tag", "").want(400)
	w.as("acc_b", http.MethodDelete, "/"+v.id+"/captions/tlh", "").want(404)
	w.as("acc_b", http.MethodGet, "/"+v.id+"/captions", "").want(404)
	if n := len(w.objects("videos/" + v.id + "/captions/")); n != 2 {
		t.Errorf("storage has %d caption files, want 2", n)
	}
}
