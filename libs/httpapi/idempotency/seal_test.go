package idempotency

import (
	"encoding/base64"
	"testing"
)

// A response that was stored before an upgrade can be replayed after it.
func TestTheFormatOfKeptAnswersStays(t *testing.T) {
	t.Parallel()
	r := Request{Account: "acc_a", Route: "POST /api/v1/links", Key: "one", Secret: "lk_secret"}
	id := r.id()
	if id != "919503764d28b05e4c1cc0c073c92a4c5b3a60d2b2fdd22540a49dc5095078a7" {
		t.Errorf("id = %s, want the same id as in earlier releases", id)
	}
	other := r
	other.Secret = "another key"
	for _, c := range []struct {
		text, body string
		bound      bool
	}{
		{"0QJqy0hVHaaQN+IiQQxHnrebdBPMV8xuFOENXBzcL5R3PAx6FEQygMuUZjVaxPuIwJbBLnab8m5BShXXPvx237JlLrmsKdjp2joxBJSUQJP2VpBUgp5UmTM33Z/3rxldXoF2mKFTMH4t9ehtOa5aOlc=", `{"id":"lnk_1"}`, false},
		{"FbtoyzbDW551kczAH/S37w8Zh5Tg1dixQVmEIPso1QtKwxsD2+tyXkSY8c4AotghQYE+dEWOevqPlf4GxFdS4p2TNBvwsvHrKIYpD1ZiFRnakK8BnrmkXMzMdm+4sXAww4/qx5V7/SqlQrxJhSKjIHTu11HiYGXV/g==", `{"secret":"whsec_x"}`, true},
	} {
		sealed, err := base64.StdEncoding.DecodeString(c.text)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := (&document{Sealed: sealed, Bound: c.bound}).replay(r)
		if err != nil || answer.Status != 201 || string(answer.Body) != c.body {
			t.Errorf("replay of %s = %+v, %v, want a 201 with that body", c.body, answer, err)
		}
		if _, err := (&document{Sealed: sealed, Bound: c.bound}).replay(other); (err == nil) == c.bound {
			t.Errorf("replaying %s with a different API key: got %v, want an error only for a bound response", c.body, err)
		}
	}
}
