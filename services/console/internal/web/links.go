package web

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/linkreel/linkreel/libs/apierr"
	client "github.com/linkreel/linkreel/libs/clients/go"
	"github.com/linkreel/linkreel/services/console/internal/text"
)

// link is a link from a list, or a full record.
type link struct{ client.Link }

// ID returns the link's id. Templates use it for links from lists and for full records.
func (l link) ID() string { return l.LinkSummary.ID }

// Name returns the link's name in lists: its title, or its destination if it has no
// title.
func (l link) Name() string {
	if l.Title != "" {
		return l.Title
	}
	return strings.TrimPrefix(strings.TrimPrefix(l.DestinationURL, "https://"), "http://")
}

// StatusText returns a message that says what visitors currently get.
func (l link) StatusText() string {
	if key := "link.status." + l.Status; text.Has(key) {
		return text.Get(key)
	}
	return l.Status
}

func (l link) TagList() string { return strings.Join(l.Tags, ", ") }

// homePage shows the form for shortening a link, which most people need.
var homePage = page{template: "home.html", view: (*request).homeView, typed: keepRules}

func (r *request) homeView() (view, error) {
	var made *link
	if id := r.Query("made"); id != "" {
		made = &link{}
		err := r.do("GET", "/api/v1/links/"+url.PathEscape(id), nil, made)
		if apierr.CodeOf(err) == apierr.LinkNotFound {
			made = nil
		} else if err != nil {
			return view{}, err
		}
	}
	me, m, err := r.profile()
	if err != nil {
		return view{}, err
	}
	return view{
		Title: text.Get("home.title"),
		Data:  map[string]any{"Made": made, "CanWrite": r.can("links:write"), "Me": me, "Methods": m, "Rules": []ruleForm{}},
	}, nil
}

// createLink handles the Shorten form on the home page and in the list of links.
func createLink(r *request) error {
	if r.form.Has(ruleButton) {
		return homePage.rearranged(r, &client.Link{})
	}
	change, bad := r.decisions(&client.Link{})
	if len(bad) > 0 {
		return homePage.again(r, apierr.Invalid(bad...))
	}
	body := given(change)
	body["url"] = strings.TrimSpace(r.form.Get("url"))
	if slug := strings.TrimSpace(r.form.Get("slug")); slug != "" {
		body["slug"] = slug
	}
	var made client.LinkCreated
	if err := r.do("POST", "/api/v1/links", body, &made); err != nil {
		if apierr.CodeOf(err) == apierr.SlugTaken {
			err = apierr.Invalid(apierr.Detail{Field: "slug", Message: text.Get("home.slug.taken")})
		}
		return homePage.again(r, err)
	}
	return r.done("/app?made="+url.QueryEscape(made.ID), "")
}

func links(r *request) error {
	q := r.filters("q", "tag", "cursor")
	filtered := len(q) > 0
	shown := r.Query("archived")
	if shown != "true" && shown != "all" {
		shown = "false"
	}
	q.Set("archived", shown)
	var list struct {
		Data       []link
		HasMore    bool
		NextCursor *int64
	}
	if err := r.do("GET", "/api/v1/links?"+q.Encode(), nil, &list); err != nil {
		return err
	}
	next := ""
	if list.NextCursor != nil {
		next = r.pageLink(q, strconv.FormatInt(*list.NextCursor, 10))
	}
	return r.render(http.StatusOK, "links.html", view{Title: text.Get("links.title"), Data: map[string]any{
		"Links": list.Data, "Next": next, "Q": q.Get("q"), "Tag": q.Get("tag"), "Archived": shown,
		"Filtered": filtered || shown != "false", "CanWrite": r.can("links:write"),
		"Here": string(r.Request().URI().RequestURI()),
	}})
}

func (r *request) linkPath() string { return "/api/v1/links/" + url.PathEscape(r.Params("id")) }
func (r *request) linkHome() string { return "/app/links/" + url.PathEscape(r.Params("id")) }
