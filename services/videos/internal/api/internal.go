package api

import (
	"context"
	"encoding/json"
	"io"

	"github.com/linkreel/linkreel/libs/httpapi"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/tenant/keeper"
	"github.com/linkreel/linkreel/libs/tenant/wire"
	"github.com/linkreel/linkreel/services/videos/internal/video"
)

// Internal adds the routes through which auth reports its decisions about accounts.
func Internal(a *httpapi.API, token string, accounts *keeper.Keeper, videos *video.Service, addresses video.Addresses) {
	wire.Routes(a, token, holder{accounts, videos, presenter{videos, addresses, videos.RestoredAt}})
}

// holder implements the calls that auth makes to this service.
type holder struct {
	*keeper.Keeper
	*video.Service
	shown presenter
}

// exportPage is the number of videos that an export reads at a time, to limit its memory use.
const exportPage = 100

// Export writes an account's videos as JSON Lines, with all fields that the owner sees. A
// download URL stops working when the exporting caller loses its rights.
func (h holder) Export(ctx context.Context, account string, w io.Writer) error {
	out := json.NewEncoder(w)
	out.SetEscapeHTML(false)
	return h.Service.Each(ctx, account, exportPage, func(v *video.Video) error {
		// Each yields only summaries, and the export needs full records.
		whole, err := h.Service.Owned(ctx, account, v.ID)
		if video.IsNotFound(err) {
			return nil // deleted during the export
		}
		if err != nil {
			return err
		}
		line := h.shown.record(whole)
		if by := identity.FromContext(ctx); by != nil && whole.Media != nil && whole.Media.Download != "" && whole.TakenDown == nil {
			address := h.shown.addresses.Download(whole.Slug, h.Service.Own(whole, by))
			line.DownloadURL = &address
		}
		return out.Encode(struct {
			Type string `json:"type"`
			Data any    `json:"data"`
		}{"video", line})
	})
}
