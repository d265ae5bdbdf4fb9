package videos_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestFromUploadToReady(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.api(http.MethodPost, "", `{"title":"Fjord <1>"}`).want(201)
	m := a.json()
	id, slug := m["videoId"].(string), m["slug"].(string)
	if m["shareUrl"] != w.base+"/v/"+slug || a.header.Get("Location") != "/api/v1/videos/"+id || m["resumableUploadUrl"] == nil {
		t.Errorf("create returned %v with Location %q, want the share URL, a resumable upload URL and the video's Location", m, a.header.Get("Location"))
	}

	got := w.get(id)
	if diff := cmp.Diff(any(got), m["video"]); diff != "" || m["id"] != id {
		t.Errorf("create returned id %v and a record that differs from GET (-get +create):\n%s", m["id"], diff)
	}
	for k, want := range map[string]any{
		"_id": id, "id": id, "title": "Fjord <1>", "description": nil, "slug": slug, "status": "uploading", "privacy": "public",
		"shareUrl": m["shareUrl"], "uploadUrl": m["uploadUrl"], "expiresAt": nil, "progress": 0.0, "duration": nil, "playbackUrl": nil, "posterUrl": nil,
	} {
		if diff := cmp.Diff(want, got[k]); diff != "" {
			t.Errorf("field %s before the upload differs (-want +got):\n%s", k, diff)
		}
	}

	w.send(http.MethodPut, m["uploadUrl"].(string), "a film").want(200)
	w.clock.Advance(2 * time.Second) // storage is checked at most once a second
	if got = w.get(id); got["status"] != "processing" || got["uploadUrl"] != nil {
		t.Fatalf("got %v after the upload, want status processing and no upload URL", got)
	}
	w.work(id, nil)
	got = w.get(id)
	for k, want := range map[string]any{
		"status": "ready", "progress": 100.0, "duration": 10.5, "width": 1280.0, "height": 720.0, "views": 0.0, "uploadUrl": nil, "error": nil,
		"posterUrl": w.base + "/v/" + slug + "/thumbnail.jpg",
	} {
		if diff := cmp.Diff(want, got[k]); diff != "" {
			t.Errorf("field %s of the ready video differs (-want +got):\n%s", k, diff)
		}
	}
	if patched := w.api(http.MethodPatch, "/"+id, `{"title":"Fjord <1>"}`).want(200).json(); cmp.Diff(any(got), patched["video"], ignoreTokens) != "" {
		t.Errorf("PATCH returned a record that differs from GET (-get +patch):\n%s", cmp.Diff(any(got), patched["video"], ignoreTokens))
	}
	if n := len(got["renditions"].([]any)); n != 2 {
		t.Errorf("got %d renditions, want 2", n)
	}
	if p := w.send(http.MethodGet, got["posterUrl"].(string), "").want(200); p.header.Get("Content-Type") != "image/jpeg" || !strings.HasPrefix(p.body, "bytes of ") {
		t.Errorf("got a poster with header %v and body %q, want a JPEG from storage", p.header, p.body)
	}
	download := w.send(http.MethodGet, got["downloadUrl"].(string), "").want(302)
	if d := w.send(http.MethodGet, download.header.Get("Location"), "").want(200); !strings.Contains(d.header.Get("Content-Disposition"), `filename="Fjord-1.mp4"`) {
		t.Errorf("the download's Content-Disposition is %q, want the file name Fjord-1.mp4", d.header.Get("Content-Disposition"))
	}

	w.send(http.MethodPut, m["uploadUrl"].(string), "another film").want(200)
	w.clock.Advance(3 * time.Second)
	if again := w.get(id); cmp.Diff(got, again, ignoreTokens) != "" {
		t.Errorf("an upload to a ready video changed it (-before +after):\n%s", cmp.Diff(got, again, ignoreTokens))
	}
}

// ignoreTokens ignores the fields that differ in every response.
var ignoreTokens = cmpopts.IgnoreMapEntries(func(k string, _ any) bool { return k == "playbackUrl" || k == "downloadUrl" })

