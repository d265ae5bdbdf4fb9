package api

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/httpapi"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/services/links/internal/customdomain"
	"github.com/linkreel/linkreel/services/links/internal/link"
)

type dnsRecord struct {
	Type  string `json:"type"`
	Name  string `json:"name"`
	Value string `json:"value"`
}

type wireDomain struct {
	ID            string      `json:"id"`
	Hostname      string      `json:"hostname"`
	Status        string      `json:"status"`
	Records       []dnsRecord `json:"records"`
	CreatedAt     int64       `json:"createdAt"`
	VerifiedAt    *int64      `json:"verifiedAt"`
	LastCheckedAt *int64      `json:"lastCheckedAt"`
}

func (a *API) domainOf(d *customdomain.Domain) wireDomain {
	name, value := d.Record()
	out := wireDomain{ID: d.ID, Hostname: d.Hostname, Status: "pending", Records: []dnsRecord{{"TXT", name, value}},
		CreatedAt: millis(d.CreatedAt), VerifiedAt: millisOrNil(d.VerifiedAt), LastCheckedAt: millisOrNil(d.LastCheckedAt)}
	if d.Verified(a.opt.Now()) {
		out.Status = "verified"
	}
	// The record that sends visitors to us, where our host is a name that DNS knows.
	if target := a.opt.Own[0]; target.Port == "" && strings.Contains(target.Name, ".") {
		out.Records = append(out.Records, dnsRecord{"CNAME", d.Hostname, target.Name})
	}
	return out
}

func (a *API) listDomains(c *fiber.Ctx) error {
	ctx := c.UserContext()
	domains, err := a.opt.Store.Domains(ctx, account(ctx))
	if err != nil {
		return err
	}
	data := make([]wireDomain, 0, len(domains))
	for _, d := range domains {
		data = append(data, a.domainOf(d))
	}
	return httpapi.JSON(c, fiber.StatusOK, struct {
		Data []wireDomain `json:"data"`
	}{data})
}

func (a *API) claimDomain(c *fiber.Ctx) error {
	ctx := c.UserContext()
	if p := identity.FromContext(ctx); p.Quotas.Domains > 0 {
		have, err := a.opt.Store.Domains(ctx, p.AccountID)
		if err != nil {
			return err
		}
		if len(have) >= p.Quotas.Domains {
			return apierr.New(apierr.QuotaExceeded, "The account has as many domains as its plan allows.")
		}
	}
	var body struct {
		Hostname string `json:"hostname"`
	}
	fields, err := httpapi.Decode(c, &body)
	if err != nil {
		return err
	}
	hostname := judge(fields, "hostname", func() (string, *apierr.Detail) { return customdomain.CheckHostname(body.Hostname, a.opt.Own) })
	if err := fields.Err(); err != nil {
		return err
	}
	d, err := a.opt.Store.Claim(ctx, account(ctx), hostname, identity.NewNonce(), originOf(ctx))
	if err != nil {
		return err
	}
	return httpapi.Created(c, "/api/v1/domains/"+d.ID, a.domainOf(d))
}

func (a *API) getDomain(c *fiber.Ctx) error {
	ctx := c.UserContext()
	d, err := a.opt.Store.Domain(ctx, account(ctx), c.Params("id"))
	if err != nil {
		return err
	}
	return httpapi.JSON(c, fiber.StatusOK, a.domainOf(d))
}

func (a *API) verifyDomain(c *fiber.Ctx) error {
	ctx := c.UserContext()
	d, err := a.opt.Store.Domain(ctx, account(ctx), c.Params("id"))
	if err != nil {
		return err
	}
	proven, err := a.opt.Prover.Proves(ctx, d)
	if err != nil {
		slog.InfoContext(ctx, "proof of a domain cannot be looked up", "error", err)
		if !d.VerifiedAt.IsZero() { // nobody could say; what was proven stays so
			return httpapi.JSON(c, fiber.StatusOK, a.domainOf(d))
		}
	}
	if d, err = a.note(ctx, d, proven); err != nil {
		return err
	}
	return httpapi.JSON(c, fiber.StatusOK, a.domainOf(d))
}

// note keeps the result of a look at a proof, and tells the redirects when the
// name has a new owner.
func (a *API) note(ctx context.Context, d *customdomain.Domain, proven bool) (*customdomain.Domain, error) {
	d, changed, err := a.opt.Store.Looked(ctx, d.AccountID, d.ID, proven)
	if err != nil {
		return nil, err
	}
	if changed {
		a.opt.Announcer.Announce(ctx, d.Hostname)
	}
	return d, nil
}

func (a *API) deleteDomain(c *fiber.Ctx) error {
	ctx := c.UserContext()
	d, err := a.opt.Store.DeleteDomain(ctx, account(ctx), c.Params("id"))
	if err != nil {
		return err
	}
	a.opt.Announcer.Announce(ctx, d.Hostname)
	return httpapi.NoContent(c)
}

// Ask adds the route by which an ingress asks whether to get a certificate for
// a name; it must be reachable from inside only.
func (a *API) Ask(h *httpapi.API) {
	h.Public("GET", "/internal/v1/domains/ask", func(c *fiber.Ctx) error {
		name := link.Fold(c.Query("domain"))
		if _, problem := customdomain.CheckHostname(name, nil); problem != nil {
			return customdomain.NotFound()
		}
		_, found, err := a.opt.Store.Host(c.UserContext(), name)
		if err != nil {
			return err
		}
		if !found {
			return customdomain.NotFound()
		}
		return httpapi.JSON(c, fiber.StatusOK, map[string]string{"domain": name})
	})
}

// Recheck looks at the proofs of verified domains once a day until ctx ends.
// Replicas may do so at the same time; a second look harms nothing.
func (a *API) Recheck(ctx context.Context) error {
	tick := time.NewTicker(10 * time.Minute)
	defer tick.Stop()
	for {
		if err := a.RecheckDue(ctx); err != nil && ctx.Err() == nil {
			slog.WarnContext(ctx, "domains are not re-checked", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// RecheckDue looks at the proofs that are due now.
func (a *API) RecheckDue(ctx context.Context) error {
	due, err := a.opt.Store.DueDomains(ctx, 100)
	if err != nil {
		return err
	}
	for _, d := range due {
		proven, err := a.opt.Prover.Proves(ctx, d)
		if err != nil {
			slog.InfoContext(ctx, "proof of a domain cannot be looked up", "hostname", d.Hostname, "error", err)
			continue
		}
		if _, err := a.note(ctx, d, proven); err != nil {
			return err
		}
	}
	return nil
}
