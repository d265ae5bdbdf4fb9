package link

import (
	"slices"
	"strings"

	"golang.org/x/text/language"
)

// Device is the kind of a visitor's device, as far as the user agent reveals it.
type Device byte

// The kinds of device.
const (
	OtherDevice Device = iota
	Desktop
	Mobile
	Tablet
	Bot // any program that calls itself a bot; its visits count like all others
)

var deviceNames = [...]string{"other", "desktop", "mobile", "tablet", "bot"}

func (d Device) String() string {
	if int(d) < len(deviceNames) {
		return deviceNames[d]
	}
	return deviceNames[OtherDevice]
}

// Agent describes the sender of a User-Agent header.
type Agent struct {
	Device  Device
	Crawler bool // fetches a page to show a preview of it; its visits never count
}

// crawlers are parts of user agents, in lower case, of programs that fetch a page because
// somebody posted its address. Programs that merely look automated are not listed: their
// visits count.
var crawlers = []string{
	"facebookexternalhit", "facebookcatalog", "facebot", "meta-externalagent", "meta-externalfetcher",
	"twitterbot", "slackbot", "slack-imgproxy", "linkedinbot", "whatsapp/", "discordbot", "telegrambot",
	"pinterestbot", "pinterest/0.", "redditbot", "skypeuripreview", "microsoftpreview",
	"mastodon/", "(mastodon", "bluesky cardyb", "pleroma", "akkoma", "misskey/", "gotosocial", "friendica", "lemmy/", "threads.net",
	"tumblr/", "vkshare", "viber/", "line-poker", "kakaotalk-scrap", "snap url preview", "embedly", "iframely",
	"zoombot", "mattermost-bot", "mattermost/", "rocket.chat", "synapse (bot", "nextcloud server crawler",
	"google-pagerenderer", "flipboardproxy", "xing-contenttabreceiver", "bitlybot", "odklbot", "signal-desktop",
}

var bots = []string{
	"bot", "crawl", "spider", "slurp", "curl/", "wget/", "python", "go-http-client", "okhttp", "axios", "java/", "libwww", "headless", "node",
}

// ReadAgent classifies a User-Agent header.
func ReadAgent(userAgent string) Agent {
	ua := strings.ToLower(userAgent)
	// Check for crawlers first: many of their names also contain a word that bots use.
	if containsAny(ua, crawlers) {
		return Agent{Bot, true}
	}
	switch {
	case ua == "":
		return Agent{}
	case containsAny(ua, bots):
		return Agent{Device: Bot}
	// Tablets come before phones, and phones before desktops: an iPad also says "Mobile", and an
	// Android phone also says "Linux".
	case strings.Contains(ua, "ipad"), strings.Contains(ua, "tablet"), strings.Contains(ua, "android") && !strings.Contains(ua, "mobile"):
		return Agent{Device: Tablet}
	case containsAny(ua, []string{"mobi", "iphone", "ipod"}):
		return Agent{Device: Mobile}
	case containsAny(ua, []string{"windows", "macintosh", "x11", "cros", "linux"}):
		return Agent{Device: Desktop}
	}
	return Agent{}
}

func containsAny(s string, parts []string) bool {
	for _, p := range parts {
		if strings.Contains(s, p) {
			return true
		}
	}
	return false
}

// IsPrefetch reports whether a request's Sec-Purpose, Purpose, X-Purpose or
// X-Moz header says that the page is only loaded in advance.
func IsPrefetch(purpose string) bool {
	p := strings.ToLower(purpose)
	return strings.Contains(p, "prefetch") || strings.Contains(p, "prerender") || p == "preview"
}

// maxReferrer is the maximum length of a host that is kept. DNS has the same limit.
const maxReferrer = 253

// ReferrerHost returns the host of a Referer header. It returns "" if the header is not
// worth counting: it has another scheme or no plain host, or its host is one of own.
func ReferrerHost(referer string, own Hosts) string {
	hostport, _ := authority(referer)
	// Visitors choose this text, and it ends up in statistics, so only the characters of host names
	// pass. Trim's result is not empty if there is any other character, even in the middle.
	host := ParseHost(hostport)
	if host.Name == "" || len(host.Name) > maxReferrer || strings.Trim(host.Name, "abcdefghijklmnopqrstuvwxyz0123456789.-_") != "" {
		return ""
	}
	if slices.Contains(own, host) {
		return ""
	}
	return host.Name
}

// Country returns the two-letter code of a country or territory in upper case, "" for
// anything else. A proxy that passes on the visitor's own header lets visitors choose the
// code. With some 285 known codes a day's statistics still fit into one commit; with
// all 676 pairs of letters they would not.
func Country(code string) string {
	if len(code) != 2 {
		return ""
	}
	c := strings.ToUpper(code)
	if c[0] < 'A' || c[0] > 'Z' || c[1] < 'A' || c[1] > 'Z' || !countries[c[0]-'A'][c[1]-'A'] {
		return ""
	}
	return c
}

// countries records for each pair of letters whether Unicode's data has a country or
// territory with that code. Former ones are included.
var countries = func() (known [26][26]bool) {
	for a := range known {
		for b := range known[a] {
			code := string([]byte{byte('A' + a), byte('A' + b)})
			r, err := language.ParseRegion(code)
			known[a][b] = err == nil && r.IsCountry() && r.String() == code
		}
	}
	return known
}()
