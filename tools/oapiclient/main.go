// Command oapiclient makes one call with a client that oapi-codegen has generated
// from our API document: `go run ./oapiclient BASE_URL KEY`. A test generates
// client.gen.go beside a copy of this file, to prove that such tools can read the
// document.
package main

import (
	"fmt"
	"os"

	"github.com/oapi-codegen/runtime"
)

// A test copies call.go.txt beside the generated client. That file sets call.
var call func(base, key string) error

func main() {
	_ = runtime.BindStringToObject // generated clients need this package
	if call == nil || len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "oapiclient: run by tests/contract, which generates the client")
		os.Exit(2)
	}
	if err := call(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "oapiclient:", err)
		os.Exit(1)
	}
}
