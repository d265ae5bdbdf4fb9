package web

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"
	"golang.org/x/sync/errgroup"

	"github.com/linkreel/linkreel/libs/apierr"
	client "github.com/linkreel/linkreel/libs/clients/go"
	"github.com/linkreel/linkreel/services/console/internal/text"
)

// chart is a chart of daily numbers that works without JavaScript. The template renders it as SVG,
// in units of 0.1% of its width and height.
type chart struct {
	Bars     []bar
	Top      int64 // the number of clicks at the top
	From, To int64 // the first and the last day, in ms
	Days     []dayAt
}

type (
	bar   struct{ X, Y, Width, Height string }
	dayAt struct{ At, Clicks int64 }
)

func drawDays(days []client.DayClicks) *chart {
	if len(days) == 0 {
		return nil
	}
	c := &chart{Top: 1}
	for _, d := range days {
		at, err := time.Parse(time.DateOnly, d.Date)
		if err != nil {
			return nil // not a day, so do not show a chart instead of a wrong one
		}
		c.Days = append(c.Days, dayAt{at.UnixMilli(), d.Clicks})
		c.Top = max(c.Top, d.Clicks)
	}
	c.From, c.To = c.Days[0].At, c.Days[len(c.Days)-1].At
	step := 1000 / float64(len(days))
	number := func(f float64) string { return strconv.FormatFloat(f, 'f', 1, 64) }
	for i, d := range c.Days {
		height := 1000 * float64(d.Clicks) / float64(c.Top)
		if d.Clicks > 0 {
			height = max(height, 12) // keep one click visible next to a million
		}
		c.Bars = append(c.Bars, bar{number(float64(i)*step + step*.12), number(1000 - height), number(step * .76), number(height)})
	}
	slices.Reverse(c.Days) // the table shows the newest day first
	return c
}

// part is one row of a breakdown.
type part struct {
	Name   string
	Clicks int64
}

type breakdown struct {
	ID, Title string
	Parts     []part
}

// breakdowns returns the stats' breakdowns, each sorted by descending size.
func breakdowns(s *client.LinkStats) (out []breakdown) {
	add := func(id string, n int, at func(int) part) {
		b := breakdown{ID: id, Title: text.Get("stats." + id)}
		for i := range n {
			p := at(i)
			if p.Name == "" {
				p.Name = text.Get("stats." + id + ".none")
			} else if text.Has("stats." + id + "." + p.Name) {
				p.Name = text.Get("stats." + id + "." + p.Name)
			}
			b.Parts = append(b.Parts, p)
		}
		// Clamp the difference to -1, 0 or 1: an int64 can be too large for an int.
		slices.SortStableFunc(b.Parts, func(a, b part) int { return int(max(-1, min(1, b.Clicks-a.Clicks))) })
		b.Parts = b.Parts[:min(8, len(b.Parts))]
		out = append(out, b)
	}
	add("referrers", len(s.Referrers), func(i int) part { return part{s.Referrers[i].Host, s.Referrers[i].Clicks} })
	add("countries", len(s.Countries), func(i int) part { return part{s.Countries[i].Country, s.Countries[i].Clicks} })
	add("devices", len(s.Devices), func(i int) part { return part{s.Devices[i].Device, s.Devices[i].Clicks} })
	if slices.ContainsFunc(s.Rules, func(r client.RuleClicks) bool { return r.Rule != "" }) {
		add("rules", len(s.Rules), func(i int) part { return part{s.Rules[i].Rule, s.Rules[i].Clicks} })
	}
	return out
}

// spans lists the chart lengths that the page offers, in days.
var spans = []string{"7", "30", "90"}