func TestListIsNewestFirstAndOnlyMine(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var want []string
	for i := range 4 {
		want = append([]string{w.create(fmt.Sprintf(`{"title":"%d"}`, i)).id}, want...)
	}
	w.as("acc_b", http.MethodPost, "", `{}`).want(201)
	body := w.api(http.MethodGet, "?limit=3", "").want(200).json()
	var got []string
	for _, item := range body["data"].([]any) {
		m := item.(map[string]any)
		got = append(got, m["_id"].(string))
		for _, field := range []string{"_id", "id", "title", "slug", "status", "privacy", "shareUrl", "createdAt", "expiresAt", "duration", "progress", "tags", "externalId"} {
			if _, ok := m[field]; !ok || len(m) != 13 {
				t.Errorf("a list item has the fields %v, want exactly the documented fields, including %s", m, field)
			}
		}
	}
	if diff := cmp.Diff(want[:3], got); diff != "" || len(body) != 1 {
		t.Errorf("list returned %v, want one page with only the newest videos (-want +got):\n%s", body, diff)
	}
	for _, bad := range []string{"0", "101", "x", "1.5", ""} {
		if a := w.api(http.MethodGet, "?limit="+bad, "").want(400); a.code() != "VALIDATION_ERROR" {
			t.Errorf("GET with limit=%s returned %s, want VALIDATION_ERROR", bad, a.body)
		}
	}
}

func TestCreateRefusesEveryBrokenRuleAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	soon := time.Now().Add(time.Hour).UnixMilli()
	for name, tc := range map[string]struct {
		body string
		want []string
	}{
		"empty object":                      {`{}`, nil},
		"unknown fields":                    {`{"color":"red"}`, nil},
		"integer with a decimal point":      {fmt.Sprintf(`{"privacy":"expiring","expiresAt":%d.0}`, soon), nil},
		"long title, no password":           {`{"title":"` + strings.Repeat("x", 501) + `","privacy":"password"}`, []string{"title too_long", "password required"}},
		"wrong types":                       {`{"title":1,"privacy":true,"expiresAt":"soon"}`, []string{"expiresAt invalid_format", "privacy invalid_type", "title invalid_type"}},
		"unknown privacy":                   {`{"privacy":"secret","password":"x"}`, []string{"privacy invalid_value"}},
		"password without privacy password": {`{"password":"x"}`, []string{"password not_allowed"}},
		"expiry without privacy expiring":   {fmt.Sprintf(`{"expiresAt":%d}`, soon), []string{"expiresAt not_allowed"}},
		"expiry in the past":                {`{"privacy":"expiring","expiresAt":1000}`, []string{"expiresAt out_of_range"}},
		"ISO time with a time zone":         {`{"privacy":"expiring","expiresAt":"2099-04-01T02:00:00+02:00"}`, nil},
		"ISO time without a time zone":      {`{"privacy":"expiring","expiresAt":"2099-04-01T00:00:00"}`, []string{"expiresAt invalid_format"}},
		"date without a time":               {`{"privacy":"expiring","expiresAt":"2099-04-01"}`, []string{"expiresAt invalid_format"}},
		"ISO time in the past":              {`{"privacy":"expiring","expiresAt":"2001-04-01T00:00:00Z"}`, []string{"expiresAt out_of_range"}},
		"fractional milliseconds":           {fmt.Sprintf(`{"privacy":"expiring","expiresAt":%d.5}`, soon), []string{"expiresAt invalid_type"}},
		"expiry too large for an integer":   {`{"privacy":"expiring","expiresAt":1e300}`, []string{"expiresAt out_of_range"}},
		"empty password":                    {`{"privacy":"password","password":""}`, []string{"password too_short"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := w.api(http.MethodPost, "", tc.body)
			if tc.want == nil {
				a.want(201)
				return
			}
			a.want(400)
			var got []string
			for _, d := range a.json()["error"].(map[string]any)["details"].([]any) {
				got = append(got, d.(map[string]any)["field"].(string)+" "+d.(map[string]any)["code"].(string))
			}
			if diff := cmp.Diff(tc.want, got, cmpopts.SortSlices(func(a, b string) bool { return a < b })); diff != "" {
				t.Errorf("errors in the response (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPlansDecideWhoWrites(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.as("acc_free", http.MethodGet, "", "").want(200)
	for _, call := range [][2]string{{http.MethodPost, ""}, {http.MethodPatch, "/x"}, {http.MethodDelete, "/x"}, {http.MethodPut, "/x/captions/en"}} {
		if a := w.as("acc_free", call[0], call[1], `{}`).want(403); a.code() != "PLAN_REQUIRED" {
			t.Errorf("%v on the free plan returned %s, want PLAN_REQUIRED", call, a.body)
		}
	}
}

func TestForeignAndMissingAnswerAlike(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.create(`{}`)
	for _, call := range []struct{ method, tail, body string }{
		{http.MethodGet, "", ""}, {http.MethodPatch, "", `{"title":5}`}, {http.MethodDelete, "", ""}, {http.MethodPut, "/captions/en", "not WebVTT"},
	} {
		var bodies []string
		for _, id := range []string{v.id, "vid_0000000000000000000000", "a%2fb", "a/b"[:1], strings.Repeat("x", 300)} {
			a := w.as("acc_b", call.method, "/"+id+call.tail, call.body).want(404)
			bodies = append(bodies, strings.ReplaceAll(a.body, a.header.Get("X-Request-Id"), ""))
		}
		for _, b := range bodies {
			if b != bodies[0] {
				t.Errorf("%s of another account's video and of a missing video returned %q and %q, want identical bodies", call.method, bodies[0], b)
			}
		}
	}
	if w.get(v.id)["title"] != "" {
		t.Error("the title changed after a PATCH by another account, want no change")
	}
}

func TestPatch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.create(`{"title":"a"}`)
	tag := w.api(http.MethodGet, "/"+v.id, "").header.Get("ETag")
	if a := w.api(http.MethodGet, "/"+v.id, "", header("If-None-Match", tag)).want(304); a.body != "" || a.header.Get("ETag") != tag {
		t.Errorf("the 304 response has header %v and body %q, want the same ETag and no body", a.header, a.body)
	}

	a := w.api(http.MethodPatch, "/"+v.id, `{"description":"d","privacy":"password","slug":"x","password":"p"}`).want(200)
	if diff := cmp.Diff(map[string]any{"success": true, "video": any(w.get(v.id)), "ignoredFields": []any{"privacy", "slug", "password"}}, a.json()); diff != "" {
		t.Error(diff)
	}
	if got := w.get(v.id); got["title"] != "a" || got["description"] != "d" || got["privacy"] != "public" {
		t.Errorf("got %v after the patch, want title a, description d and privacy public", got)
	}
	if a := w.api(http.MethodPatch, "/"+v.id, `{"title":"b"}`, header("If-Match", tag)).want(412); a.code() != "PRECONDITION_FAILED" {
		t.Error(a.body)
	}
	w.api(http.MethodDelete, "/"+v.id, "", header("If-Match", tag)).want(412)
	tag = w.api(http.MethodGet, "/"+v.id, "").header.Get("ETag")
	a = w.api(http.MethodPatch, "/"+v.id, `{"title":null,"description":null}`, header("If-Match", tag)).want(200)
	if diff := cmp.Diff(map[string]any{"success": true, "video": any(w.get(v.id))}, a.json()); diff != "" {
		t.Error(diff)
	}
	if got := w.get(v.id); got["title"] != "" || got["description"] != nil {
		t.Errorf("got %v after clearing both fields, want no title and no description", got)
	}
	w.api(http.MethodPatch, "/"+v.id, `{"title":"`+strings.Repeat("x", 501)+`","description":"`+strings.Repeat("x", 2001)+`"}`).want(400)
}

func TestNullOnCreateIsTheSameAsAbsent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.api(http.MethodPost, "", `{"title":null,"privacy":null,"password":null,"expiresAt":null,"tags":null,"externalId":null}`).want(201).json()
	if a["ignoredFields"] != nil || a["externalId"] != nil || len(a["tags"].([]any)) != 0 {
		t.Errorf("create with null fields returned %v, want no ignored fields, no externalId and no tags", a)
	}
	id := a["videoId"].(string)
	if v := w.get(id); v["privacy"] != "public" || v["expiresAt"] != nil {
		t.Errorf("got %v, want privacy public and no expiry", v)
	}
	w.api(http.MethodPut, "/"+id+"/access", `{"privacy":"public","password":null,"expiresAt":null,"allowDownload":null,"embedOrigins":null}`).want(200)
	if a := w.api(http.MethodPost, "", `{"privacy":"hidden"}`).want(400); strings.Contains(a.body, "nil") {
		t.Errorf("the error message contains nil, want it to list only values that a caller can send: %s", a.body)
	}
}

func TestARepeatedCreateMakesOneVideo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key := header("Idempotency-Key", "one")
	first := w.api(http.MethodPost, "", `{"title":"x"}`, key).want(201)
	again := w.api(http.MethodPost, "", `{"title":"x"}`, key).want(201)
	if first.body != again.body || again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("the first create returned %s and the repeated create %s, want identical bodies and Idempotent-Replayed", first.body, again.body)
	}
	if n := len(w.api(http.MethodGet, "", "").json()["data"].([]any)); n != 1 {
		t.Errorf("the list has %d videos, want 1", n)
	}
}

