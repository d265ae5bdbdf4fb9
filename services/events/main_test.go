package events_test

import (
	"log/slog"
	"testing"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // an access line per request would bury a failure
	m.Run()
}
