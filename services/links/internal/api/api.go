// Package api contains the HTTP routes for links and domains. It decodes requests, calls
// [link.Service] and [customdomain.Service], and writes responses. All decisions about links and
// domains are made in those services.
package api

import (
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/linkreel/linkreel/libs/httpapi"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/password"
	"github.com/linkreel/linkreel/libs/ratelimit"
	"github.com/linkreel/linkreel/libs/tenant"
	"github.com/linkreel/linkreel/libs/tenant/wire"
	"github.com/linkreel/linkreel/services/links/internal/customdomain"
	"github.com/linkreel/linkreel/services/links/internal/link"
)

// Options configure the routes.
type Options struct {
	// ShortBaseURL is the base URL for links on the default host.
	ShortBaseURL string
	// Own lists the hosts that links must not redirect to.
	Own link.Hosts
	// DomainTarget is the name or address that custom host names must point to. If it is empty,
	// they must point to the short host.
	DomainTarget string
	// Pages contains the default short host's pages, or is nil if there are none.
	Pages *link.Pages
	// Passwords hashes link passwords.
	Passwords *password.Hasher
	// Countries is set if this installation can determine a visitor's country.
	Countries bool
	// Certificates is set if this installation orders certificates for custom host
	// names.
	Certificates bool
	// Tries limits how many taken slugs an account can find.
	Tries *ratelimit.Limiter
	Now   func() time.Time
}

// Public adds the routes for callers with an API key.
func Public(a *httpapi.API, links *link.Service, domains *customdomain.Service, opt Options) {
	h := public{a, links, domains, opt}
	read, write := httpapi.Access{Scope: identity.LinksRead}, httpapi.Access{Scope: identity.LinksWrite, Plan: identity.Creator}
	a.Handle(fiber.MethodGet, "/api/v1/links", read, h.list)
	create := write
	create.OneCommit = true
	a.Handle(fiber.MethodPost, "/api/v1/links", create, h.create)
	a.Handle(fiber.MethodPost, "/api/v1/links/bulk", httpapi.Access{Scope: identity.LinksWrite, Plan: identity.Business}, h.bulk)
	many := httpapi.Access{Scope: identity.LinksWrite, Plan: identity.Business, InTurn: true}
	a.Handle(fiber.MethodPatch, "/api/v1/links/bulk", many, h.bulkUpdate)
	a.Handle(fiber.MethodPost, "/api/v1/links/bulk-delete", many, h.bulkDelete)
	a.Handle(fiber.MethodGet, "/api/v1/tags", httpapi.Access{}, h.listTags)
	a.Handle(fiber.MethodGet, "/api/v1/links/available", read, h.available) // before :id, which would also match
	a.Handle(fiber.MethodGet, "/api/v1/links/:id", read, h.get)
	a.Handle(fiber.MethodPatch, "/api/v1/links/:id", write, h.update)
	a.Handle(fiber.MethodDelete, "/api/v1/links/:id", write, h.remove)
	a.Finds(fiber.MethodDelete, "/api/v1/links/:id", h.get)
	a.Handle(fiber.MethodGet, "/api/v1/links/:id/stats", read, h.stats)
	a.Handle(fiber.MethodGet, "/api/v1/links/:id/qr", read, h.qr)
	a.Handle(fiber.MethodGet, "/api/v1/links/:id/explain", read, h.explain)

	read, write = httpapi.Access{Scope: identity.DomainsRead}, httpapi.Access{Scope: identity.DomainsWrite, Plan: identity.Creator}
	a.Handle(fiber.MethodGet, "/api/v1/domains", read, h.listDomains)
	create.Scope = identity.DomainsWrite
	a.Handle(fiber.MethodPost, "/api/v1/domains", create, h.claimDomain)
	a.Handle(fiber.MethodGet, "/api/v1/domains/:id", read, h.getDomain)
	a.Handle(fiber.MethodPatch, "/api/v1/domains/:id", write, h.updateDomain)
	a.Handle(fiber.MethodGet, "/api/v1/domains/:id/stats", read, h.domainStats)
	a.Handle(fiber.MethodPost, "/api/v1/domains/:id/verify", write, h.verifyDomain)
	a.Handle(fiber.MethodDelete, "/api/v1/domains/:id", write, h.deleteDomain)
	a.Finds(fiber.MethodDelete, "/api/v1/domains/:id", h.getDomain)
	a.Finds(fiber.MethodPost, "/api/v1/domains/:id/verify", h.getDomain)
}

type public struct {
	http    *httpapi.API
	links   *link.Service
	domains *customdomain.Service
	opt     Options
}

// Internal adds the routes that are reachable only within the cluster. Auth uses them, with the
// internal token, to report its decisions about accounts. An ingress uses them to ask whether it
// may order a certificate for a host name.
func Internal(a *httpapi.API, domains *customdomain.Service, token string, h tenant.Holder) {
	wire.Routes(a, token, h)
	a.Public(fiber.MethodGet, "/internal/v1/domains/ask", func(c *fiber.Ctx) error {
		name, problem := customdomain.CheckHostname(c.Query("domain"), nil)
		if problem != nil {
			return customdomain.NotFound()
		}
		_, found, err := domains.Owner(c.UserContext(), name)
		if err != nil {
			return err
		}
		if !found {
			return customdomain.NotFound()
		}
		return httpapi.JSON(c, fiber.StatusOK, map[string]string{"domain": name})
	})
}
