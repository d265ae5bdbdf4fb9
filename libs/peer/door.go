package peer

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"io"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/linkreel/linkreel/libs/apierr"
	"github.com/linkreel/linkreel/libs/httpapi"
)

// Door authenticates services by their tokens, and allows each service only its own routes.
type Door struct {
	api    *httpapi.API
	tokens map[Service]string
}

// NewDoor returns a door for an internal API's routes. tokens contains each calling service's token
// setting. Calls with any other token are rejected.
func NewDoor(api *httpapi.API, tokens map[Service]string) *Door { return &Door{api, tokens} }

// Answer adds a route. The route decodes the body, passes it to do, and sends the result.
func Answer[In, Out any](d *Door, path string, do func(ctx context.Context, in In) (Out, error)) {
	route(d, path, func(c *fiber.Ctx, in In) error {
		out, err := do(c.UserContext(), in)
		if err != nil {
			return err
		}
		return httpapi.JSON(c, fiber.StatusOK, out)
	})
}

// Stream adds a route with a response of any length, in JSON Lines.
func Stream[In any](d *Door, path string, do func(ctx context.Context, in In, w io.Writer) error) {
	route(d, path, func(c *fiber.Ctx, in In) error {
		return httpapi.Stream(c, httpapi.JSONLines, func(ctx context.Context, w io.Writer) error { return do(ctx, in, w) })
	})
}

func route[In any](d *Door, path string, serve func(c *fiber.Ctx, in In) error) {
	type entry struct {
		token hash
		may   int // 1 if the token's service may call this route
	}
	var known []entry
	for service, token := range d.tokens {
		may := 0
		if service.may(path) {
			may = 1
		}
		for _, h := range hashes(token) {
			known = append(known, entry{h, may})
		}
	}
	d.api.Public(fiber.MethodPost, path, func(c *fiber.Ctx) error {
		// Compare all hashes so that response times reveal nothing about the token, not even its
		// length.
		scheme, token, _ := strings.Cut(c.Get(fiber.HeaderAuthorization), " ")
		shown, found, may := sha256.Sum256([]byte(token)), 0, 0
		for _, k := range known {
			same := subtle.ConstantTimeCompare(k.token[:], shown[:])
			found, may = found|same, may|same&k.may
		}
		if !strings.EqualFold(scheme, "Bearer") || found == 0 {
			return apierr.New(apierr.InvalidAPIKey, "This is not an internal token.")
		}
		if may == 0 {
			return apierr.New(apierr.Forbidden, "This service is not allowed to call this route.") //nolint:forbidigo // a route is refused here, not a record
		}
		// From here on, the response comes from the handler, even if it is an error.
		c.Set(callHeader, c.Get(callHeader))
		var in In
		// The caller is a service in the installation, so a malformed body is a bug. The error does
		// not need to name the field.
		if err := json.Unmarshal(c.Request().Body(), &in); err != nil {
			return apierr.New(apierr.InvalidJSON, "The body is malformed.")
		}
		return serve(c, in)
	})
}
