package web

import (
	"net/url"
	"slices"
	"strconv"
	"strings"

	client "github.com/linkreel/linkreel/libs/clients/go"
	"github.com/linkreel/linkreel/libs/events"
	"github.com/linkreel/linkreel/services/console/internal/text"
)

type (
	webhook  struct{ client.Webhook }
	delivery struct{ client.Delivery }
)

// State returns a message that says whether the webhook is active, and if not, why.
func (w webhook) State() string {
	switch {
	case w.Enabled && w.Paused:
		return text.Get("webhook.paused")
	case w.Enabled:
		return text.Get("webhook.enabled")
	case w.DisabledReason != nil && text.Has("webhook.disabled."+*w.DisabledReason):
		return text.Get("webhook.disabled." + *w.DisabledReason)
	}
	return text.Get("webhook.disabled")
}

// Sends reports whether messages are being sent. Otherwise, the page offers neither a test nor a
// retry because its notice would wrongly say that the message is being sent.
func (w webhook) Sends() bool { return w.Enabled && !w.Paused }

// All reports whether the webhook receives every event.
func (w webhook) All() bool { return slices.Contains(w.Events, "*") }

func (d delivery) StatusText() string { return text.Get("delivery." + d.Status) }

// eventChoices returns all event types and their descriptions.
func eventChoices(chosen ...string) []option { return options("event.", events.Types(), chosen...) }

func (r *request) webhooksView() (view, error) {
	webhooks, err := listAll[webhook](r, "/api/v1/webhooks")
	if err != nil {
		return view{}, err
	}
	return view{Title: text.Get("webhooks.title"), Form: map[string]string{"all": "true"}, Data: map[string]any{
		"Webhooks": webhooks, "Choices": eventChoices(), "CanWrite": r.can("webhooks:write"),
	}}, nil
}

func (r *request) webhookFields() map[string]any {
	chosen := r.form["events"]
	// Browsers send nothing for an unchecked box. Set the value to "false". Otherwise, a form
	// that is shown again after an error would have the stored or default value.
	if r.form.Get("all") == "" {
		r.form.Set("all", "false")
	}
	if r.form.Get("all") == "true" {
		chosen = []string{"*"}
	} else if chosen == nil {
		chosen = []string{}
	}
	return map[string]any{
		"url": strings.TrimSpace(r.form.Get("url")), "description": strings.TrimSpace(r.form.Get("description")), "events": chosen,
	}
}

// createWebhook shows the secret only in the response to the form, as createKey does with the key.
func createWebhook(r *request) error {
	var made client.WebhookCreated
	err := r.do("POST", "/api/v1/webhooks", r.webhookFields(), &made)
	return webhooksPage.secret(
		r, err, "/app/webhooks/"+url.PathEscape(made.ID), text.Get("webhook.secret.once"), made.Secret,
		func(data map[string]any) { data["Made"] = made },
	)
}

var (
	webhooksPage = page{template: "webhooks.html", view: (*request).webhooksView, typed: typedEvents}
	webhookPage  = page{template: "webhook.html", view: (*request).oneWebhook, typed: typedEvents}
)

// typedEvents keeps the events that the person chose. Only the forms with a url field let
// people choose events.
func typedEvents(r *request, data map[string]any) {
	if _, here := r.form["url"]; here {
		data["Choices"] = eventChoices(r.form["events"]...)
	}
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
		"Webhook": w, "Deliveries": list.Data, "Next": next, "Choices": eventChoices(w.Events...), "CanWrite": r.can("webhooks:write"),
	}}, nil
}

func editWebhook(r *request) error {
	return webhookPage.answer(r, r.do("PATCH", r.webhookPath(), r.webhookFields(), nil), r.webhookHome(), "saved")
}

func enableWebhook(r *request) error {
	enable := r.form.Get("enabled") == "true"
	notice := "webhook.disabled"
	if enable {
		notice = "webhook.enabled"
	}
	return webhookPage.answer(r, r.do("PATCH", r.webhookPath(), map[string]any{"enabled": enable}, nil), r.webhookHome(), notice)
}

func testWebhook(r *request) error {
	return webhookPage.answer(r, r.do("POST", r.webhookPath()+"/test", nil, nil), r.webhookHome(), "webhook.test")
}

func retryDelivery(r *request) error {
	path := r.webhookPath() + "/deliveries/" + url.PathEscape(r.Params("delivery")) + "/retry"
	return webhookPage.answer(r, r.do("POST", path, nil, nil), r.webhookHome(), "webhook.retry")
}

// rollSecret shows the new secret only in the response to the form.
func rollSecret(r *request) error {
	overlap, err := strconv.ParseInt(r.form.Get("overlap"), 10, 64)
	if err != nil {
		overlap = 0
	}
	var made client.WebhookCreated
	err = r.do("POST", r.webhookPath()+"/roll-secret", client.KeyRoll{OverlapSeconds: &overlap}, &made)
	return webhookPage.secret(r, err, r.webhookHome(), text.Get("webhook.secret.once"), made.Secret, func(data map[string]any) {
		data["Secret"] = made.Secret
	})
}

func deleteWebhook(r *request) error {
	return webhookPage.answer(r, r.do("DELETE", r.webhookPath(), nil, nil), "/app/webhooks", "deleted")
}
