package apikey_test

import (
	"testing"

	"go.uber.org/goleak"
)

// If a go-redis client is closed while its server is unreachable, this goroutine runs for up to
// another second, so the leak check ignores it.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}
