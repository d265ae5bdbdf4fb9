package authclient

import (
	"errors"
	"strings"
	"testing"
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
