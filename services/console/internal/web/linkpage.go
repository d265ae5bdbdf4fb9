package web

import (
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

// chart is a drawing of numbers by day, without a script: the template writes it as
// SVG, in units of a tenth of a percent of its width and height.
type chart struct {
	Bars     []bar
	Top      int64 // the value of the upper edge
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
			return nil // not a day: rather no chart than a wrong one
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
			height = max(height, 12) // one click of a million is seen too
		}
		c.Bars = append(c.Bars, bar{number(float64(i)*step + step*.12), number(1000 - height), number(step * .76), number(height)})
	}
	slices.Reverse(c.Days) // the table has the newest first
	return c
}

// part is a line of a breakdown.
type part struct {
	Name   string
	Clicks int64
}

type breakdown struct {
	ID, Title string
	Parts     []part
}

// breakdowns of the stats, each with its largest parts first.
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
		slices.SortStableFunc(b.Parts, func(a, b part) int { return int(max(-1, min(1, b.Clicks-a.Clicks))) })
		b.Parts = b.Parts[:min(8, len(b.Parts))]
		out = append(out, b)
	}
	add("referrers", len(s.Referrers), func(i int) part { return part{s.Referrers[i].Host, s.Referrers[i].Clicks} })
	add("countries", len(s.Countries), func(i int) part { return part{s.Countries[i].Country, s.Countries[i].Clicks} })
	add("devices", len(s.Devices), func(i int) part { return part{s.Devices[i].Device, s.Devices[i].Clicks} })
	return out
}

// spans are the lengths of a chart that the page offers, in days.
var spans = []string{"7", "30", "90"}

// oneLink reads what the page of a link shows. Numbers and history are a bonus:
// without them the page still lets people work.
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
	// At once: the page waits for the slowest of the three and not for their sum.
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
	if err := g.Wait(); err != nil {
		return view{}, err
	}
	data := map[string]any{
		"Link": l, "CanWrite": r.can("links:write"), "History": history, "Spans": options("stats.days.", span, spans), "Stats": clicks,
	}
	if clicks != nil {
		data["Chart"], data["Breakdowns"] = drawDays(clicks.Days), breakdowns(clicks)
	}
	form := map[string]string{
		"url": l.DestinationURL, "title": l.Title, "tags": l.TagList(), "expiresAt": toMinute(l.ExpiresAt),
		"ogTitle": str(l.OGTitle), "ogDescription": str(l.OGDescription), "ogImage": str(l.OGImage),
	}
	return view{Title: l.Name(), Data: data, Form: form, Rev: header.Get("ETag"), Was: shown(form)}, nil
}

// linkCode is the QR code, as a picture of the page or as a file to keep.
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
	r.Set(fiber.HeaderCacheControl, "private, max-age=86400") // a short address never changes
	r.Status(http.StatusOK).Set(fiber.HeaderContentType, header.Get(fiber.HeaderContentType))
	return r.Send(picture)
}

var linkPage = page{template: "link-detail.html", view: (*request).oneLink}

func editLink(r *request) error {
	var present link
	if err := r.do("GET", r.linkPath(), nil, &present); err != nil {
		return err
	}
	change := map[string]any{
		"url": r.form.Get("url"), "title": r.form.Get("title"), "tags": commaList(r.form.Get("tags")),
		"ogTitle": orNull(r.form.Get("ogTitle")), "ogDescription": orNull(unix(r.form.Get("ogDescription"))),
		"ogImage": orNull(r.form.Get("ogImage")),
	}
	at, ok := r.minute("expiresAt", present.ExpiresAt)
	change["expiresAt"] = at
	var err error
	if !ok {
		err = apierr.Invalid(apierr.Detail{Field: "expiresAt", Message: text.Get("form.time")})
	} else if err = r.edit("PATCH", r.linkPath(), change, r.oneLink); err == nil {
		return r.done(r.linkHome(), "saved")
	}
	r.form.Set("expiresAt", toMinute(at))
	return linkPage.again(r, err)
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// archiveLink puts a link out of sight, or back. It goes on redirecting, so this
// is the undo that deleting has not.
func archiveLink(r *request) error {
	archive := r.form.Get("archived") == "true"
	if err := r.do("PATCH", r.linkPath(), map[string]any{"archived": archive}, nil); err != nil {
		return linkPage.again(r, err)
	}
	if archive {
		return r.done(r.linkHome(), "archived")
	}
	return r.done(r.linkHome(), "unarchived")
}

func deleteLink(r *request) error {
	if err := r.do("DELETE", r.linkPath(), nil, nil); err != nil {
		return linkPage.again(r, err)
	}
	return r.done("/app/links", "deleted")
}
