package api

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/apispec/wire"
	"github.com/linkreel/linkreel/libs/tenant"
	"github.com/linkreel/linkreel/libs/tenant/keeper"
	"github.com/linkreel/linkreel/libs/turns"
	"github.com/linkreel/linkreel/services/links/internal/customdomain"
	"github.com/linkreel/linkreel/services/links/internal/link"
)

// Holder returns the [tenant.Holder] that auth uses to manage accounts' links and other records.
// records exports all of an account's records except its links.
func Holder(
	accounts *keeper.Keeper, links *link.Service, domains *customdomain.Service, records exporter, opt Options,
) tenant.Holder {
	return &holder{accounts, public{nil, links, domains, opt}, records, turns.NewSlots(exportsOfAccount, exportsAtOnce)}
}

// exporter writes all of an account's records, except links, as JSON Lines.
type exporter func(ctx context.Context, accountID string, w io.Writer) error

type holder struct {
	*keeper.Keeper
	public
	records exporter
	exports *turns.Slots
}

// TakeDown implements [tenant.Holder].
func (h *holder) TakeDown(ctx context.Context, o tenant.Order) (tenant.Takedown, error) {
	// An order has either a URL or an ID. If it has an ID, the error that slugKey returns for the
	// empty URL is ignored.
	key, err := h.slugKey(ctx, o.Target.URL)
	if o.Target.ID != "" {
		key, err = h.links.KeyOf(ctx, o.Target.ID)
	}
	if err != nil {
		return tenant.Takedown{}, err
	}
	l, err := h.links.TakeDown(ctx, key, link.Takedown{ID: o.ID, Reason: o.Reason, At: o.At})
	if err != nil {
		return tenant.Takedown{}, err
	}
	return tenant.Takedown{
		ID: l.Takedown.ID, Kind: tenant.KindLink, RecordID: l.ID, AccountID: l.AccountID,
		URL: l.ShortURL(h.opt.ShortBaseURL), Reason: l.Takedown.Reason, At: l.Takedown.At,
	}, nil
}

// Usable implements [tenant.Domains].
func (h *holder) Usable(ctx context.Context, accountID, domainID string) error {
	return h.domains.Usable(ctx, accountID, domainID)
}

// Lift implements [tenant.Holder].
func (h *holder) Lift(ctx context.Context, t tenant.Takedown) error {
	if t.Kind != tenant.KindLink {
		return nil
	}
	// The link may have been deleted. The takedown's URL still contains the slug.
	key, err := h.links.KeyOf(ctx, t.RecordID)
	if isNotFound(err) {
		if key, err = h.slugKey(ctx, t.URL); isNotFound(err) {
			return nil // its domain was deleted too, so nothing is left to lift
		}
	}
	if err != nil {
		return err
	}
	return h.links.Lift(ctx, key, t.ID)
}

func isNotFound(err error) bool { return apierr.CodeOf(err) == apierr.LinkNotFound }

// slugKey returns the key for the slug in a short URL. It returns LINK_NOT_FOUND if the URL is not
// on one of our hosts.
func (h *holder) slugKey(ctx context.Context, address string) (string, error) {
	_, rest, ok := strings.Cut(address, "://")
	if !ok {
		rest = address
	}
	hostport, path, _ := strings.Cut(rest, "/")
	if i := strings.IndexAny(path, "?#"); i >= 0 {
		path = path[:i]
	}
	path = strings.TrimSuffix(path, "+") // URL of the preview page
	folded, ok := link.LookupSlug([]byte(path))
	if !ok {
		return "", link.NotFound()
	}
	host := link.ParseHost(hostport)
	for _, own := range h.opt.Own {
		if own == host {
			return link.SlugKey("", folded), nil
		}
	}
	domainID, found, err := h.domains.Owner(ctx, host.Name)
	if err == nil && !found {
		err = link.NotFound()
	}
	return link.SlugKey(domainID, folded), err
}

// Limits on the data that an export holds in memory. A day with 100 referrers, 150 countries and 50
// rules takes up to 50 kB, so all days in memory take at most 10 MB.
const (
	exportPage  = 200 // links
	exportLinks = 16  // links whose first days are read concurrently
	exportFirst = 8   // number of days read for each of these links
	exportRest  = 64  // number of one link's later days read at a time
)

// Limits on concurrent exports in this process, which also serves redirects. The per-account limit
// prevents one account's slow readers from occupying all slots.
const (
	exportsOfAccount = 2
	exportsAtOnce    = 8
)

