package contract_test

import (
	"encoding/json"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/linkreel/linkreel/tests/contract"
)

// TestFuzzRunningStack drives the stack that LINKREEL_STACK names, the
// stack.json of a running `make run`. LINKREEL_FUZZ_REQUESTS and
// LINKREEL_FUZZ_SEED choose how long and which way.
func TestFuzzRunningStack(t *testing.T) {
	path := os.Getenv("LINKREEL_STACK")
	if path == "" {
		t.Skip("LINKREEL_STACK names no stack.json: no running stack to drive (tests/e2e starts one of its own)")
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var stack struct{ BaseURL, AdminURL, AdminToken string }
	if err := json.Unmarshal(b, &stack); err != nil {
		t.Fatal(err)
	}
	r, err := contract.Fuzz(t.Context(), contract.FuzzConfig{
		BaseURL: stack.BaseURL, AdminURL: stack.AdminURL, AdminToken: stack.AdminToken,
		Requests: number("LINKREEL_FUZZ_REQUESTS", 1500), Seed: uint64(number("LINKREEL_FUZZ_SEED", int(time.Now().Unix()))),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Log(r)
	if err := r.Err(); err != nil {
		t.Error(err)
	}
}

func number(name string, without int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil {
		return n
	}
	return without
}
