package client

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"
)

// The example from the Standard Webhooks specification.
const (
	exampleSecret    = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	exampleBody      = `{"test": 2432232314}`
	exampleSignature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
)

func TestVerifyWebhook(t *testing.T) {
	t.Parallel()
	header := func(edit ...string) http.Header {
		h := http.Header{}
		h.Set("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek")
		h.Set("webhook-timestamp", "1614265330")
		h.Set("webhook-signature", exampleSignature)
		for i := 0; i+1 < len(edit); i += 2 {
			h.Set(edit[i], edit[i+1])
		}
		return h
	}
	at := time.Unix(1614265330, 0)
	for name, c := range map[string]struct {
		secret string
		header http.Header
		body   string
		now    time.Time
		ok     bool
	}{
		"unchanged message":            {exampleSecret, header(), exampleBody, at, true},
		"message four minutes old":     {exampleSecret, header(), exampleBody, at.Add(4 * time.Minute), true},
		"several signatures":           {exampleSecret, header("webhook-signature", "v1,AAAA v2,x "+exampleSignature), exampleBody, at, true},
		"changed body":                 {exampleSecret, header(), exampleBody + " ", at, false},
		"changed id":                   {exampleSecret, header("webhook-id", "msg_x"), exampleBody, at, false},
		"different secret":             {"whsec_AAAA", header(), exampleBody, at, false},
		"message six minutes old":      {exampleSecret, header(), exampleBody, at.Add(6 * time.Minute), false},
		"time in the future":           {exampleSecret, header(), exampleBody, at.Add(-6 * time.Minute), false},
		"no signature":                 {exampleSecret, header("webhook-signature", ""), exampleBody, at, false},
		"version v2 signature":         {exampleSecret, header("webhook-signature", "v2"+exampleSignature[2:]), exampleBody, at, false},
		"header names all in capitals": {exampleSecret, shouted(header()), exampleBody, at, true},
		"empty secret":                 {"whsec_", header(), exampleBody, at, false},
		"time that is not a number":    {exampleSecret, header("webhook-timestamp", "now"), exampleBody, at, false},
	} {
		err := verifyWebhook([]string{c.secret}, c.header, []byte(c.body), c.now)
		if (err == nil) != c.ok || err != nil && !errors.Is(err, ErrWebhook) {
			t.Errorf("%s: got error %v, want an ErrWebhook only for an invalid message", name, err)
		}
	}
}

// shouted returns headers with upper-case names, as some gateways send them.
func shouted(h http.Header) http.Header {
	out := http.Header{}
	for name, values := range h {
		out[strings.ToUpper(name)] = values
	}
	return out
}

func TestAMessageIsVerifiedWithAnOlderSecretAndARefusalSaysWhy(t *testing.T) {
	t.Parallel()
	at := time.Unix(1614265330, 0)
	h := http.Header{"Webhook-Id": {"msg_p5jXN8AQM9LWM0D4loKWxJek"}, "Webhook-Timestamp": {"1614265330"}, "Webhook-Signature": {exampleSignature}}
	if err := verifyWebhook([]string{"whsec_AAAA", exampleSecret}, h, []byte(exampleBody), at); err != nil {
		t.Errorf("after a rotation: got error %v, want none", err)
	}
	for want, err := range map[string]error{
		"signature": verifyWebhook([]string{"whsec_AAAA"}, h, []byte(exampleBody), at),
		"secret":    verifyWebhook([]string{"whsec_?"}, h, []byte(exampleBody), at),
		"timestamp": verifyWebhook([]string{exampleSecret}, h, []byte(exampleBody), at.Add(time.Hour)),
		"header":    VerifyWebhook(exampleSecret, http.Header{}, []byte(exampleBody)),
	} {
		var why *WebhookError
		if !errors.As(err, &why) || why.Reason != want {
			t.Errorf("got %v, want the reason %s", err, want)
		}
	}
}
