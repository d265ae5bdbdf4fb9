package auth_test

import (
	"log/slog"
	"testing"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // a failure would be hard to find in the access log
	m.Run()
}
