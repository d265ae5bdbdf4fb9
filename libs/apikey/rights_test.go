package apikey_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/linkreel/linkreel/libs/apikey"
	"github.com/linkreel/linkreel/libs/apikey/authtest"
	"github.com/linkreel/linkreel/libs/identity"
)

func TestRightsOverHTTP(t *testing.T) {
	t.Parallel()
	auth := authtest.Start(t)
	auth.Key(t, "acc_1", identity.Creator)
	source := apikey.NewHTTPSource(auth.URL, authtest.Token)
	defer source.Close()
	for _, tt := range []struct {
		account, id string
		reads       bool
	}{{"acc_1", "key_acc_1", true}, {"acc_1", "key_2", false}, {"acc_2", "key_acc_1", false}} {
		if scopes, err := source.Scopes(t.Context(), tt.account, tt.id); err != nil || scopes.Has(identity.VideosRead) != tt.reads {
			t.Errorf("%s in %s: %v, %v", tt.id, tt.account, scopes, err)
		}
	}
	for what, source := range map[string]*apikey.HTTPSource{
		"a wrong token":                   apikey.NewHTTPSource(auth.URL, "other"),
		"an answer that fits no question": apikey.NewHTTPSource(fixed(t, `{}`), authtest.Token),
		"an answer to another question":   apikey.NewHTTPSource(fixed(t, `{"id":"key_2","scopes":["videos:read"]}`), authtest.Token),
		"an answer without scopes":        apikey.NewHTTPSource(fixed(t, `{"id":"key_acc_1"}`), authtest.Token),
	} {
		if scopes, err := source.Scopes(t.Context(), "acc_1", "key_acc_1"); err == nil {
			t.Errorf("%s: %v, want an error", what, scopes)
		}
		source.Close()
	}
	if _, err := source.Scopes(t.Context(), "acc_1", "../x"); err == nil {
		t.Error("what is no id was looked up")
	}
}

// fixed is an auth that always answers the same.
func fixed(t *testing.T, body string) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(body)) }))
	t.Cleanup(s.Close)
	return s.URL
}
