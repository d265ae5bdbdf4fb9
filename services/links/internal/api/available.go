package api

import (
	"context"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/apispec/wire"
	"github.com/linkreel/linkreel/libs/httpapi"
	"github.com/linkreel/linkreel/libs/ratelimit"
	"github.com/linkreel/linkreel/services/links/internal/link"
)

// maxTakenSlugs is how many taken slugs an account can find per minute. Without a limit, one key
// could be used to list every slug in the installation.
const maxTakenSlugs = 30

// available reports whether a create could use a slug now. It only checks the slug.
func (h public) available(c *fiber.Ctx) error {
	if c.Query("slug") == "" {
		return apierr.Invalid(apierr.Detail{Field: "slug", Code: apierr.Required, Message: "Send the slug to check."})
	}
	domains := &domainsOf{ctx: c.UserContext(), public: h}
	on, err := domains.orDefault(c.Context().QueryArgs().Has("domainId"), c.Query("domainId"))
	if err != nil {
		return err
	}
	domainID := ""
	if on != nil {
		domainID = on.ID
	}
	reason, err := h.whyNot(c.UserContext(), domainID, c.Query("slug"))
	if err != nil {
		return err
	}
	return httpapi.JSON(c, fiber.StatusOK, wire.SlugAvailable{Available: reason == "", Reason: wire.OrNull(reason)})
}

// whyNot returns the reason why a create would reject a slug, or "" if the slug is free.
func (h public) whyNot(ctx context.Context, domainID, text string) (reason string, err error) {
	slug, problem := link.ParseSlug(text, domainID == "")
	switch {
	case problem != nil && problem.Code == apierr.Reserved:
		return "reserved", nil
	case problem != nil:
		return "invalid", nil
	}
	// Count the attempt before the lookup, and refund it if the slug is free. If only taken slugs
	// got a 429, that status would reveal that a slug is taken. The message contains
	// maxTakenSlugs's value, so change both together.
	t, wait := h.opt.Tries.Take(ctx, ratelimit.Rule{Key: "taken-slugs:" + account(ctx), Max: maxTakenSlugs, Window: time.Minute})
	if wait > 0 {
		return "", &apierr.Error{
			Code: apierr.RateLimited, RetryAfter: wait,
			Message: "This account has found 30 taken slugs within a minute. Try again after the time in Retry-After.",
		}
	}
	free, err := h.links.SlugFree(ctx, account(ctx), domainID, slug)
	if err == nil && !free {
		return "taken", nil
	}
	h.opt.Tries.Refund(ctx, t)
	return "", err
}
