package link

import "testing"

func TestReadAgent(t *testing.T) {
	t.Parallel()
	preview, robot := Agent{Robot: true, Crawler: true}, func(d Device, s System) Agent { return Agent{Device: d, System: s, Robot: true} }
	for ua, want := range map[string]Agent{
		"":                       {},
		"curl/8.5.0":             {System: OtherSystem},
		"python-requests/2.31.0": {System: OtherSystem},
		"okhttp/4.12.0":          {System: OtherSystem},
		"Go-http-client/1.1":     {System: OtherSystem},
		"SomeClient/1":           {System: OtherSystem},
		"iPhone":                 {Mobile, IOS, false, false},
		"AhrefsBot/7.0":          robot(OtherDevice, OtherSystem),
		"Baiduspider/2.0":        robot(OtherDevice, OtherSystem),
		"SomeCrawler 1":          robot(OtherDevice, OtherSystem),
		"facebookexternalhit/1.1 (+http://www.facebook.com/externalhit_uatext.php)": preview,
		"Twitterbot/1.0": preview,
		"Slackbot-LinkExpanding 1.0 (+https://api.slack.com/robots)":                            preview,
		"LinkedInBot/1.0 (compatible; Mozilla/5.0; Apache-HttpClient +http://www.linkedin.com)": preview,
		"WhatsApp/2.23.20.0 A": preview,
		"Mozilla/5.0 (compatible; Discordbot/2.0; +https://discordapp.com)":                                    preview,
		"TelegramBot (like TwitterBot)":                                                                        preview,
		"Mozilla/5.0 (compatible; Pinterestbot/1.0; +http://www.pinterest.com/bot.html)":                       preview,
		"Mozilla/5.0 (Macintosh) AppleWebKit/537.36 Chrome/81 Safari/537.36 redditbot/1.0":                     preview,
		"Mozilla/5.0 (Windows NT 6.1; WOW64) SkypeUriPreview Preview/0.5":                                      preview,
		"http.rb/5.1.1 (Mastodon/4.2.1; +https://mastodon.social/)":                                            preview,
		"Mozilla/5.0 (compatible; Bluesky Cardyb/1.1; +mailto:support@bsky.app)":                               preview,
		"Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)":                             robot(OtherDevice, OtherSystem),
		"Mozilla/5.0 (Linux; Android 13; CUBOT X18) AppleWebKit/537.36 Chrome/120 Mobile Safari/537.36":        {Mobile, Android, false, false},
		"Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) AppleWebKit/605 Mobile/15E148 [Pinterest/iOS]": {Mobile, IOS, false, false},
		"Mozilla/5.0 (Linux; Android 14; Pixel 8) AppleWebKit/537.36 Chrome/120 Mobile Safari/537.36":          {Mobile, Android, false, false},
		"Mozilla/5.0 (Linux; Android 14; SM-X700) AppleWebKit/537.36 Chrome/120 Safari/537.36":                 {Tablet, Android, false, false},
		"Mozilla/5.0 (Android 14; Mobile; rv:121.0) Gecko/121.0 Firefox/121.0":                                 {Mobile, Android, false, false},
		"Mozilla/5.0 (iPad; CPU OS 17_0 like Mac OS X) AppleWebKit/605 Mobile/15E148":                          {Tablet, IOS, false, false},
		"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 Chrome/120 Safari/537.36":                {Desktop, Windows, false, false},
		"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 Version/17.2 Safari/605.1.15":    {Desktop, MacOS, false, false},
		"Mozilla/5.0 (X11; Linux x86_64; rv:121.0) Gecko/20100101 Firefox/121.0":                               {Desktop, Linux, false, false},
		"Mozilla/5.0 (X11; CrOS x86_64 14541.0.0) AppleWebKit/537.36 Chrome/120.0.0.0 Safari/537.36":           {Desktop, ChromeOS, false, false},
		"Mozilla/5.0 (X11; FreeBSD amd64; rv:121.0) Gecko/20100101 Firefox/121.0":                              {Desktop, OtherSystem, false, false},
	} {
		if got := ReadAgent(ua); got != want {
			t.Errorf("ReadAgent(%q) = %+v, want %+v", ua, got, want)
		}
	}
}
