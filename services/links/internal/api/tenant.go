package api

import (
	"context"
	"encoding/json"
	"io"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/tenant"
	"github.com/linkreel/linkreel/services/links/internal/customdomain"
	"github.com/linkreel/linkreel/services/links/internal/link"
	"github.com/linkreel/linkreel/services/links/internal/tenancy"
)

// Holder is this service as auth sees it: the holder of accounts' links and
// domains.
func Holder(accounts *tenancy.Service, links *link.Service, domains *customdomain.Service, opt Options) tenant.Holder {
	return &holder{Service: accounts, public: newPublic(nil, links, domains, opt)}
}

type holder struct {
	*tenancy.Service
	public
}

// Usage is [tenant.Holder].Usage.
func (h *holder) Usage(ctx context.Context, accountID string) (u tenant.Usage, err error) {
	if u.Links, err = h.links.Count(ctx, accountID); err != nil {
		return u, err
	}
	domains, err := h.domains.List(ctx, accountID)
	u.Domains = len(domains)
	return u, err
}

// TakeDown is [tenant.Holder].TakeDown.
func (h *holder) TakeDown(ctx context.Context, o tenant.Order) (tenant.Takedown, error) {
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
	return tenant.Takedown{ID: l.Takedown.ID, Kind: tenant.KindLink, RecordID: l.ID, AccountID: l.AccountID, URL: h.shortURL(l), Reason: l.Takedown.Reason, At: l.Takedown.At}, nil
}

// Lift is [tenant.Holder].Lift.
func (h *holder) Lift(ctx context.Context, t tenant.Takedown) error {
	if t.Kind != tenant.KindLink {
		return nil
	}
	// The link may be gone by now; its address still names the slug.
	key, err := h.links.KeyOf(ctx, t.RecordID)
	if isNotFound(err) {
		if key, err = h.slugKey(ctx, t.URL); isNotFound(err) {
			return nil // its domain is gone as well, and nothing is left to lift
		}
	}
	if err != nil {
		return err
	}
	return h.links.Lift(ctx, key, t.ID)
}

func isNotFound(err error) bool { return apierr.CodeOf(err) == apierr.LinkNotFound }

// slugKey names the slug at a short address; LINK_NOT_FOUND when the address is
// not one of ours.
func (h *holder) slugKey(ctx context.Context, address string) (string, error) {
	_, rest, ok := strings.Cut(address, "://")
	if !ok {
		rest = address
	}
	hostport, path, _ := strings.Cut(rest, "/")
	if i := strings.IndexAny(path, "?#"); i >= 0 {
		path = path[:i]
	}
	path = strings.TrimSuffix(path, "+") // the address of its inspect page
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

// exportPage is how many links an export reads at a time, and exportDays of how
// many it holds the statistics: a link can have 400 days of some 10 kB each.
const (
	exportPage = 200
	exportDays = 16
)

// Export is [tenant.Holder].Export.
func (h *holder) Export(ctx context.Context, accountID string, w io.Writer) error {
	out := json.NewEncoder(w)
	out.SetEscapeHTML(false)
	type line struct {
		Type string `json:"type"`
		Data any    `json:"data"`
	}
	domains, err := h.domains.List(ctx, accountID)
	if err != nil {
		return err
	}
	for _, d := range domains {
		if err := out.Encode(line{"domain", h.domainOf(d)}); err != nil {
			return err
		}
	}
	for before, more := link.Top, true; more; {
		var page []*link.Link
		if page, more, err = h.links.List(ctx, link.Query{AccountID: accountID, Before: before, Limit: exportPage, Whole: true}); err != nil {
			return err
		}
		for some := range slices.Chunk(page, exportDays) {
			days, err := h.daysOf(ctx, some)
			if err != nil {
				return err
			}
			for i, l := range some {
				before = l.Seq
				if err := out.Encode(line{"link", h.recordOf(l)}); err != nil {
					return err
				}
				for _, d := range days[i] {
					if err := out.Encode(line{"linkStats", d}); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

// dayRecord is one day of a link in an export.
type dayRecord struct {
	LinkID    string         `json:"linkId"`
	Date      string         `json:"date"`
	Clicks    int64          `json:"clicks"`
	Referrers []hostShare    `json:"referrers"`
	Countries []countryShare `json:"countries"`
	Devices   []deviceShare  `json:"devices"`
}

// daysOf reads the statistics of some links, all at a time: one after the
// other a million links would take longer than an export may.
func (h *holder) daysOf(ctx context.Context, page []*link.Link) ([][]dayRecord, error) {
	out := make([][]dayRecord, len(page))
	g, ctx := errgroup.WithContext(ctx)
	for i, l := range page {
		if l.Clicks == 0 {
			continue
		}
		g.Go(func() error {
			return h.links.Days(ctx, l.ID, func(d link.DayStats) error {
				out[i] = append(out[i], dayRecord{l.ID, d.Day.String(), d.Clicks, hostShares(d.Referrers), countryShares(d.Countries), deviceShares(d.Devices)})
				return nil
			})
		})
	}
	return out, g.Wait()
}
