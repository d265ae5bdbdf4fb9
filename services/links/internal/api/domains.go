package api

import (
	"github.com/gofiber/fiber/v2"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/httpapi"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/services/links/internal/customdomain"
)

func (h public) listDomains(c *fiber.Ctx) error {
	ctx := c.UserContext()
	domains, err := h.domains.List(ctx, account(ctx))
	if err != nil {
		return err
	}
	data := make([]domainRecord, 0, len(domains))
	for _, d := range domains {
		data = append(data, h.domainOf(d))
	}
	return httpapi.JSON(c, fiber.StatusOK, struct {
		Data []domainRecord `json:"data"`
	}{data})
}

func (h public) claimDomain(c *fiber.Ctx) error {
	ctx := c.UserContext()
	var body struct {
		Hostname string `json:"hostname"`
	}
	fields, err := httpapi.Decode(c, &body)
	if err != nil {
		return err
	}
	hostname := validate(fields, "hostname", func() (string, *apierr.Detail) {
		return customdomain.CheckHostname(body.Hostname, h.domains.Own())
	})
	if err := fields.Err(); err != nil {
		return err
	}
	d, err := h.domains.Claim(ctx, identity.FromContext(ctx), hostname, identity.OriginFrom(ctx))
	if err != nil {
		return err
	}
	return httpapi.Created(c, "/api/v1/domains/"+d.ID, struct {
		domainRecord
		Ignored []string `json:"ignoredFields,omitempty"`
	}{h.domainOf(d), fields.Unknown})
}

func (h public) getDomain(c *fiber.Ctx) error {
	ctx := c.UserContext()
	d, err := h.domains.Get(ctx, account(ctx), c.Params("id"))
	if err != nil {
		return err
	}
	return httpapi.JSON(c, fiber.StatusOK, h.domainOf(d))
}

func (h public) verifyDomain(c *fiber.Ctx) error {
	ctx := c.UserContext()
	d, err := h.domains.Verify(ctx, account(ctx), c.Params("id"))
	if err != nil {
		return err
	}
	return httpapi.JSON(c, fiber.StatusOK, h.domainOf(d))
}

func (h public) deleteDomain(c *fiber.Ctx) error {
	ctx := c.UserContext()
	if err := h.domains.Delete(ctx, account(ctx), c.Params("id")); err != nil {
		return err
	}
	return httpapi.NoContent(c)
}
