package web

import (
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/linkreel/linkreel/libs/apierr"
	client "github.com/linkreel/linkreel/libs/clients/go"
	"github.com/linkreel/linkreel/services/console/internal/text"
)

// maxBulk is the maximum number of links on a page and in one API call.
const maxBulk = 100

// changeLinks applies one action to all links selected in the list.
func changeLinks(r *request) error {
	ids := r.form["ids"]
	if len(ids) == 1 && strings.Contains(ids[0], ",") { // sent by an undo
		ids = strings.Split(ids[0], ",")
	}
	// The form's value is untrusted, so safeNext checks the URL.
	back := safeNext(r.form.Get("back"))
	if !strings.HasPrefix(back, "/app/links") {
		back = "/app/links"
	}
	if len(ids) == 0 || len(ids) > maxBulk {
		return r.done(back, "bulk.none")
	}
	set := map[string]any{}
	action := r.form.Get("action")
	switch action {
	case "archive", "unarchive":
		set["archived"] = action == "archive"
	case "tag":
		tags := commaList(r.form.Get("tags"))
		if len(tags) == 0 {
			return r.done(back, "bulk.tags")
		}
		set["addTags"] = tags
	case "delete":
	default:
		return errForm
	}
	failed, err := r.bulk(ids, action, set)
	if err != nil {
		return err
	}
	done := url.Values{"done": {"bulk." + action}, "count": {strconv.Itoa(len(ids) - failed)}}
	if failed > 0 {
		done.Set("done", "bulk.partly")
	} else if action == "archive" {
		done.Set("undo", strings.Join(ids, ","))
	}
	return r.doneWith(back, done)
}

// bulk changes links in one call, or one by one on plans without bulk calls. It returns the
// number of links that were not changed.
func (r *request) bulk(ids []string, action string, set map[string]any) (failed int, err error) {
	var results client.BulkResults
	if action == "delete" {
		err = r.do("POST", "/api/v1/links/bulk-delete", client.BulkDelete{IDs: ids}, &results)
	} else {
		err = r.do("PATCH", "/api/v1/links/bulk", map[string]any{"ids": ids, "set": set}, &results)
	}
	var e *apierr.Error
	if !errors.As(err, &e) || e.Code != apierr.PlanRequired {
		for _, item := range results.Results {
			if item.Status >= http.StatusBadRequest {
				failed++
			}
		}
		return failed, err
	}
	var refused atomic.Int64
	// If the session has ended or lacks a scope, every call fails. In that case, the person sees
	// that error, not the number of unchanged links.
	var ended atomic.Pointer[error]
	var wg sync.WaitGroup
	// Do not open a hundred connections for one click.
	turn := make(chan struct{}, 8)
	for _, id := range ids {
		turn <- struct{}{}
		wg.Go(func() {
			defer func() { <-turn }()
			path := "/api/v1/links/" + url.PathEscape(id)
			var err error
			switch action {
			case "delete":
				err = r.do("DELETE", path, nil, nil)
			case "tag":
				// Without the bulk call, tags can only be replaced. A tag that somebody else
				// adds between the two calls is lost. This is acceptable.
				var l link
				if err = r.do("GET", path, nil, &l); err == nil {
					err = r.do("PATCH", path, map[string]any{"tags": append(l.Tags, set["addTags"].([]string)...)}, nil)
				}
			default:
				err = r.do("PATCH", path, set, nil)
			}
			if err == nil {
				return
			}
			refused.Add(1)
			if status := apierr.CodeOf(err).Status(); status == http.StatusUnauthorized || status == http.StatusForbidden {
				ended.Store(&err)
			}
		})
	}
	wg.Wait()
	if err := ended.Load(); err != nil {
		return 0, *err
	}
	return int(refused.Load()), nil
}

// undo returns the links for which the last action can be undone, or "" if there are none.
func (r *request) undo() string {
	ids := r.Query("undo")
	if len(ids) > 8000 || strings.Trim(ids, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-,") != "" {
		return ""
	}
	return ids
}

// counted inserts the number of changed links into a notice.
func (r *request) counted(notice string) string {
	n, err := strconv.Atoi(r.Query("count"))
	if err != nil || n < 0 || n > maxBulk {
		return notice
	}
	return strings.Replace(notice, "{n}", text.Number(int64(n)), 1)
}
