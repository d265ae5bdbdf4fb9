package link

import (
	"strings"

	"github.com/mileusna/useragent"
)

// Device is the kind of device a visitor uses, according to the user agent.
type Device byte

// The kinds of device.
const (
	OtherDevice Device = iota
	Desktop
	Mobile
	Tablet
)

var deviceNames = [...]string{"other", "desktop", "mobile", "tablet"}

func (d Device) String() string {
	if int(d) < len(deviceNames) {
		return deviceNames[d]
	}
	return deviceNames[OtherDevice]
}

// ParseDevice parses a rule's device. Statistics call a phone "mobile" and rules call it
// "phone". ParseDevice accepts both words.
func ParseDevice(name string) (Device, bool) {
	switch name {
	case "desktop":
		return Desktop, true
	case "phone", "mobile":
		return Mobile, true
	case "tablet":
		return Tablet, true
	}
	return OtherDevice, false
}

// RuleName returns the device's name in rules.
func (d Device) RuleName() string {
	if d == Mobile {
		return "phone"
	}
	return d.String()
}

// System is a visitor's operating system, according to the user agent. The zero value means
// unknown. OtherSystem means a known system that is not listed here.
type System byte

// The operating systems.
const (
	UnknownSystem System = iota
	Windows
	MacOS
	Linux
	IOS
	Android
	ChromeOS
	OtherSystem
)

// Systems maps the names of operating systems in rules to their values.
var Systems = map[string]System{
	"windows": Windows, "macos": MacOS, "linux": Linux, "ios": IOS, "android": Android, "chromeos": ChromeOS, "other": OtherSystem,
}

func (s System) String() string {
	for name, system := range Systems {
		if system == s {
			return name
		}
	}
	return ""
}

// Agent describes the sender of a User-Agent header.
type Agent struct {
	Device  Device
	System  System
	Robot   bool // the agent calls itself a bot, crawler or spider; its visits are not counted
	Crawler bool // the agent fetches pages to show previews of them
}

// crawlers lists lower-case substrings found in the user agents of programs that fetch a page
// because somebody posted its URL. Programs that merely look automated are not listed, and their
// visits are counted.
var crawlers = []string{
	"facebookexternalhit", "facebookcatalog", "facebot", "meta-externalagent", "meta-externalfetcher",
	"twitterbot", "slackbot", "slack-imgproxy", "linkedinbot", "whatsapp/", "discordbot", "telegrambot",
	"pinterestbot", "pinterest/0.", "redditbot", "skypeuripreview", "microsoftpreview",
	"mastodon/", "(mastodon", "bluesky cardyb", "pleroma", "akkoma", "misskey/", "gotosocial", "friendica", "lemmy/", "threads.net",
	"tumblr/", "vkshare", "viber/", "line-poker", "kakaotalk-scrap", "snap url preview", "embedly", "iframely",
	"zoombot", "mattermost-bot", "mattermost/", "rocket.chat", "synapse (bot", "nextcloud server crawler",
	"google-pagerenderer", "flipboardproxy", "xing-contenttabreceiver", "bitlybot", "odklbot", "signal-desktop",
}

// maxAgent is how many bytes of a user agent are parsed. Only apps and attackers send more. Apps
// name the device and the system at the beginning.
const maxAgent = 512

// IsRobot reports whether a User-Agent header calls its sender a bot, crawler or spider. It is much
// cheaper than [ReadAgent], which also recognises some robots that do not identify themselves as
// such.
func IsRobot(userAgent []byte) bool {
	for i, c := range userAgent[:min(len(userAgent), maxAgent)] {
		if robotLetters[c] && isRobotAt(userAgent, i) {
			return true
		}
	}
	return false
}

// robotLetters are the first letters of the words that isRobotAt looks for.
var robotLetters = [256]bool{'b': true, 'B': true, 'c': true, 'C': true, 's': true, 'S': true}

func isRobotAt(userAgent []byte, i int) bool {
	rest := userAgent[i:]
	switch rest[0] | 0x20 {
	case 'b':
		return beginsWith(rest, "bot") && !(i >= 2 && beginsWith(userAgent[i-2:], "cubot")) // CUBOT is a brand of phones
	case 'c':
		return beginsWith(rest, "crawl")
	}
	return beginsWith(rest, "spider") || beginsWith(rest, "slurp")
}

// beginsWith reports whether s begins with word, ignoring the case of s. word must be in lower
// case.
func beginsWith(s []byte, word string) bool {
	if len(s) < len(word) {
		return false
	}
	for i := range len(word) {
		if s[i]|0x20 != word[i] {
			return false
		}
	}
	return true
}

// ReadAgent classifies a User-Agent header.
func ReadAgent(userAgent string) Agent {
	if userAgent == "" {
		return Agent{}
	}
	userAgent = userAgent[:min(len(userAgent), maxAgent)]
	lower := strings.ToLower(userAgent)
	if containsAny(lower, crawlers) {
		return Agent{Robot: true, Crawler: true}
	}
	ua := useragent.Parse(userAgent)
	a := Agent{System: systemOf(ua.OS), Robot: IsRobot([]byte(lower))}
	switch {
	// Check for tablets first because an iPad's user agent also contains "Mobile". On Android, only
	// phones send it.
	case ua.Tablet, ua.OS == useragent.Android && !strings.Contains(lower, "mobile"):
		a.Device = Tablet
	case ua.Mobile, a.System == IOS, a.System == Android:
		a.Device = Mobile
	case ua.Desktop, strings.Contains(lower, "x11"):
		a.Device = Desktop
	}
	return a
}

func systemOf(name string) System {
	switch name {
	case useragent.Windows:
		return Windows
	case useragent.MacOS:
		return MacOS
	case useragent.Linux:
		return Linux
	case useragent.IOS:
		return IOS
	case useragent.Android:
		return Android
	case useragent.ChromeOS:
		return ChromeOS
	}
	return OtherSystem
}

func containsAny(s string, parts []string) bool {
	for _, p := range parts {
		if strings.Contains(s, p) {
			return true
		}
	}
	return false
}
