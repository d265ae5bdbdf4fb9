package api

import (
	"bytes"
	"context"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/apispec/wire"
	"github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/libs/httpapi"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/paging"
	"github.com/linkreel/linkreel/libs/ratelimit"
	"github.com/linkreel/linkreel/services/auth/internal/member"
)

// People serves the routes for members, invitations and devices.
type People struct {
	Members *member.Service
	// BaseURL is the console's base URL. One-time links begin with it.
	BaseURL string
	// Tries limits requests that could be used to guess codes or fill up storage.
	Tries *ratelimit.Limiter
}

// consolePath is the path of the console's sign-in page.
const consolePath = "/app/sign-in"

func (p People) linkURL(token identity.Key) string {
	return strings.TrimRight(p.BaseURL, "/") + consolePath + "?link=" + token.Secret()
}

// Public adds the routes for members with a key or session, and the routes for programs that do not
// have a key yet.
func (p People) Public(a *httpapi.API) {
	read, write := httpapi.Access{Scope: identity.MembersRead}, httpapi.Access{Scope: identity.MembersWrite}
	a.Handle(fiber.MethodGet, "/api/v1/members", read, p.list)
	a.Handle(fiber.MethodPatch, "/api/v1/members/:id", write, p.change)
	a.Handle(fiber.MethodDelete, "/api/v1/members/:id", write, p.remove)
	a.Handle(fiber.MethodPost, "/api/v1/members/:id/sign-in-links", write, p.signInLinkFor)
	a.Handle(fiber.MethodGet, "/api/v1/invitations", read, p.invitations)
	a.Handle(fiber.MethodPost, "/api/v1/invitations", write, p.invite)
	a.Handle(fiber.MethodDelete, "/api/v1/invitations/:id", write, p.revokeInvitation)
	a.Finds(fiber.MethodDelete, "/api/v1/members/:id", p.find)
	a.Finds(fiber.MethodPost, "/api/v1/members/:id/sign-in-links", func(c *fiber.Ctx) error {
		ctx := c.UserContext()
		return p.Members.MayLink(ctx, identity.FromContext(ctx), c.Params("id"))
	})
	a.Finds(fiber.MethodDelete, "/api/v1/invitations/:id", p.findInvitation)
	a.Public(fiber.MethodPost, "/api/v1/device-codes", func(c *fiber.Ctx) error { return p.startDevice(c, a.ClientIP(c)) })
	a.Public(fiber.MethodPost, "/api/v1/device-codes/token", func(c *fiber.Ctx) error { return p.collectDevice(c, a.ClientIP(c)) })
}

// Operator adds the operator's route.
func (p People) Operator(a *httpapi.API, token string) {
	a.Public(fiber.MethodPost, "/admin/v1/accounts/:id/sign-in-links", onlyOperator(token, p.signInLink))
}

func (p People) list(c *fiber.Ctx) error {
	ctx := c.UserContext()
	accountID := identity.FromContext(ctx).AccountID
	page, err := httpapi.Page(c, "members", accountID)
	if err != nil {
		return err
	}
	all, err := p.Members.Members(ctx, accountID)
	if err != nil {
		return err
	}
	found, next := paging.Cut(page, all, paging.Oldest, member.Member.Place)
	ways, err := p.Members.Ways(ctx, found)
	if err != nil {
		return err
	}
	out := wire.MemberList{Data: make([]wire.Member, len(found)), HasMore: next != nil, NextCursor: next}
	for i, m := range found {
		out.Data[i] = toMember(m, nil)
		out.Data[i].SignIn = make([]string, len(ways[i])) // shown even when it is empty
		for n, way := range ways[i] {
			out.Data[i].SignIn[n] = string(way)
		}
	}
	return httpapi.JSON(c, fiber.StatusOK, out)
}

