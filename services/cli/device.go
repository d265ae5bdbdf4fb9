package cli

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"time"

	client "github.com/linkreel/linkreel/libs/clients/go"
)

// keyByBrowser lets the user sign in to the console and approve a key for this machine. The user
// compares the codes on both screens so that only this request is approved.
func (a *app) keyByBrowser(ctx context.Context, base string) (string, error) {
	c, err := client.New(client.Config{BaseURL: base, WithoutKey: true, UserAgent: "linkreel-cli/1", Sleep: a.env.Sleep})
	if err != nil {
		return "", err
	}
	name := "Command line"
	if host, err := os.Hostname(); err == nil && host != "" {
		name += " on " + host
	}
	asked, err := c.CreateDeviceCode(ctx, client.DeviceCodeCreate{Name: name})
	if err != nil {
		return "", err
	}
	// The server chooses the URL, so only pass it to the system if it is a web address.
	if u, err := url.Parse(asked.VerificationURL); err != nil || u.Scheme != "https" && u.Scheme != "http" {
		return "", fmt.Errorf("%s returned a sign-in address that does not start with http:// or https://", base)
	}
	fmt.Fprintf(a.env.Err, "Sign in at %s\nand compare the code: %s\n", clean(asked.VerificationURL), clean(asked.UserCode))
	if a.env.Open != nil {
		_ = a.env.Open(ctx, asked.VerificationURL) // if this fails, the user can still open the printed URL
	}
	pause := time.Duration(max(1, min(asked.Interval, 30))) * time.Second
	for a.env.Now().Before(asked.ExpiresAt.Time()) {
		if err := a.env.pause(ctx, pause); err != nil {
			return "", err
		}
		key, err := c.CollectDeviceKey(ctx, client.DeviceCodeCollect{DeviceCode: asked.Code})
		if err == nil {
			return key.Secret, nil
		}
		var refused *client.APIError
		if !errors.As(err, &refused) || refused.Code != "AUTHORIZATION_PENDING" {
			return "", err
		}
	}
	return "", &client.APIError{Status: 403, Code: "FORBIDDEN", Message: "Nobody approved the key in time. Run `linkreel login` again"}
}

// openBrowser opens a URL in the user's browser.
func openBrowser(ctx context.Context, address string) error {
	var cmd *exec.Cmd
	switch runtime.GOOS {
	case "darwin":
		cmd = exec.CommandContext(ctx, "open", address)
	case "windows":
		cmd = exec.CommandContext(ctx, "rundll32", "url.dll,FileProtocolHandler", address)
	default:
		if os.Getenv("DISPLAY") == "" && os.Getenv("WAYLAND_DISPLAY") == "" {
			return errors.New("there is no display")
		}
		cmd = exec.CommandContext(ctx, "xdg-open", address)
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() { _ = cmd.Wait() }() // some openers exit immediately, others when the browser closes
	return nil
}
