package signin

import "testing"

func TestPasskeysWorkOnHTTPSAndLocalhost(t *testing.T) {
	t.Parallel()
	for base, want := range map[string]bool{
		"https://go.example.com": true, "http://localhost:8080": true, "http://one.localhost": true,
		"http://go.example.com": false, "http://127.0.0.1:8080": false, "http://localhost.example.com": false,
	} {
		if got := Work(base); got != want {
			t.Errorf("Work(%q) = %v, want %v", base, got, want)
		}
	}
}
