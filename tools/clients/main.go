// Command clients generates code and documentation from the API contract,
// libs/apispec/openapi.yaml: body types for clients and services, a client method for each
// operation, and on the pages in docs/api each operation's fields and an example call in every
// language. Its output is committed. Run it from anywhere in the repository:
//
//	go -C tools run ./clients
package main

import (
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/linkreel/linkreel/tools/internal/contract"
	"github.com/linkreel/linkreel/tools/internal/root"
)

// files maps the paths of the generated files to their generators. Each language has one source
// file here, such as golang.go.
var files = []struct {
	path string
	make func(*contract.Contract) ([]byte, error)
}{
	{"libs/apispec/wire/wire.go", serviceTypes.file},
	{"libs/clients/go/types.go", clientTypes.file},
	{"libs/clients/go/operations.go", goOperations},
	{"libs/clients/typescript/src/operations.ts", typescriptOperations},
	{"libs/clients/typescript/src/version.ts", typescriptVersion},
	{"libs/clients/python/linkreel/_version.py", pythonVersion},
	{"libs/clients/python/linkreel/types.py", pythonTypes},
	{"libs/clients/python/linkreel/_operations.py", pythonMethods(false)},
	{"libs/clients/python/linkreel/_async_operations.py", pythonMethods(true)},
}

func main() {
	log.SetFlags(0)
	if err := write(); err != nil {
		log.Fatal(err)
	}
}

func write() error {
	dir, err := root.Dir()
	if err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(dir, "libs/apispec/openapi.yaml"))
	if err != nil {
		return err
	}
	c, err := contract.Parse(text)
	if err != nil {
		return err
	}
	for _, f := range files {
		out, err := f.make(c)
		if err != nil {
			return fmt.Errorf("%s: %w", f.path, err)
		}
		path := filepath.Join(dir, f.path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, out, 0o644); err != nil {
			return err
		}
	}
	return writePages(dir, c)
}