func (p People) change(c *fiber.Ctx) error {
	ctx := c.UserContext()
	by := identity.FromContext(ctx)
	found, missing := p.Members.Member(ctx, by.AccountID, c.Params("id"))
	if missing == nil {
		if err := member.MayTouch(by, found); err != nil {
			return err
		}
	}
	var body wire.MemberUpdate
	fields, err := httpapi.Decode(c, &body)
	var change member.Change
	if err == nil && body.Role.Set && !fields.HasError("role") {
		role, err := identity.ParseRole(body.Role.Value)
		if err != nil {
			return fmt.Errorf("the schema accepted an invalid role: %w", err)
		}
		if missing != nil || role != found.Role {
			if err := member.MayGive(by, by.Scopes, role); err != nil {
				return err // 403 takes precedence over 404 and 400
			}
		}
		change.Role = &role
	}
	// Report a missing member only after checking the role, so that a caller who may not assign
	// the role gets the same error whether or not the member exists.
	if missing != nil {
		return missing
	}
	if err != nil {
		return err
	}
	if body.Name.Set {
		name := strings.TrimSpace(body.Name.Value)
		notBlank(fields, name)
		change.Name = &name
	}
	if err := fields.Err(); err != nil {
		return err
	}
	change.Match = httpapi.IfMatch(c).Check
	after, err := p.Members.Change(ctx, by, by.AccountID, found.ID, change)
	if err != nil {
		return err
	}
	c.Set(fiber.HeaderETag, httpapi.ETag(after.Rev()))
	return httpapi.JSON(c, fiber.StatusOK, toMember(after, fields.Unknown))
}

func (p People) find(c *fiber.Ctx) error {
	ctx := c.UserContext()
	by := identity.FromContext(ctx)
	m, err := p.Members.Member(ctx, by.AccountID, c.Params("id"))
	if err != nil {
		return err
	}
	return member.MayTouch(by, m)
}

func (p People) findInvitation(c *fiber.Ctx) error {
	ctx := c.UserContext()
	by := identity.FromContext(ctx)
	found, err := p.Members.Invitations(ctx, by.AccountID)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(found, func(l member.Link) bool { return l.ID == c.Params("id") })
	if i < 0 {
		return member.ErrNoInvitation
	}
	return member.MayRevoke(by, found[i])
}

func (p People) remove(c *fiber.Ctx) error {
	ctx := c.UserContext()
	by := identity.FromContext(ctx)
	if err := p.Members.Remove(ctx, by, by.AccountID, c.Params("id")); err != nil {
		return err
	}
	return httpapi.NoContent(c)
}

// signInLinkFor creates a link for a member who has no way to sign in.
func (p People) signInLinkFor(c *fiber.Ctx) error {
	ctx := c.UserContext()
	by := identity.FromContext(ctx)
	// The message below contains MaxSignInLinks as a number. Change both together.
	t, wait := p.Tries.Take(ctx, ratelimit.Rule{Key: "sign-in-links:" + by.AccountID, Max: member.MaxSignInLinks, Window: 24 * time.Hour})
	if wait > 0 {
		return &apierr.Error{
			Code: apierr.RateLimited, RetryAfter: wait,
			Message: "Members of this account have created 20 sign-in links within a day. " +
				"Try again after the time in Retry-After, or ask the operator of this installation.",
		}
	}
	made, token, err := p.makeLink(c, by)
	if err != nil {
		p.Tries.Refund(ctx, t)
		return err
	}
	return httpapi.JSON(c, fiber.StatusCreated, wire.MemberSignInLink{URL: p.linkURL(token), ExpiresAt: made.ExpiresAt.UnixMilli()})
}

func (p People) makeLink(c *fiber.Ctx, by *identity.Principal) (member.Link, identity.Key, error) {
	token, err := drawLink(c, "sign-in link")
	if err != nil {
		return member.Link{}, identity.Key{}, err
	}
	origin := identity.OriginFrom(c.UserContext())
	made, err := p.Members.SignInLinkFor(c.UserContext(), member.NewSignInLink{
		ID: identity.IDFrom("sil", origin.Nonce), Token: token, MemberID: c.Params("id"), At: origin.At, By: by,
	})
	return made, token, err
}

