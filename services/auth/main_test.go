package auth_test

import (
	"log/slog"
	"testing"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // the access log would hide failures
	m.Run()
}