func TestTheUploadAddressIsRenewedInItsLastHour(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.create(`{}`)
	w.clock.Advance(22 * time.Hour)
	if w.get(v.id)["uploadUrl"] != v.upload {
		t.Error("the upload URL was renewed more than an hour before its expiry, want it unchanged")
	}
	w.clock.Advance(90 * time.Minute)
	before := w.api(http.MethodGet, "/"+v.id, "").want(200)
	fresh := before.json()
	if fresh["uploadUrl"] == v.upload || fresh["uploadUrlExpiresAt"].(float64) < float64(w.clock.Now().Add(23*time.Hour).UnixMilli()) {
		t.Errorf("the upload URL expires at %v, want a new URL that is valid for about 24 hours", fresh["uploadUrlExpiresAt"])
	}
	if again := w.api(http.MethodGet, "/"+v.id, ""); again.json()["uploadUrl"] != fresh["uploadUrl"] || again.header.Get("ETag") != before.header.Get("ETag") {
		t.Error("the next GET returned a different upload URL or ETag, want both unchanged")
	}
	w.clock.Advance(time.Hour)
	w.send(http.MethodPut, v.upload, "x").want(400) // the old URL has expired
	w.send(http.MethodPut, fresh["uploadUrl"].(string), "a film").want(200)
	if s := w.get(v.id)["status"]; s != "processing" {
		t.Errorf("status after an upload to the new URL = %v, want processing", s)
	}
}

func TestAChangeOfAWaitingVideoRenewsItsUploadAddress(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.create(`{}`)
	w.clock.Advance(25 * time.Hour)
	got := w.api(http.MethodPatch, "/"+v.id, `{"title":"Later"}`).want(200).json()["video"].(map[string]any)
	if got["title"] != "Later" || got["uploadUrl"] == v.upload {
		t.Errorf("PATCH returned %v, want the new title and a renewed upload URL", got)
	}
	w.send(http.MethodPut, got["uploadUrl"].(string), "a film").want(200)
}

func TestCaptions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	v := w.ready(`{}`)
	vtt := header("Content-Type", "text/vtt")
	put := func(lang, body string, s ...setting) answer {
		return w.api(http.MethodPut, "/"+v.id+"/captions/"+lang, body, append([]setting{vtt}, s...)...)
	}
	const file = "WEBVTT\n\n00:00.000 --> 00:02.000\nHello\n"
	if got := put("pt-br", file).want(200).json(); got["language"] != "pt-BR" || got["success"] != true {
		t.Errorf("PUT of captions returned %v, want language pt-BR and success", got)
	}
	put("de", "\ufeffWEBVTT - Titel\n").want(200)
	put("de", file+"\n").want(200)
	if diff := cmp.Diff([]any{"de", "pt-BR"}, w.get(v.id)["captions"]); diff != "" {
		t.Error(diff)
	}
	if n := len(w.objects("videos/" + v.id + "/captions/")); n != 2 {
		t.Errorf("storage has %d caption files, want 2", n)
	}
	for name, a := range map[string]answer{
		"415": put("en", file, header("Content-Type", "application/json")),
		"400": put("en", "1\n00:00 --> 00:02\nnot WebVTT"),
	} {
		if fmt.Sprint(a.status) != name {
			t.Errorf("PUT of captions returned %d, want %s: %s", a.status, name, a.body)
		}
	}
	put("not_a_tag!", file).want(400)
	put("en", "WEBVTT\n\xff").want(400)

	page := w.send(http.MethodGet, v.path, "").want(200)
	if !strings.Contains(page.body, `srclang="pt-BR"`) {
		t.Error("the page has no caption track in pt-BR, want one")
	}
	playlist := w.get(v.id)["playbackUrl"].(string)
	folder := playlist[:strings.LastIndex(playlist, "/")+1]
	if m := w.send(http.MethodGet, playlist, "").want(200); !strings.Contains(m.body, `LANGUAGE="pt-BR"`) {
		t.Errorf("the master playlist has no captions in pt-BR:\n%s", m.body)
	}
	if c := w.send(http.MethodGet, folder+"captions-pt-BR.vtt", "").want(200); c.body != file || c.header.Get("Content-Type") != "text/vtt; charset=utf-8" {
		t.Errorf("got the captions %q with Content-Type %q, want the uploaded file as WebVTT", c.body, c.header.Get("Content-Type"))
	}
	w.send(http.MethodGet, folder+"captions-pt-BR.m3u8", "").want(200)
	w.send(http.MethodGet, folder+"captions-fr.vtt", "").want(404)
}