func drawLink(c *fiber.Ctx, what string) (identity.Key, error) {
	random, err := secretOf(c, what)
	if err != nil {
		return identity.Key{}, err
	}
	return identity.NewLink(random), nil
}

func (p People) invitations(c *fiber.Ctx) error {
	ctx := c.UserContext()
	accountID := identity.FromContext(ctx).AccountID
	page, err := httpapi.Page(c, "invitations", accountID)
	if err != nil {
		return err
	}
	all, err := p.Members.Invitations(ctx, accountID)
	if err != nil {
		return err
	}
	found, next := paging.Cut(page, all, paging.Newest, member.Link.Place)
	return httpapi.JSON(c, fiber.StatusOK, wire.InvitationList{Data: wire.List(found, toInvitation), HasMore: next != nil, NextCursor: next})
}

func (p People) invite(c *fiber.Ctx) error {
	ctx := c.UserContext()
	by := identity.FromContext(ctx)
	var body wire.InvitationCreate
	fields, err := httpapi.Decode(c, &body)
	if err != nil {
		return err
	}
	role, bad := identity.ParseRole(body.Role)
	if bad == nil {
		if err := member.MayGive(by, by.Scopes, role); err != nil {
			return err // 403 takes precedence over 400
		}
	}
	if err := fields.Err(); err != nil {
		return err
	}
	if bad != nil {
		return fmt.Errorf("the schema accepted an invalid role: %w", bad)
	}
	token, err := drawLink(c, "one-time link")
	if err != nil {
		return err
	}
	origin := identity.OriginFrom(ctx)
	made, err := p.Members.Invite(ctx, member.NewInvitation{
		ID: identity.IDFrom("inv", origin.Nonce), Token: token, AccountID: by.AccountID,
		Name: text(body.Name), Role: role, At: origin.At, By: by,
	})
	if err != nil {
		return err
	}
	return httpapi.JSON(c, fiber.StatusCreated, wire.InvitationCreated{
		Invitation: toInvitation(made), URL: p.linkURL(token), IgnoredFields: fields.Unknown,
	})
}

func (p People) revokeInvitation(c *fiber.Ctx) error {
	ctx := c.UserContext()
	by := identity.FromContext(ctx)
	if err := p.Members.RevokeInvitation(ctx, by, by.AccountID, c.Params("id")); err != nil {
		return err
	}
	return httpapi.NoContent(c)
}

func (p People) signInLink(c *fiber.Ctx) error {
	ctx := events.AsOperator(c.UserContext())
	if _, err := p.Members.AccountName(ctx, c.Params("id")); err != nil {
		return err // 404 takes precedence over 400
	}
	var body wire.SignInLinkCreate
	fields, err := httpapi.Decode(c, &body)
	if err != nil {
		return err
	}
	if body.MemberID == "" || body.Name != "" || body.Role != "" {
		oneOf(fields, body.MemberID, body.Name, body.Role)
	}
	if err := fields.Err(); err != nil {
		return err
	}
	token := identity.NewLink(rand.Reader)
	made, err := p.Members.SignInLink(ctx, c.Params("id"), body.MemberID, body.Name, identity.Role(body.Role), token)
	if err != nil {
		return err
	}
	return httpapi.JSON(c, fiber.StatusCreated, wire.SignInLink{
		MemberSignInLink: wire.MemberSignInLink{URL: p.linkURL(token), ExpiresAt: made.ExpiresAt.UnixMilli()}, MemberID: made.MemberID,
	})
}

// oneOf checks that a body has either the id of an existing member, or a new member's name and
// role.
func oneOf(fields *httpapi.Fields, memberID, name, role string) {
	if memberID != "" {
		fields.Add(
			apierr.Detail{Field: "memberId", Code: apierr.NotAllowed, Message: "Send either memberId for an existing member, or name and role for a new one."},
		)
		return
	}
	if strings.TrimSpace(name) == "" {
		fields.Add(
			apierr.Detail{
				Field:   "name",
				Code:    apierr.Required,
				Message: "Identify an existing member by memberId, or send name and role for a new one.",
			},
		)
	}
	if role == "" {
		fields.Add(apierr.Detail{Field: "role", Code: apierr.Required, Message: "Send the new member's role."})
	}
}