// Export implements [tenant.Holder].
func (h *holder) Export(ctx context.Context, accountID string, w io.Writer) error {
	end, ok := h.exports.Take(accountID)
	if !ok {
		return &apierr.Error{
			Code: apierr.RateLimited, RetryAfter: 30 * time.Second,
			Message: "Too many exports are already running. Try again when one of them has finished.",
		}
	}
	defer end()
	if err := h.records(ctx, accountID, w); err != nil {
		return err
	}
	out := json.NewEncoder(w)
	out.SetEscapeHTML(false)
	if err := h.exportDomains(ctx, out, accountID); err != nil {
		return err
	}
	all := link.Query{AccountID: accountID, Before: link.Top, Limit: exportPage, Whole: true, Broken: true}
	for more := true; more; {
		var page []*link.Link
		var err error
		if page, more, err = h.links.List(ctx, all); err != nil {
			return err
		}
		for some := range slices.Chunk(page, exportLinks) {
			first, err := h.firstDays(ctx, some)
			if err != nil {
				return err
			}
			for i, l := range some {
				all.Before = l.Seq
				line := exportLine{"link", h.recordOf(l)}
				if l.Broken != nil {
					slog.ErrorContext(ctx, "cannot export a link; the export lists its ID instead", "error", l.Broken)
					line = exportLine{"unreadable", unreadable{"link", l.ID}}
				}
				if err := out.Encode(line); err != nil {
					return err
				}
				if err := h.exportDays(ctx, out, l.ID, first[i]); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// exportLine is a line in an export.
type exportLine struct {
	Type string `json:"type"`
	Data any    `json:"data"`
}

// unreadable is the line for an unreadable record about a link, or about a link's or domain's day.
type unreadable struct {
	Type string `json:"type"`
	ID   string `json:"id"`
}

// dayRecord is one day of a link's statistics in an export.
type dayRecord struct {
	LinkID    string               `json:"linkId"`
	Date      string               `json:"date"`
	Clicks    int64                `json:"clicks"`
	Referrers []wire.HostClicks    `json:"referrers"`
	Countries []wire.CountryClicks `json:"countries"`
	Devices   []wire.DeviceClicks  `json:"devices"`
	Rules     []wire.RuleClicks    `json:"rules"`
}

// domainRecord is one day of a domain's statistics in an export.
type domainRecord struct {
	DomainID string `json:"domainId"`
	wire.DomainDay
}

// exportDomains writes the daily statistics for all of the account's domains.
func (h *holder) exportDomains(ctx context.Context, out *json.Encoder, accountID string) error {
	domains, err := h.domains.List(ctx, accountID)
	if err != nil {
		return err
	}
	for _, d := range domains {
		after := link.Day(0)
		for more := true; more; {
			var page []link.DayStats
			if page, more, err = h.links.Days(ctx, d.ID, after, exportRest); err != nil {
				return err
			}
			for _, day := range page {
				line := exportLine{"domainStats", domainRecord{d.ID, unserved(day)}}
				if after = day.Day; day.Broken != nil {
					slog.ErrorContext(ctx, "cannot export a domain's day; the export only lists it", "error", day.Broken)
					line = exportLine{"unreadable", unreadable{"domainStats", d.ID + "/" + day.Day.String()}}
				}
				if err := out.Encode(line); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// days is a page of a link's daily statistics.
type days struct {
	page []link.DayStats
	more bool
}

// firstDays reads the first days of some links concurrently. If an export of a million links read
// them sequentially, it would exceed its time limit.
func (h *holder) firstDays(ctx context.Context, some []*link.Link) ([]days, error) {
	out := make([]days, len(some))
	g, ctx := errgroup.WithContext(ctx)
	for i, l := range some {
		if l.Clicks == 0 && l.Broken == nil {
			continue
		}
		g.Go(func() (err error) {
			out[i].page, out[i].more, err = h.links.Days(ctx, l.ID, 0, exportFirst)
			return err
		})
	}
	return out, g.Wait()
}

// exportDays writes all of a link's days: the first days, in d, and the remaining days, which it
// reads.
func (h *holder) exportDays(ctx context.Context, out *json.Encoder, linkID string, d days) (err error) {
	for {
		for _, day := range d.page {
			line := exportLine{"linkStats", dayRecord{
				linkID, day.Day.String(), day.Clicks,
				hostShares(day.Referrers), countryShares(day.Countries), deviceShares(day.Devices), ruleShares(day.Rules),
			}}
			if day.Broken != nil {
				slog.ErrorContext(ctx, "cannot export a link's day; the export only lists it", "error", day.Broken)
				line = exportLine{"unreadable", unreadable{"linkStats", linkID + "/" + day.Day.String()}}
			}
			if err := out.Encode(line); err != nil {
				return err
			}
		}
		if !d.more || len(d.page) == 0 {
			return nil
		}
		if d.page, d.more, err = h.links.Days(ctx, linkID, d.page[len(d.page)-1].Day, exportRest); err != nil {
			return err
		}
	}
}
