package remote

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/linkreel/linkreel/libs/apikey"
	"github.com/linkreel/linkreel/libs/httpapi"
	"github.com/linkreel/linkreel/libs/identity"
	"github.com/linkreel/linkreel/libs/outage"
	"github.com/linkreel/linkreel/libs/peer"
	"github.com/linkreel/linkreel/libs/peer/peertest"
)

// A call is late after 700 ms. Each case runs with its own fake clock.
func TestTheFirstAnswerOfTwoQuestionsCounts(t *testing.T) {
	t.Parallel()
	broke := errors.New("connection reset")
	after := func(d time.Duration, err error) func(context.Context) error {
		return func(ctx context.Context) error {
			if !outage.Pause(ctx, d) {
				return ctx.Err()
			}
			return err
		}
	}
	for name, c := range map[string]struct {
		answers []func(context.Context) error
		asked   int
		took    time.Duration
		want    error
	}{
		"immediate response":                           {[]func(context.Context) error{after(0, nil)}, 1, 0, nil},
		"error, then a response":                       {[]func(context.Context) error{after(0, broke), after(0, nil)}, 2, 20 * time.Millisecond, nil},
		"late response that arrives before the second": {[]func(context.Context) error{after(900*time.Millisecond, nil), after(900*time.Millisecond, nil)}, 2, 900 * time.Millisecond, nil},
		"no response, then a response":                 {[]func(context.Context) error{after(time.Hour, nil), after(50*time.Millisecond, nil)}, 2, 750 * time.Millisecond, nil},
		"late error, then a response":                  {[]func(context.Context) error{after(800*time.Millisecond, broke), after(300*time.Millisecond, nil)}, 2, time.Second, nil},
		"two errors":                                   {[]func(context.Context) error{after(0, broke), after(0, broke)}, 2, 20 * time.Millisecond, broke},
		"never":                                        {[]func(context.Context) error{after(time.Hour, nil), after(time.Hour, nil)}, 2, 1400 * time.Millisecond, context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var asked atomic.Int64
				began := time.Now()
				_, err := twice(t.Context(), func(ctx context.Context) (int, error) {
					n := int(asked.Add(1))
					if n > len(c.answers) {
						return 0, errors.New("a third call was made, want at most two")
					}
					return n, c.answers[n-1](ctx)
				})
				if took := time.Since(began); !errors.Is(err, c.want) || int(asked.Load()) != c.asked || took != c.took {
					t.Errorf("got %v after %v and %d calls, want %v after %v and %d", err, took, asked.Load(), c.want, c.took, c.asked)
				}
			})
		})
	}
}

// ring is auth's store, with one key and one member.
type ring struct {
	record apikey.Record
	err    error
}

func (r *ring) Verify(_ context.Context, hash string) (*apikey.Record, error) {
	if r.err != nil {
		return nil, r.err
	}
	if hash != someHash {
		return nil, apikey.ErrUnknownKey
	}
	return &r.record, nil
}

func (r *ring) Scopes(_ context.Context, accountID, id string) (identity.ScopeSet, error) {
	if accountID != r.record.AccountID || id != r.record.KeyID {
		return 0, r.err
	}
	return r.record.Scopes, r.err
}

var someHash = strings.Repeat("ab", 32)

// ask serves r and returns a source that calls it.
func ask(t *testing.T, r *ring, token string) Source {
	t.Helper()
	api := httpapi.New(httpapi.Options{Name: "auth", Peers: true})
	Routes(peer.NewDoor(api, map[peer.Service]string{peer.Videos: "token"}), r, r)
	source := New(peertest.Serve(t, api.Handler()), token)
	t.Cleanup(source.Close)
	return source
}

func TestBothEndsAgreeOnARecord(t *testing.T) {
	t.Parallel()
	r := &ring{record: apikey.Record{
		Principal: identity.Principal{
			KeyID: "key_1", KeyName: "Deploy", Scopes: identity.AllScopes, AccountID: "acc_1", AccountName: "n",
			Plan: identity.Business, PerMinute: 77, Quotas: identity.Quotas{Links: 5, StoredBytes: 1 << 40},
		},
		Version: 3,
	}}
	source := ask(t, r, "token")
	for _, end := range []int64{1_900_000_000_000, apikey.Never, 0, 8_640_000_000_000_000} {
		r.record.ExpiresAt = end
		got, err := source.Verify(t.Context(), someHash)
		if err != nil || fmt.Sprintf("%+v", *got) != fmt.Sprintf("%+v", r.record) {
			t.Errorf("Verify = %+v, %v\nwant %+v", got, err, r.record)
		}
	}
	r.record = apikey.Record{
		Principal: identity.Principal{
			KeyID: "ses_1", Session: true, MemberID: "mem_1", MemberName: "Ada", Role: identity.Admin, AccountID: "acc_1", Suspended: true,
		},
		Revoked: true, ExpiresAt: apikey.Never, Version: 1,
	}
	if got, err := source.Verify(t.Context(), someHash); err != nil || fmt.Sprintf("%+v", *got) != fmt.Sprintf("%+v", r.record) {
		t.Errorf("Verify for a session = %+v, %v, want the session's record", got, err)
	}
}

func TestOnlyAuthItselfSaysThatAKeyIsUnknown(t *testing.T) {
	t.Parallel()
	r := &ring{}
	if _, err := ask(t, r, "token").Verify(t.Context(), strings.Repeat("0", 64)); !errors.Is(err, apikey.ErrUnknownKey) {
		t.Errorf("unknown key: got %v, want ErrUnknownKey", err)
	}
	if _, err := ask(t, r, "guess").Verify(t.Context(), someHash); err == nil || errors.Is(err, apikey.ErrUnknownKey) {
		t.Errorf("wrong internal token: got %v, want an error other than ErrUnknownKey", err)
	}
	if _, err := ask(t, r, "token").Verify(t.Context(), "../x"); err == nil || errors.Is(err, apikey.ErrUnknownKey) {
		t.Errorf("malformed hash: got %v, want an error other than ErrUnknownKey", err)
	}
	r = &ring{err: errors.New("store down")}
	if _, err := ask(t, r, "token").Verify(t.Context(), someHash); err == nil || errors.Is(err, apikey.ErrUnknownKey) {
		t.Errorf("store down: got %v, want an error other than ErrUnknownKey", err)
	}
}

func TestRightsOfKeysAreAsked(t *testing.T) {
	t.Parallel()
	r := &ring{record: apikey.Record{Principal: identity.Principal{AccountID: "acc_1", KeyID: "key_1", Scopes: identity.AllScopes}}}
	source := ask(t, r, "token")
	for _, tt := range []struct {
		account, id string
		reads       bool
	}{{"acc_1", "key_1", true}, {"acc_1", "key_2", false}, {"acc_2", "key_1", false}} {
		if scopes, err := source.Scopes(t.Context(), tt.account, tt.id); err != nil || scopes.Has(identity.VideosRead) != tt.reads {
			t.Errorf("Scopes(%s, %s) = %v, %v; want videos:read in it = %v", tt.account, tt.id, scopes, err, tt.reads)
		}
	}
	if scopes, err := ask(t, r, "other").Scopes(t.Context(), "acc_1", "key_1"); err == nil {
		t.Errorf("Scopes with a wrong token = %v, want an error", scopes)
	}
	if _, err := source.Scopes(t.Context(), "acc_1", "../x"); err == nil {
		t.Error("Scopes with a malformed id succeeded, want an error")
	}
}