// Limits on requests without a key.
const (
	deviceStarts = 10 // per minute from one network
	devicePolls  = 90
	pollSeconds  = 3
)

func (p People) try(ctx context.Context, what string, addr netip.Addr, most int) error {
	_, wait := p.Tries.Take(ctx, ratelimit.Rule{Key: what + ":" + ratelimit.Network(addr).String(), Max: most, Window: time.Minute})
	return tooMany(wait)
}

func tooMany(wait time.Duration) error {
	if wait > 0 {
		return &apierr.Error{Code: apierr.RateLimited, Message: "Too many attempts. Wait a moment and try again.", RetryAfter: wait}
	}
	return nil
}

func (p People) startDevice(c *fiber.Ctx, from netip.Addr) error {
	ctx := c.UserContext()
	var body wire.DeviceCodeCreate
	fields, err := httpapi.DecodeOptional(c, &body)
	if err != nil {
		return err
	}
	if err := fields.Err(); err != nil {
		return err
	}
	// Do not count the attempt before this point: a malformed request stores nothing, so it does
	// not count.
	if err := p.try(ctx, "device", from, deviceStarts); err != nil {
		return err
	}
	name := strings.TrimSpace(body.Name)
	if name == "" {
		name = "Command line"
	}
	asked := newKey(fields, &wire.KeyCreate{Name: name, Scopes: body.Scopes}, identity.OriginFrom(ctx).At)
	code := identity.NewLink(rand.Reader)
	d, err := p.Members.StartDevice(ctx, code, name, asked.Scopes)
	if err != nil {
		return err
	}
	return httpapi.JSON(c, fiber.StatusCreated, wire.DeviceCode{
		Code: code.Secret(), UserCode: d.UserCode, ExpiresAt: d.ExpiresAt.UnixMilli(), Interval: pollSeconds,
		VerificationURL: strings.TrimRight(p.BaseURL, "/") + "/app/device?code=" + d.UserCode,
	})
}

func (p People) collectDevice(c *fiber.Ctx, from netip.Addr) error {
	ctx := c.UserContext()
	if err := p.try(ctx, "device-token", from, devicePolls); err != nil {
		return err
	}
	var body wire.DeviceCodeCollect
	fields, err := httpapi.Decode(c, &body)
	if err != nil {
		return err
	}
	if err := fields.Err(); err != nil {
		return err
	}
	code, err := identity.ParseLink(body.DeviceCode)
	if err != nil {
		return member.ErrNoDevice
	}
	// This secret is not derived from the request, because the first attempt uses up the code,
	// so a repeated request does not get a key.
	secret := identity.NewKey(rand.Reader)
	made, err := p.Members.CollectDevice(ctx, code, secret)
	if err != nil {
		return err
	}
	return httpapi.JSON(c, fiber.StatusCreated, toNewKey(made, secret))
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// secretOf returns the source of randomness for a new secret. With an Idempotency-Key, a
// repeated request must return the same secret, but the secret must not be stored. It is
// therefore derived from the request's nonce, which is stored, and the caller's own key,
// which is not.
func secretOf(c *fiber.Ctx, what string) (io.Reader, error) {
	origin := identity.OriginFrom(c.UserContext())
	if c.Get("Idempotency-Key") == "" {
		return rand.Reader, nil
	}
	_, bearer, _ := strings.Cut(c.Get(fiber.HeaderAuthorization), " ")
	secret := sha256.Sum256([]byte(bearer))
	stream, err := hkdf.Key(sha256.New, secret[:], []byte(origin.Nonce), "linkreel "+what+" 1", 1024)
	if err != nil {
		return nil, fmt.Errorf("derive %s: %w", what, err)
	}
	return bytes.NewReader(stream), nil
}
