package web

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/services/console/internal/text"
)

// link is what pages show of a link.
type link struct {
	ID             string   `json:"_id"`
	Slug           string   `json:"slug"`
	ShortURL       string   `json:"shortUrl"`
	DestinationURL string   `json:"destinationUrl"`
	Title          string   `json:"title"`
	Clicks         int64    `json:"clicks"`
	CreatedAt      int64    `json:"createdAt"`
	UpdatedAt      int64    `json:"updatedAt"`
	ExpiresAt      *int64   `json:"expiresAt"`
	Status         string   `json:"status"`
	Tags           []string `json:"tags"`
	Archived       bool     `json:"archived"`
}

// Name is what the link is called in lists.
func (l link) Name() string {
	if l.Title != "" {
		return l.Title
	}
	return strings.TrimPrefix(strings.TrimPrefix(l.DestinationURL, "https://"), "http://")
}

func (l link) TagList() string { return strings.Join(l.Tags, ", ") }

// home has the one thing that most people come for.
func home(r *request) error {
	v, err := r.homeView()
	if err != nil {
		return err
	}
	return r.render(http.StatusOK, "home.html", v)
}

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
	return view{Title: text.Get("home.title"), Data: map[string]any{"Made": made, "CanWrite": r.can("links:write")}}, nil
}

// createLink is Shorten, from home and from the list.
func createLink(r *request) error {
	body := map[string]any{"url": strings.TrimSpace(r.form.Get("url"))}
	if slug := strings.TrimSpace(r.form.Get("slug")); slug != "" {
		body["slug"] = slug
	}
	var made struct{ ID string }
	if err := r.do("POST", "/api/v1/links", body, &made); err != nil {
		v, failed := r.homeView()
		if failed != nil {
			return failed
		}
		if apierr.CodeOf(err) == apierr.SlugTaken {
			err = apierr.Invalid(apierr.Detail{Field: "slug", Message: text.Get("home.slug.taken")})
		}
		return r.again(err, "home.html", v)
	}
	return r.done("/app?made="+url.QueryEscape(made.ID), "")
}

func links(r *request) error {
	q := url.Values{}
	for _, name := range []string{"q", "tag", "cursor"} {
		if v := r.Query(name); v != "" {
			q.Set(name, v)
		}
	}
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
		q.Set("cursor", strconv.FormatInt(*list.NextCursor, 10))
		next = "/app/links?" + q.Encode()
	}
	return r.render(http.StatusOK, "links.html", view{Title: text.Get("links.title"), Data: map[string]any{
		"Links": list.Data, "Next": next, "Q": r.Query("q"), "Tag": r.Query("tag"), "Archived": shown,
		"Filtered": r.Query("q") != "" || r.Query("tag") != "" || r.Query("cursor") != "" || shown != "false", "CanWrite": r.can("links:write"),
	}})
}

func (r *request) linkPath() string { return "/api/v1/links/" + url.PathEscape(r.Params("id")) }
func (r *request) linkHome() string { return "/app/links/" + url.PathEscape(r.Params("id")) }

func (r *request) oneLink() (view, error) {
	var l link
	if err := r.do("GET", r.linkPath(), nil, &l); err != nil {
		return view{}, err
	}
	return view{Title: l.Name(), Form: map[string]string{"url": l.DestinationURL, "title": l.Title, "tags": l.TagList()}, Data: map[string]any{
		"Link": l, "CanWrite": r.can("links:write"),
	}}, nil
}

func showLink(r *request) error {
	v, err := r.oneLink()
	if err != nil {
		return err
	}
	return r.render(http.StatusOK, "link-detail.html", v)
}

func editLink(r *request) error {
	tags := []string{}
	for tag := range strings.SplitSeq(r.form.Get("tags"), ",") {
		if tag = strings.TrimSpace(tag); tag != "" {
			tags = append(tags, tag)
		}
	}
	err := r.do("PATCH", r.linkPath(), map[string]any{
		"url": strings.TrimSpace(r.form.Get("url")), "title": strings.TrimSpace(r.form.Get("title")), "tags": tags,
	}, nil)
	if err != nil {
		v, failed := r.oneLink()
		if failed != nil {
			return failed
		}
		return r.again(err, "link-detail.html", v)
	}
	return r.done(r.linkHome(), "saved")
}

// archiveLink puts a link out of sight, or back. It goes on redirecting, so this
// is the undo that deleting has not.
func archiveLink(r *request) error {
	archive := r.form.Get("archived") == "true"
	if err := r.do("PATCH", r.linkPath(), map[string]any{"archived": archive}, nil); err != nil {
		return err
	}
	if archive {
		return r.done(r.linkHome(), "archived")
	}
	return r.done(r.linkHome(), "unarchived")
}

func deleteLink(r *request) error {
	if err := r.do("DELETE", r.linkPath(), nil, nil); err != nil {
		return err
	}
	return r.done("/app/links", "deleted")
}
