package api

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/apispec/wire"
	"github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/libs/httpapi"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/services/events/internal/feed"
)

// A request's maximum wait in seconds, and the maximum length of an object filter.
const (
	maxWait   = 25
	maxObject = 64
)

// listEvents reads the feed, newest first. With `after` or `wait`, it reads forwards from a
// position in the feed, oldest first.
func (h api) listEvents(c *fiber.Ctx) error {
	ctx := c.UserContext()
	account := identity.FromContext(ctx).AccountID
	q, wait, err := feedQuery(c, account)
	if err != nil {
		return err
	}
	args := c.Request().URI().QueryArgs()
	switch {
	case args.Has("after"):
		if q.After, q.From, err = h.Feed.Place(ctx, account, c.Query("after")); err != nil {
			return err
		}
	case args.Has("wait"): // return only new events
		if q.After, err = h.Feed.Head(ctx, account); err != nil {
			return err
		}
	case c.Query("cursor") != "":
		if q.Before, q.From, err = h.Feed.Place(ctx, account, c.Query("cursor")); err != nil {
			return err
		}
	}
	var page feed.Page
	if wait > 0 {
		page, err = h.Feed.Wait(ctx, q, wait)
	} else {
		page, err = h.Feed.Read(ctx, q)
	}
	if err != nil {
		return err
	}
	return httpapi.JSON(c, fiber.StatusOK, toFeed(q, page))
}

func feedQuery(c *fiber.Ctx, account string) (q feed.Query, wait time.Duration, err error) {
	fields := &httpapi.Fields{}
	q = feed.Query{AccountID: account, Object: c.Query("object")}
	limit, bad := httpapi.Limit(c)
	fields.Add(bad...)
	q.Limit = limit
	args := c.Request().URI().QueryArgs()
	seen := map[events.Type]bool{}
	for _, name := range args.PeekMulti("type") {
		t := events.Type(name)
		if !t.Known() {
			fields.Add(apierr.Detail{Field: "type", Code: apierr.Unknown, Message: noType(string(name))})
		} else if !seen[t] {
			seen[t] = true
			q.Types = append(q.Types, t)
		}
	}
	if len(q.Object) > maxObject {
		fields.Add(apierr.Detail{Field: "object", Code: apierr.TooLong, Message: "Use the id of a record.", Max: maxObject})
	}
	q.Forward = args.Has("after") || args.Has("wait")
	if q.Forward && args.Has("cursor") {
		fields.Add(apierr.Detail{Field: "cursor", Code: apierr.NotAllowed,
			Message: "Use `cursor` to read backwards or `after` to read forwards, not both."})
	}
	if args.Has("wait") {
		n, err := strconv.Atoi(c.Query("wait"))
		if err != nil || n < 0 || n > maxWait {
			fields.Add(apierr.Detail{Field: "wait", Code: apierr.OutOfRange, Message: "Use whole seconds from 0 to 25.", Max: maxWait})
		}
		wait = time.Duration(n) * time.Second
	}
	return q, wait, fields.Err()
}

// noType returns the error message for an invalid type name.
func noType(name string) string {
	if strings.Contains(name, ",") {
		return "Specify one type each time, and repeat the parameter: type=link.created&type=link.deleted."
	}
	return "There is no event type with this name. Use one such as link.created."
}

func toFeed(q feed.Query, page feed.Page) wire.EventPage {
	out := wire.EventPage{Data: make([]wire.Event, len(page.Events)), HasMore: page.More}
	last := q.After
	for i, e := range page.Events {
		out.Data[i] = toEvent(e)
		last = e.Seq
	}
	// A caller that reads forwards always gets a cursor for its next request.
	if q.Forward || page.More {
		cursor := feed.Cursor(q.AccountID, feed.Place{Seq: last, History: page.History})
		out.NextCursor = &cursor
	}
	return out
}

func toEvent(e *feed.Event) wire.Event {
	b := wire.Event{
		ID: e.ID, Type: string(e.Type), Object: e.Object, CreatedAt: e.At.UnixMilli(),
		Actor: wire.Actor{Type: string(e.Actor.Type), ID: e.Actor.ID, Name: e.Actor.Name}, Data: json.RawMessage(e.Data),
	}
	b.RequestID = wire.OrNull(e.RequestID)
	return b
}