// oneLink reads the data for a link's page. The page works without statistics and history, so it is
// not an error if they cannot be read.
func (r *request) oneLink() (view, error) {
	span := r.Query("days")
	if !slices.Contains(spans, span) {
		span = "30"
	}
	length, _ := strconv.Atoi(span)
	first := r.pages.cfg.Now().UTC().AddDate(0, 0, 1-length)
	var (
		l       link
		header  http.Header
		clicks  *client.LinkStats
		history []event
		g       errgroup.Group
	)
	// Read in parallel, so the page waits only for the slowest of the three.
	g.Go(func() (err error) {
		header, err = r.read(r.linkPath(), &l)
		return err
	})
	g.Go(func() error {
		var s client.LinkStats
		if err := r.do("GET", r.linkPath()+"/stats?from="+first.Format(time.DateOnly), nil, &s); err == nil {
			clicks = &s
		}
		return nil
	})
	if r.can("events:read") {
		g.Go(func() error {
			var feed struct{ Data []event }
			if err := r.do("GET", "/api/v1/events?limit=10&object="+url.QueryEscape(r.Params("id")), nil, &feed); err == nil {
				history = feed.Data
			}
			return nil
		})
	}
	visit := r.tryVisit(&g)
	if err := g.Wait(); err != nil {
		return view{}, err
	}
	data := map[string]any{
		"Link": l, "CanWrite": r.can("links:write"), "History": history, "Spans": options("stats.days.", spans, span), "Stats": clicks,
		"Rules": ruleForms(storedRules(l.Rules), -1), "RuleTexts": ruleTexts(l.Rules), "HasPassword": l.HasPassword, "Try": visit,
	}
	if clicks != nil {
		data["Chart"], data["Breakdowns"] = drawDays(clicks.Days), breakdowns(clicks)
	}
	form := decisionsForm(&l.Link)
	maps.Copy(form, map[string]string{
		"url": l.DestinationURL, "title": l.Title, "tags": l.TagList(),
		"ogTitle": str(l.OGTitle), "ogDescription": str(l.OGDescription), "ogImage": str(l.OGImage),
	})
	return view{Title: l.Name(), Data: data, Form: form, Rev: header.Get("ETag"), Was: shown(form)}, nil
}

// linkCode serves the QR code, as an image for the page or as a download.
func linkCode(r *request) error {
	q := r.filters("format", "size")
	var picture []byte
	header, err := r.read(r.linkPath()+"/qr?"+q.Encode(), &picture)
	if err != nil {
		return err
	}
	if r.Query("download") != "" {
		extension := "svg"
		if q.Get("format") == "png" {
			extension = "png"
		}
		r.Set(fiber.HeaderContentDisposition, `attachment; filename="qr-code.`+extension+`"`)
	}
	r.Set(fiber.HeaderCacheControl, "private, max-age=86400") // a short URL never changes
	r.Status(http.StatusOK).Set(fiber.HeaderContentType, header.Get(fiber.HeaderContentType))
	return r.Send(picture)
}

var linkPage = page{template: "link-detail.html", view: (*request).oneLink, typed: keepRules}

func editLink(r *request) error {
	var present link
	if err := r.do("GET", r.linkPath(), nil, &present); err != nil {
		return err
	}
	if r.form.Has(ruleButton) {
		return linkPage.rearranged(r, &present.Link)
	}
	change, bad := r.decisions(&present.Link)
	maps.Copy(change, map[string]any{
		"url": r.form.Get("url"), "title": r.form.Get("title"), "tags": commaList(r.form.Get("tags")),
		"ogTitle": orNull(r.form.Get("ogTitle")), "ogDescription": orNull(unix(r.form.Get("ogDescription"))),
		"ogImage": orNull(r.form.Get("ogImage")),
	})
	if len(bad) > 0 {
		return linkPage.again(r, apierr.Invalid(bad...))
	}
	store := func() error { return r.edit("PATCH", r.linkPath(), change, r.oneLink) }
	if _, changed := change["password"]; changed {
		// None of the fields would show that somebody else has set a password, so any change to the
		// record counts as a conflict.
		store = func() error { return r.do("PATCH", r.linkPath(), change, nil) }
	}
	return linkPage.answer(r, store(), r.linkHome(), "saved")
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// archiveLink hides a link from the list or shows it again. The link still redirects. Unlike
// deleting, this can be undone.
func archiveLink(r *request) error {
	archive := r.form.Get("archived") == "true"
	notice := "unarchived"
	if archive {
		notice = "archived"
	}
	return linkPage.answer(r, r.do("PATCH", r.linkPath(), map[string]any{"archived": archive}, nil), r.linkHome(), notice)
}

func deleteLink(r *request) error {
	return linkPage.answer(r, r.do("DELETE", r.linkPath(), nil, nil), "/app/links", "deleted")
}
