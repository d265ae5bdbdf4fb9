package apikey

import (
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

var someHash = strings.Repeat("ab", 32)

const goodRecord = `{"keyId":"key_1","scopes":["links:read"],"accountId":"acc_1","accountName":"n","plan":"free","perMinute":60,"version":1}`

func TestReadAnswerTrustsNothingElse(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"an empty body":         ``,
		"a page":                `<html>502</html>`,
		"an empty object":       `{}`,
		"an error body":         `{"error":{"code":"NOT_FOUND"}}`,
		"null":                  `null`,
		"another hash":          `{"hash":"` + strings.Repeat("cd", 32) + `","found":true,"record":` + goodRecord + `}`,
		"found without record":  `{"hash":"` + someHash + `","found":true}`,
		"not found with record": `{"hash":"` + someHash + `","found":false,"record":` + goodRecord + `}`,
		"no word on found":      `{"hash":"` + someHash + `","record":` + goodRecord + `}`,
		"an unknown plan":       `{"hash":"` + someHash + `","found":true,"record":` + strings.Replace(goodRecord, "free", "gold", 1) + `}`,
		"no account":            `{"hash":"` + someHash + `","found":true,"record":` + strings.Replace(goodRecord, "acc_1", "", 1) + `}`,
		"no version":            `{"hash":"` + someHash + `","found":true,"record":` + strings.Replace(goodRecord, `"version":1`, `"version":0`, 1) + `}`,
		"a wrong type":          `{"hash":"` + someHash + `","found":true,"record":` + strings.Replace(goodRecord, `"plan":"free"`, `"plan":3`, 1) + `}`,
	} {
		if r, err := readAnswer([]byte(text), someHash); err == nil || errors.Is(err, ErrUnknownKey) {
			t.Errorf("%s: readAnswer = %+v, %v; want a failure", name, r, err)
		}
	}
	if _, err := readAnswer([]byte(`{"hash":"`+someHash+`","found":false}`), someHash); !errors.Is(err, ErrUnknownKey) {
		t.Errorf("a plain no: %v", err)
	}
	if _, err := readAnswer([]byte(`{"hash":"`+someHash+`","found":true,"record":`+goodRecord+`}`), someHash); err != nil {
		t.Errorf("a good answer: %v", err)
	}
}

func FuzzReadAnswer(f *testing.F) {
	f.Add(`{"hash":"` + someHash + `","found":true,"record":` + goodRecord + `}`)
	f.Add(`{"found":true}`)
	f.Fuzz(func(t *testing.T, text string) {
		if r, err := readAnswer([]byte(text), someHash); err == nil && (r.check() != nil || !strings.Contains(text, someHash)) {
			t.Errorf("accepted %q", text)
		}
	})
}

type sourceFunc func(ctx context.Context, hash string) (*Record, error)

func (f sourceFunc) Verify(ctx context.Context, hash string) (*Record, error) { return f(ctx, hash) }

func TestHandlerGoesOnWithTheTraceOfTheCaller(t *testing.T) {
	t.Parallel()
	otel.SetTextMapPropagator(propagation.TraceContext{})
	const id = "4bf92f3577b34da6a3ce929d0e0e4736"
	got := ""
	h := Handler(sourceFunc(func(ctx context.Context, _ string) (*Record, error) {
		got = trace.SpanContextFromContext(ctx).TraceID().String()
		return nil, ErrUnknownKey
	}), "secret")
	r := httptest.NewRequestWithContext(t.Context(), "POST", verifyPath, strings.NewReader(`{"hash":"`+someHash+`"}`))
	r.Header.Set("Authorization", "Bearer secret")
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Traceparent", "00-"+id+"-00f067aa0ba902b7-01")
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, r); w.Code != 200 || got != id {
		t.Errorf("status %d, trace %s, want the caller's %s", w.Code, got, id)
	}
}
