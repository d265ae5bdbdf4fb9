package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strings"
)

// Operator calls the operator's API, which has its own address and takes the operator's
// token.
type Operator struct{ c *Client }

// NewOperator is like [New]. BaseURL is the admin address, and Key is the admin token.
func NewOperator(cfg Config) (*Operator, error) {
	c, err := New(cfg)
	if err != nil {
		return nil, err
	}
	return &Operator{c}, nil
}

// Accounts walks all accounts whose name or id has query in it.
func (o *Operator) Accounts(ctx context.Context, query string) iter.Seq2[OperatorAccount, error] {
	return pages[OperatorAccount](ctx, o.c, "/admin/v1/accounts", filter(nil, map[string]string{"q": query}))
}

// Account reads one account.
func (o *Operator) Account(ctx context.Context, id string) (*OperatorAccount, error) {
	return answer[OperatorAccount](ctx, o.c, http.MethodGet, "/admin/v1/accounts/"+url.PathEscape(id), nil)
}

// CreateAccount makes an account on a plan.
func (o *Operator) CreateAccount(ctx context.Context, name, plan string) (*OperatorAccount, error) {
	return answer[OperatorAccount](ctx, o.c, http.MethodPost, "/admin/v1/accounts", map[string]string{"name": name, "plan": plan})
}

// SignInLink makes a sign-in link for a new member with this name and role.
func (o *Operator) SignInLink(ctx context.Context, account, name, role string) (*SignInLink, error) {
	return answer[SignInLink](
		ctx, o.c, http.MethodPost, "/admin/v1/accounts/"+url.PathEscape(account)+"/sign-in-links",
		map[string]string{"name": name, "role": role},
	)
}

// MemberSignInLink makes a sign-in link for an existing member.
func (o *Operator) MemberSignInLink(ctx context.Context, account, member string) (*SignInLink, error) {
	return answer[SignInLink](
		ctx, o.c, http.MethodPost, "/admin/v1/accounts/"+url.PathEscape(account)+"/sign-in-links",
		map[string]string{"memberId": member},
	)
}

// Suspend suspends an account. If suspended is false, it activates the account again.
func (o *Operator) Suspend(ctx context.Context, id string, suspended bool) error {
	return o.c.call(ctx, http.MethodPatch, "/admin/v1/accounts/"+url.PathEscape(id), map[string]bool{"suspended": suspended}, nil)
}

// DeleteAccount starts to erase a suspended account with all its data.
func (o *Operator) DeleteAccount(ctx context.Context, id string) error {
	return o.c.call(ctx, http.MethodDelete, "/admin/v1/accounts/"+url.PathEscape(id), nil, nil)
}

// TakeDown makes a link or video unavailable on every replica.
func (o *Operator) TakeDown(ctx context.Context, in TakedownCreate) (*Takedown, error) {
	return answer[Takedown](ctx, o.c, http.MethodPost, "/admin/v1/takedowns", in)
}

// Takedowns walks the current takedowns.
func (o *Operator) Takedowns(ctx context.Context) iter.Seq2[Takedown, error] {
	return pages[Takedown](ctx, o.c, "/admin/v1/takedowns", url.Values{})
}

// FailingWebhooks walks the webhooks of all accounts whose last attempt failed.
func (o *Operator) FailingWebhooks(ctx context.Context) iter.Seq2[FailingWebhook, error] {
	return pages[FailingWebhook](ctx, o.c, "/admin/v1/webhooks", url.Values{"failing": {"true"}})
}

// Lift ends a takedown.
func (o *Operator) Lift(ctx context.Context, id string) error {
	return o.c.call(ctx, http.MethodDelete, "/admin/v1/takedowns/"+url.PathEscape(id), nil, nil)
}

// pages walks a list whose answers have data and nextCursor.
func pages[T any](ctx context.Context, c *Client, path string, q url.Values) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		q.Set("limit", "100")
		for {
			var page struct {
				Data       []T
				NextCursor cursor
			}
			if err := c.call(ctx, http.MethodGet, path+query(q), nil, &page); err != nil {
				var zero T
				yield(zero, err)
				return
			}
			for _, v := range page.Data {
				if !yield(v, nil) {
					return
				}
			}
			if page.NextCursor == "" {
				return
			}
			q.Set("cursor", string(page.NextCursor))
		}
	}
}

// cursor holds a cursor that the service sent as a number or a string. For null it is "".
type cursor string

// UnmarshalJSON accepts a string, a number or null.
func (c *cursor) UnmarshalJSON(b []byte) error {
	if text := string(b); text != "null" {
		*c = cursor(strings.Trim(text, `"`))
	}
	return nil
}
