package apikey_test

import (
	"testing"

	"go.uber.org/goleak"
)

// A closed client of go-redis whose server is away finds out after a second of sleep.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}
