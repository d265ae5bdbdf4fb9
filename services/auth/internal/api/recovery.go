package api

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/gofiber/fiber/v2"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/apispec/wire"
	"github.com/linkreel/linkreel/libs/firestoredb"
	"github.com/linkreel/linkreel/libs/httpapi"
	"github.com/linkreel/linkreel/libs/restored"
)

// Recovery adds the operator's routes for resuming webhooks and the janitor after a restore.
func Recovery(a *httpapi.API, db *firestoredb.DB, token string) {
	h := recovery{db}
	add := forOperator(a, token)
	add(fiber.MethodGet, "/admin/v1/recovery", h.get)
	add(fiber.MethodPost, "/admin/v1/recovery/resume", h.resume)
}

type recovery struct{ db *firestoredb.DB }

func (h recovery) get(c *fiber.Ctx) error {
	r, err := restored.Read(c.UserContext(), h.db)
	if err != nil {
		return err
	}
	return httpapi.JSON(c, fiber.StatusOK, toRecovery(r))
}

func (h recovery) resume(c *fiber.Ctx) error {
	var body wire.RecoveryResume
	fields, err := httpapi.Decode(c, &body)
	if err != nil {
		return err
	}
	if !body.Webhooks && !body.Janitor && fields.Err() == nil {
		fields.Add(apierr.Detail{Field: "webhooks", Code: apierr.Required, Message: "Set webhooks, janitor, or both to true to choose what to resume."})
	}
	if body.RestoreID == "" && fields.Err() == nil {
		fields.Add(apierr.Detail{Field: "restoreId", Code: apierr.Required, Message: "Send the restoreId that GET /admin/v1/recovery returned."})
	}
	if err := fields.Err(); err != nil {
		return err
	}
	ctx := c.UserContext()
	r, err := restored.Resume(ctx, h.db, body.RestoreID, restored.Pauses{Webhooks: body.Webhooks, Janitor: body.Janitor})
	if errors.Is(err, restored.ErrOther) {
		return &apierr.Error{Code: apierr.PreconditionFailed, Err: err, Message: fmt.Sprintf(
			"The last restore is %s, not %s, so nothing was resumed. Check the data from the last restore, then send its restoreId.", r.ID, body.RestoreID)}
	}
	if err != nil {
		return err
	}
	if r.ID == "" { // the database has never been restored
		return httpapi.JSON(c, fiber.StatusOK, toRecovery(r))
	}
	slog.InfoContext(ctx, "audit", "action", "recovery.resumed", "restore", r.ID, "webhooks", body.Webhooks, "janitor", body.Janitor)
	return httpapi.JSON(c, fiber.StatusOK, toRecovery(r))
}

func toRecovery(r restored.Record) wire.Recovery {
	return wire.Recovery{
		RestoreID: wire.OrNull(r.ID), DataAt: wire.Millis(r.DataAt), RestoredAt: wire.Millis(r.RestoredAt),
		WebhooksPaused: r.WebhooksPaused(), WebhooksResumedAt: wire.Millis(r.WebhooksResumedAt),
		JanitorPaused: r.JanitorPaused(), JanitorResumedAt: wire.Millis(r.JanitorResumedAt),
	}
}
