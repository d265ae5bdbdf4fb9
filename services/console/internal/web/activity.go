package web

import (
	"cmp"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"

	client "github.com/linkreel/linkreel/libs/clients/go"
	"github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/services/console/internal/text"
)

type event struct{ client.Event }

// Text describes the event in words.
func (e event) Text() string {
	if text.Has("event." + e.Type) {
		return text.Get("event." + e.Type)
	}
	return e.Type // an event type that a newer events service added
}

// Who returns the actor's name.
func (e event) Who() string {
	kind := text.Get("activity.actor." + e.Actor.Type)
	if e.Actor.Name == "" || e.Actor.Type == "system" || e.Actor.Type == "operator" {
		return kind
	}
	return kind + " " + e.Actor.Name
}

// Name returns the record's name on the page: its title, its hostname or some other field, or else
// its id. It returns "" for sessions.
func (e event) Name() string {
	if strings.HasPrefix(e.Type, "session.") {
		return ""
	}
	var record map[string]any
	if json.Unmarshal(e.Data, &record) != nil {
		return e.Object
	}
	for _, field := range []string{"title", "hostname", "name", "shortUrl", "shareUrl", "description", "url"} {
		if s, ok := record[field].(string); ok && strings.TrimSpace(s) != "" {
			return s
		}
	}
	return e.Object
}

// Page returns the URL of the record's page, or "" if it does not have one or is deleted.
func (e event) Page() string {
	kind, what, _ := strings.Cut(e.Type, ".")
	switch {
	case what == "deleted" || e.Object == "":
		return ""
	case kind == "link" || kind == "video" || kind == "webhook":
		return "/app/" + kind + "s/" + url.PathEscape(e.Object)
	case kind == "domain" || kind == "key" || kind == "member":
		return "/app/" + kind + "s"
	case kind == "invitation":
		return "/app/members"
	}
	return ""
}

// activity shows the account's event feed.
func activity(r *request) error {
	q := r.filters("type", "object", "cursor")
	if !events.Type(q.Get("type")).Known() {
		q.Del("type")
	}
	var list struct {
		Data       []event
		NextCursor *string
	}
	if err := r.do("GET", "/api/v1/events?"+q.Encode(), nil, &list); err != nil {
		return err
	}
	next := ""
	if list.NextCursor != nil {
		next = r.pageLink(q, *list.NextCursor)
	}
	choices := eventChoices(q.Get("type"))
	slices.SortStableFunc(choices, func(a, b option) int { return cmp.Compare(a.Text, b.Text) })
	return r.render(http.StatusOK, "activity.html", view{Title: text.Get("activity.title"), Data: map[string]any{
		"Events": list.Data, "Next": next, "Types": choices, "Object": q.Get("object"), "Filtered": len(q) > 0,
	}})
}
