package guard_test

import (
	"strings"
	"testing"

	"github.com/linkreel/linkreel/services/localcloud/guard"
)

func TestATokenOpensAndNothingElseDoes(t *testing.T) {
	t.Parallel()
	older, newer := strings.Repeat("o", 32), strings.Repeat("n", 40)
	tokens, err := guard.Parse(newer + ", " + older + "\n")
	if err != nil {
		t.Fatal(err)
	}
	if !tokens.Required() || tokens.First() != newer {
		t.Errorf("First() = %q, want the first token", tokens.First())
	}
	for header, want := range map[string]bool{
		"Bearer " + newer: true, "bearer " + older: true,
		"": false, "Bearer": false, "Bearer ": false, newer: false, "Basic " + newer: false, "Bearer owner": false, "Bearer " + newer + "x": false, "Bearer " + newer[1:]: false,
		"Bearer  " + newer: false, "Bearer " + newer + "," + older: false, "Bearer " + newer + ", " + older: false,
	} {
		if got := tokens.Accept(header); got != want {
			t.Errorf("Accept(%q) = %v, want %v", header, got, want)
		}
	}
}

func TestAMistakenTokenIsAnErrorAndNotNone(t *testing.T) {
	t.Parallel()
	good := strings.Repeat("a", 32)
	for _, text := range []string{" ", "\n", ",", "short", good + ",", "," + good, good + ",,", good + ",short", good[:31], good + "\x00", good + "é", good + " " + good} {
		if tokens, err := guard.Parse(text); err == nil || tokens.Required() {
			t.Errorf("Parse(%q) returned Required()=%v, %v; want an error", text, tokens.Required(), err)
		}
	}
	if tokens, err := guard.Parse(""); err != nil || tokens.Required() || !tokens.Accept("") {
		t.Errorf("without a token, Parse returned Required()=%v, %v; want every caller accepted", tokens.Required(), err)
	}
}

func TestOnlyHostsThatNoPageCanChooseAreOurOwn(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]bool{
		"127.0.0.1": true, "127.0.0.1:8082": true, "[::1]:8082": true, "::1": true, "10.1.2.3:9090": true, "localhost": true, "LOCALHOST.:80": true, "a.localhost:1": true, "linkreel-auth:8082": true,
		"media.example": true, "evil.example": false, "evil.example:8082": false, "127.0.0.1.evil.example": false, "localhost.evil.example": false,
	} {
		if got := guard.OwnHost(host, "media.example"); got != want {
			t.Errorf("OwnHost(%q) = %v, want %v", host, got, want)
		}
	}
}
