package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"time"
)

// person is a user who is signed in to the console in a separate browser.
type person struct {
	t    *target // the deployment, with the person's cookies
	csrf string
	made []string // destinations of the accepted forms
	hard int      // attempts with no response or a 5xx
}

var csrfInput = regexp.MustCompile(`name="csrf" value="([^"]+)"`)

// signIn opens a one-time link the way a person does. The link shows a page with a button.
func signIn(ctx context.Context, t *target, account, name string) (*person, error) {
	var link struct{ URL string }
	if _, err := t.want(ctx, http.StatusCreated, http.MethodPost, t.operator+"/admin/v1/accounts/"+account+"/sign-in-links", t.token,
		map[string]any{"name": name, "role": "owner"}, &link); err != nil {
		return nil, fmt.Errorf("cannot create a sign-in link: %w", err)
	}
	u, err := url.Parse(link.URL)
	if err != nil {
		return nil, err
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		return nil, err
	}
	client := *t.client
	client.Jar = jar
	p := &person{t: &target{base: t.base, client: &client}}
	if _, err := p.page(ctx, "/app/sign-in?"+u.RawQuery); err != nil {
		return nil, err
	}
	a, err := p.send(ctx, "/app/sign-in", url.Values{"link": {u.Query().Get("link")}})
	if err != nil {
		return nil, err
	}
	if a.status != http.StatusSeeOther || strings.Contains(a.header.Get("Location"), "sign-in") {
		return nil, fmt.Errorf("signing in returned %d with Location %q, want 303 to the console", a.status, a.header.Get("Location"))
	}
	_, err = p.page(ctx, "/app")
	return p, err
}

// page fetches a page and remembers the CSRF token from its forms.
func (p *person) page(ctx context.Context, path string) (*answer, error) {
	a, err := p.t.call(ctx, http.MethodGet, p.t.base+path, "", nil)
	if err != nil {
		return nil, err
	}
	if a.status != http.StatusOK {
		return a, fmt.Errorf("GET %s returned %d with Location %q, want 200", withoutQuery(p.t.base+path), a.status, withoutQuery(a.header.Get("Location")))
	}
	if m := csrfInput.FindSubmatch(a.body); m != nil {
		p.csrf = string(m[1])
	}
	return a, nil
}

func (p *person) send(ctx context.Context, path string, form url.Values) (*answer, error) {
	form.Set("csrf", p.csrf)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.t.base+path, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return p.t.send(req)
}

// cookies returns the session's cookies as the value of a Cookie header.
func (p *person) cookies() string {
	u, err := url.Parse(p.t.base)
	if err != nil {
		return ""
	}
	var all []string
	for _, c := range p.t.client.Jar.Cookies(u) {
		all = append(all, c.Name+"="+c.Value)
	}
	return strings.Join(all, "; ")
}

// people simulates people who use the console until ctx is done. Each person reads the list,
// creates a link with the form, and retries after a failure. The console must not sign anybody out,
// and every accepted form's link must exist.
func people(ctx context.Context, t *target, count int) error {
	account, key, err := makeAccount(ctx, t, "enterprise")
	if err != nil {
		return err
	}
	t.client.Timeout = 5 * time.Second
	all := make([]*person, count)
	for i := range all {
		if all[i], err = signIn(ctx, t, account, fmt.Sprintf("Person %d", i)); err != nil {
			return err
		}
	}
	fmt.Println("     begun")
	errs := make([]error, count)
	var wg sync.WaitGroup
	for i, p := range all {
		wg.Go(func() { errs[i] = p.work(ctx, i) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	there := map[string]bool{}
	if err := t.eachLink(after, key, "", func(_, destination string) { there[destination] = true }); err != nil {
		return err
	}
	forms, hard := 0, 0
	for _, p := range all {
		hard += p.hard
		for _, destination := range p.made {
			if !there[destination] {
				return fmt.Errorf("the form for %s was accepted, but its link does not exist", destination)
			}
			forms++
		}
		if _, err := p.page(after, "/app"); err != nil {
			return fmt.Errorf("a person was signed out: %w", err)
		}
	}
	if forms == 0 {
		return errors.New("no form was accepted")
	}
	ok(fmt.Sprintf("%d people sent %d forms and all links exist; nobody was signed out; %d attempts were retried", count, forms, hard))
	return nil
}

func (p *person) work(ctx context.Context, number int) error {
	tick := time.NewTicker(150 * time.Millisecond)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		call := context.WithoutCancel(ctx) // in-flight requests must finish
		switch a, err := p.page(call, "/app/links"); {
		case a != nil && a.status < http.StatusInternalServerError && err != nil:
			return fmt.Errorf("person %d was signed out: %w", number, err)
		case err != nil:
			p.hard++
			continue
		}
		destination := fmt.Sprintf("https://example.com/form%dx%d", number, i)
		switch a, err := p.send(call, "/app/links", url.Values{"url": {destination}}); {
		case err != nil || a.status >= http.StatusInternalServerError:
			p.hard++
		case a.status == http.StatusSeeOther && strings.Contains(a.header.Get("Location"), "sign-in"):
			return fmt.Errorf("person %d was signed out while sending a form", number)
		case a.status != http.StatusSeeOther:
			return fmt.Errorf("a form returned %d, want 303: %.300s", a.status, a.body)
		default:
			p.made = append(p.made, destination)
		}
	}
}
