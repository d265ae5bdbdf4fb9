// Command oapiclient makes one call with a client that oapi-codegen generated from our API
// contract: `go run ./oapiclient BASE_URL KEY`. A test generates client.gen.go next to a copy of
// this file, to prove that such tools can read the contract.
package main

import (
	"fmt"
	"os"

	"github.com/oapi-codegen/runtime"
)

// A test copies call.go.txt next to the generated client. That file sets call.
var call func(base, key string) error

func main() {
	_ = runtime.BindStringToObject // generated clients need this package
	if call == nil || len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "oapiclient: no client; tests/contract generates the client and runs this program")
		os.Exit(2)
	}
	if err := call(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "oapiclient:", err)
		os.Exit(1)
	}
}
