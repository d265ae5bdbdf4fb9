package apikey_test

import (
	"testing"

	"go.uber.org/goleak"
)

// When a go-redis client is closed while its server is away, this goroutine sleeps up to
// a second before it notices, so we ignore it.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}
