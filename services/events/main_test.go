package events_test

import (
	"log/slog"
	"testing"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // access lines of all requests would hide a failure
	m.Run()
}
