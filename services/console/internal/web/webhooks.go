package web

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/linkreel/linkreel/libs/apierr"
	client "github.com/linkreel/linkreel/libs/clients/go"
	"github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/services/console/internal/text"
)

type (
	webhook     struct{ client.Webhook }
	delivery    struct{ client.Delivery }
	eventChoice struct {
		Type, Text string
		Chosen     bool
	}
)

// State says in words whether the webhook works, and why not.
func (w webhook) State() string {
	switch {
	case w.Enabled:
		return text.Get("webhook.enabled")
	case w.DisabledReason != nil && text.Has("webhook.disabled."+*w.DisabledReason):
		return text.Get("webhook.disabled." + *w.DisabledReason)
	}
	return text.Get("webhook.disabled")
}

// All reports whether every event is sent.
func (w webhook) All() bool { return slices.Contains(w.Events, "*") }

func (d delivery) StatusText() string { return text.Get("delivery." + d.Status) }

// eventChoices are all types with their words.
func eventChoices(chosen []string) []eventChoice {
	types := events.Types()
	out := make([]eventChoice, len(types))
	for i, t := range types {
		out[i] = eventChoice{string(t), text.Get("event." + string(t)), slices.Contains(chosen, string(t))}
	}
	return out
}

func (r *request) webhooksView() (view, error) {
	var list struct{ Data []webhook }
	if err := r.do("GET", "/api/v1/webhooks", nil, &list); err != nil {
		return view{}, err
	}
	return view{Title: text.Get("webhooks.title"), Form: map[string]string{"all": "true"}, Data: map[string]any{
		"Webhooks": list.Data, "Choices": eventChoices(nil), "CanWrite": r.can("webhooks:write"),
	}}, nil
}

func webhooks(r *request) error {
	v, err := r.webhooksView()
	if err != nil {
		return err
	}
	return r.render(http.StatusOK, "webhooks.html", v)
}

func (r *request) webhookFields() map[string]any {
	chosen := r.form["events"]
	if r.form.Get("all") == "true" {
		chosen = []string{"*"}
	} else if chosen == nil {
		chosen = []string{}
	}
	return map[string]any{
		"url": strings.TrimSpace(r.form.Get("url")), "description": strings.TrimSpace(r.form.Get("description")), "events": chosen,
	}
}

// createWebhook shows the secret in the answer to the form and nowhere else, like
// a new key.
func createWebhook(r *request) error {
	var made client.WebhookCreated
	err := r.do("POST", "/api/v1/webhooks", r.webhookFields(), &made)
	v, failed := r.webhooksView()
	if err == nil && failed != nil {
		return r.onlySecret(failed, "/app/webhooks/"+url.PathEscape(made.ID), text.Get("webhook.secret.once"), made.Secret)
	}
	if failed != nil {
		return failed
	}
	data := v.Data.(map[string]any)
	if err != nil {
		data["Choices"] = eventChoices(r.form["events"])
		return r.again(atField(err), "webhooks.html", v)
	}
	data["Made"] = made
	return r.render(http.StatusOK, "webhooks.html", v)
}

func (r *request) webhookPath() string { return "/api/v1/webhooks/" + url.PathEscape(r.Params("id")) }
func (r *request) webhookHome() string { return "/app/webhooks/" + url.PathEscape(r.Params("id")) }

func (r *request) oneWebhook() (view, error) {
	var w webhook
	header, err := r.read(r.webhookPath(), &w)
	if err != nil {
		return view{}, err
	}
	q := url.Values{"limit": {"20"}}
	if cursor := r.Query("cursor"); cursor != "" {
		q.Set("cursor", cursor)
	}
	var list struct {
		Data       []delivery
		NextCursor *string
	}
	if err := r.do("GET", r.webhookPath()+"/deliveries?"+q.Encode(), nil, &list); err != nil {
		return view{}, err
	}
	next := ""
	if list.NextCursor != nil {
		next = r.webhookHome() + "?" + url.Values{"cursor": {*list.NextCursor}}.Encode()
	}
	title := w.Description
	if title == "" {
		title = w.URL
	}
	form := map[string]string{"url": w.URL, "description": w.Description, "all": strconv.FormatBool(w.All())}
	return view{Title: title, Form: form, Rev: header.Get("ETag"), Was: shown(form), Data: map[string]any{
		"Webhook": w, "Deliveries": list.Data, "Next": next, "Choices": eventChoices(w.Events), "CanWrite": r.can("webhooks:write"),
	}}, nil
}

func showWebhook(r *request) error {
	v, err := r.oneWebhook()
	if err != nil {
		return err
	}
	return r.render(http.StatusOK, "webhook.html", v)
}

// onWebhook answers a form of a webhook's page.
func (r *request) onWebhook(err error, notice string) error {
	if err == nil {
		return r.done(r.webhookHome(), notice)
	}
	if apierr.CodeOf(err) == apierr.WebhookNotFound {
		return err
	}
	v, failed := r.oneWebhook()
	if failed != nil {
		return failed
	}
	if _, editing := r.form["url"]; editing {
		v.Data.(map[string]any)["Choices"] = eventChoices(r.form["events"])
	} else {
		for name, value := range v.Form { // another form of the page: this one stays as stored
			r.form.Set(name, value)
		}
	}
	return r.again(atField(err), "webhook.html", v)
}

func editWebhook(r *request) error {
	return r.onWebhook(r.do("PATCH", r.webhookPath(), r.webhookFields(), nil), "saved")
}

func enableWebhook(r *request) error {
	enable := r.form.Get("enabled") == "true"
	notice := "webhook.disabled"
	if enable {
		notice = "webhook.enabled"
	}
	return r.onWebhook(r.do("PATCH", r.webhookPath(), map[string]any{"enabled": enable}, nil), notice)
}

func testWebhook(r *request) error {
	return r.onWebhook(r.do("POST", r.webhookPath()+"/test", nil, nil), "webhook.test")
}

func retryDelivery(r *request) error {
	return r.onWebhook(r.do("POST", r.webhookPath()+"/deliveries/"+url.PathEscape(r.Params("delivery"))+"/retry", nil, nil), "webhook.retry")
}

// rollSecret shows the new secret in the answer to the form and nowhere else.
func rollSecret(r *request) error {
	overlap, err := strconv.Atoi(r.form.Get("overlap"))
	if err != nil {
		overlap = 0
	}
	var made client.WebhookCreated
	if err := r.do("POST", r.webhookPath()+"/roll-secret", map[string]any{"overlapSeconds": overlap}, &made); err != nil {
		return r.onWebhook(err, "")
	}
	v, err := r.oneWebhook()
	if err != nil {
		return r.onlySecret(err, r.webhookHome(), text.Get("webhook.secret.once"), made.Secret)
	}
	v.Data.(map[string]any)["Secret"] = made.Secret
	return r.render(http.StatusOK, "webhook.html", v)
}

func deleteWebhook(r *request) error {
	if err := r.do("DELETE", r.webhookPath(), nil, nil); err != nil {
		return r.onWebhook(err, "")
	}
	return r.done("/app/webhooks", "deleted")
}
