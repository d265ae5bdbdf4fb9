// Package console is the service for <base>/app: the pages where people sign in and work. It
// calls the public API with the person's session as the key and renders the responses as
// HTML. It stores nothing, so replacing a pod does not sign anyone out.
//
// The console calls the API through the Go client (libs/clients/go). internal/web contains the
// pages, internal/text all English text, and libs/design the visual design. libs/signin defines the
// calls to auth for sign-in. web/*.ts contains the few functions that need JavaScript.
//
// To add a page, write a handler and its template in internal/web (copy links.go and
// templates/links.html), add its sentences to internal/text, and add a row to the table in
// internal/web/routes.go. The navigation is built from that table too.
package console

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/linkreel/linkreel/libs/boot"
	"github.com/linkreel/linkreel/libs/httpapi"
	"github.com/linkreel/linkreel/libs/httpserver"
	"github.com/linkreel/linkreel/libs/peer"
	"github.com/linkreel/linkreel/services/console/internal/web"
)

// Config holds the service's settings.
type Config struct {
	boot.Config

	// APIAddr is the address to listen on for the pages.
	APIAddr string `env:"LINKREEL_API_ADDR" envDefault:":8080"`
	// BaseURL is the pages' public URL, without /app.
	BaseURL string `env:"LINKREEL_BASE_URL" envDefault:"http://localhost:8080"`
	// APIRoutes maps paths in the public API to addresses inside the cluster, such as
	// "/api/v1/links=http://links:8080,/=http://auth:8080". The longest matching path wins.
	// If there are no routes, all calls go to BaseURL.
	APIRoutes map[string]string `env:"LINKREEL_API_ROUTES" envKeyValSeparator:"="`
	// StorageURL is the prefix of the videos' signed URLs. Use the same value as for the videos
	// service.
	StorageURL string `env:"LINKREEL_STORAGE_PUBLIC_URL" envDefault:"https://storage.googleapis.com"`
	// AuthURL is auth's internal address. InternalToken is the secret shared by the console
	// and auth, "NEW,OLD" during a rotation.
	AuthURL       string `env:"LINKREEL_AUTH_URL" envDefault:"http://localhost:8090"`
	InternalToken string `env:"LINKREEL_INTERNAL_TOKEN,notEmpty"`
	// TrustedProxies are the networks from which X-Forwarded-For is trusted.
	TrustedProxies []netip.Prefix `env:"LINKREEL_TRUSTED_PROXIES"`
	// TrustedProxyHops is the number of addresses that the proxies append to X-Forwarded-For. If it
	// is set, TrustedProxies is ignored. Google's load balancers append two.
	TrustedProxyHops int `env:"LINKREEL_TRUSTED_PROXY_HOPS"`

	// Now is the clock; nil means the system clock.
	Now func() time.Time `env:"-"`
}

// signInTime bounds a call to auth. It is longer than auth's own timeout for a call to an
// identity provider.
const signInTime = 9 * time.Second

// New returns the service. It does not connect, so the console can start while the other
// services are down.
func New(_ context.Context, cfg Config) (*boot.Service, error) {
	base, err := url.Parse(cfg.BaseURL)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return nil, fmt.Errorf("console: LINKREEL_BASE_URL %q must be an address that starts with http:// or https://", cfg.BaseURL)
	}
	if cfg.InternalToken == "" {
		return nil, errors.New("console: set LINKREEL_INTERNAL_TOKEN")
	}
	storage, err := url.Parse(cfg.StorageURL)
	if err != nil || storage.Host == "" || strings.ContainsAny(storage.Host, " ;,'") {
		return nil, fmt.Errorf("console: LINKREEL_STORAGE_PUBLIC_URL %q must be an address such as https://storage.googleapis.com", cfg.StorageURL)
	}
	routes := cfg.APIRoutes
	if len(routes) == 0 {
		routes = map[string]string{"/": cfg.BaseURL}
	}
	api, err := web.NewAPI(routes)
	if err != nil {
		return nil, fmt.Errorf("console: %w", err)
	}
	auth := peer.NewClient(cfg.AuthURL, cfg.InternalToken, signInTime)
	pages := web.New(web.Config{Base: base, API: api, Auth: auth, Storage: storage.Scheme + "://" + storage.Host, Now: cfg.Now})
	app := httpapi.New(httpapi.Options{
		Name: "console", Proxies: httpserver.Proxies{Trusted: cfg.TrustedProxies, Hops: cfg.TrustedProxyHops}, BaseURL: cfg.BaseURL,
		Page: pages.ErrorPage, Now: cfg.Now, Access: cfg.LogAccess,
	})
	pages.Routes(app)
	first := []boot.Call{boot.Reach("auth", cfg.AuthURL)}
	for path, address := range cfg.APIRoutes {
		first = append(first, boot.Reach("the API's "+path, address))
	}
	svc := &boot.Service{
		Name: "console", Servers: []boot.Server{{Name: "api", Addr: cfg.APIAddr, Handler: app.Handler()}}, WarmUp: first,
	}
	svc.CloseWith(func() error { auth.Close(); return nil })
	return svc, nil
}
