package apikey

import (
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/linkreel/linkreel/libs/outage"
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

// An answer is late after 700 ms of a clock that each case has for itself.
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
		"at once":                    {[]func(context.Context) error{after(0, nil)}, 1, 0, nil},
		"an unknown key":             {[]func(context.Context) error{after(0, ErrUnknownKey)}, 1, 0, ErrUnknownKey},
		"broken, then answered":      {[]func(context.Context) error{after(0, broke), after(0, nil)}, 2, 20 * time.Millisecond, nil},
		"late, and the first to be":  {[]func(context.Context) error{after(900*time.Millisecond, nil), after(900*time.Millisecond, nil)}, 2, 900 * time.Millisecond, nil},
		"never, then answered":       {[]func(context.Context) error{after(time.Hour, nil), after(50*time.Millisecond, nil)}, 2, 750 * time.Millisecond, nil},
		"late and broken, then well": {[]func(context.Context) error{after(800*time.Millisecond, broke), after(300*time.Millisecond, nil)}, 2, time.Second, nil},
		"broken twice":               {[]func(context.Context) error{after(0, broke), after(0, broke)}, 2, 20 * time.Millisecond, broke},
		"never":                      {[]func(context.Context) error{after(time.Hour, nil), after(time.Hour, nil)}, 2, 1400 * time.Millisecond, context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var asked atomic.Int64
				began := time.Now()
				_, err := twice(t.Context(), 700*time.Millisecond, func(ctx context.Context) (int, error) {
					n := int(asked.Add(1))
					if n > len(c.answers) {
						return 0, errors.New("one question too many")
					}
					return n, c.answers[n-1](ctx)
				})
				if took := time.Since(began); !errors.Is(err, c.want) || int(asked.Load()) != c.asked || took != c.took {
					t.Errorf("%v after %v and %d questions, want %v after %v and %d", err, took, asked.Load(), c.want, c.took, c.asked)
				}
			})
		})
	}
}

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
