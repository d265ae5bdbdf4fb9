package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/go-rod/rod/lib/proto"
)

// The pictures of the README and the documentation, of an account as somebody
// would have it. `LINKREEL_PICTURES=../../docs/images go test ./tests/e2e -run
// TestPictures` takes them anew.
func TestPictures(t *testing.T) {
	dir := os.Getenv("LINKREEL_PICTURES")
	if dir == "" {
		t.Skip("LINKREEL_PICTURES names no folder for them")
	}
	op := operator(t)
	account := op.want(201, "POST", "/admin/v1/accounts", map[string]any{"name": "Harbour Museum", "plan": "business"}).str("id")
	c := as(t, plan)
	c.key = op.want(201, "POST", "/admin/v1/accounts/"+account+"/keys", map[string]any{"name": "Website", "scopes": []string{"links:read", "links:write", "videos:read", "videos:write", "domains:read", "domains:write"}}).str("key")
	var link, short string
	for _, l := range []struct{ slug, url, title, tag string }{
		{"guide", "https://museum.example/visit/guide", "Visitor guide", "visit"},
		{"school-" + account[4:8], "https://museum.example/schools", "Programme for schools", "education"},
		{"tides-" + account[4:8], "https://museum.example/exhibitions/tides", "Tides: the new exhibition", "exhibitions"},
		{"tickets-" + account[4:8], "https://tickets.example/harbour-museum", "Tickets", "visit"},
	} {
		made := c.want(201, "POST", "/api/v1/links", map[string]any{"url": l.url, "title": l.title, "tags": []string{l.tag, "2026"}, "slug": l.slug + strconv.Itoa(int(time.Now().UnixMilli()%1000))})
		link = made.str("id")
		short = c.want(200, "GET", "/api/v1/links/"+link, nil).str("shortUrl")
		for i := range 3 + len(l.title)%9 {
			visit(t, short, "User-Agent", []string{"Mozilla/5.0 (iPhone; CPU iPhone OS 18_0) Mobile", "Mozilla/5.0 (Windows NT 10.0) Chrome/140"}[i%2], "Referer", []string{"https://news.example/", "https://social.example/", ""}[i%3])
		}
	}
	made := c.want(201, "POST", "/api/v1/videos", map[string]any{"title": "A walk through the harbour", "tags": []string{"exhibitions"}})
	put(t, made.str("uploadUrl"), scenery(t, 12), "video/mp4")
	video := made.str("videoId")
	eventually(t, patience, "ready", func() bool { return c.want(200, "GET", "/api/v1/videos/"+video, nil).str("status") == "ready" })
	owner := op.want(201, "POST", "/admin/v1/accounts/"+account+"/sign-in-links", map[string]any{"name": "Ines Castro", "role": "owner"}).str("memberId")
	op.want(201, "POST", "/admin/v1/accounts/"+account+"/sign-in-links", map[string]any{"name": "Tomas Berg", "role": "member"})
	eventually(t, patience, "clicks show", func() bool {
		n, _ := c.want(200, "GET", "/api/v1/links/"+link, nil).json["clicks"].(float64)
		return n > 2
	})

	desktop, phone := look{width: 1280, height: 800}, look{width: 390, height: 780}
	dark := func(l look) look { l.dark = true; return l }
	for _, l := range []struct {
		look
		pages map[string]string // picture → page
	}{
		{desktop, map[string]string{"console-links": "/app/links", "console-link": "/app/links/" + link + "?days=7", "console-members": "/app/members"}},
		{dark(desktop), map[string]string{"console-video-dark": "/app/videos/" + video, "console-activity-dark": "/app/activity"}},
		{phone, map[string]string{"console-home-phone": "/app", "console-videos-phone": "/app/videos"}},
		{dark(phone), map[string]string{"console-record-phone-dark": "/app/record", "console-link-phone-dark": "/app/links/" + link, "share-page-phone-dark": made.str("shareUrl")}},
	} {
		v := visitor(t, l.look)
		v.open(op.want(201, "POST", "/admin/v1/accounts/"+account+"/sign-in-links", map[string]any{"memberId": owner}).str("url"))
		v.Timeout(patience).MustElementR("button", "Sign in").MustClick()
		v.Timeout(patience).MustElementR("h1", "Shorten a link")
		for name, path := range l.pages {
			if path[0] == '/' {
				path = stack.BaseURL + path
			}
			v.open(path)
			page := v.Timeout(patience)
			page.MustWaitLoad().MustWaitIdle()
			picture, err := page.Screenshot(false, &proto.PageCaptureScreenshot{Format: proto.PageCaptureScreenshotFormatPng})
			check(t, err)
			check(t, os.WriteFile(filepath.Join(dir, name+".png"), picture, 0o600))
		}
		v.clean()
	}
}

// The list of an account with a hundred thousand links: its first byte within
// 50 ms at the median.
func TestFirstByteOfALongList(t *testing.T) {
	if !full(t) {
		t.Skip("makes 100,000 links; LINKREEL_FULL=1 runs it")
	}
	account := operator(t).want(201, "POST", "/admin/v1/accounts", map[string]any{"name": "Many", "plan": "enterprise"}).str("id")
	c := as(t, plan)
	c.http = &http.Client{Timeout: 30 * time.Second}
	c.key = operator(t).want(201, "POST", "/admin/v1/accounts/"+account+"/keys", map[string]any{"name": "many"}).str("key")
	const many = 100_000
	for made := 0; made < many; {
		items := make([]map[string]any, 100)
		for i := range items {
			items[i] = map[string]any{"url": fmt.Sprintf("https://example.com/%d", made+i), "title": fmt.Sprintf("Page %d", made+i)}
		}
		switch a := c.do("POST", "/api/v1/links/bulk", map[string]any{"urls": items}); a.status {
		case 200, 201, 207:
			made += len(items)
		case 429:
			wait, _ := strconv.Atoi(a.header.Get("Retry-After"))
			time.Sleep(time.Duration(max(1, wait)) * time.Second)
		default:
			t.Fatalf("bulk: %d %s", a.status, a.raw)
		}
	}
	who := enter(t, newPlainBrowser(t), account, "Reader", "owner")
	var took []time.Duration
	for range 101 {
		began := time.Now()
		resp, err := who.http.Get(stack.BaseURL + "/app/links")
		check(t, err)
		took = append(took, time.Since(began)) // the headers are here
		_ = resp.Body.Close()
	}
	slices.Sort(took)
	t.Logf("first byte of /app/links with %d links: median %v, p95 %v", many, took[50], took[96])
	if took[50] > 50*time.Millisecond {
		t.Errorf("median %v, want 50 ms", took[50])
	}
}
