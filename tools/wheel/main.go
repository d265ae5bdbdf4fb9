// Command wheel packs the Python client, libs/clients/python, as a wheel, and prints the file name:
//
//	go -C tools run ./wheel -out DIR -time 1790000000
//
// The same files and the same time produce the same bytes on any machine. setuptools does not
// guarantee this, because it writes its own version and the machine's file modes into the wheel.
package main

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"time"

	"github.com/linkreel/linkreel/tools/internal/root"
)

func main() {
	log.SetFlags(0)
	out := flag.String("out", ".", "folder for the wheel")
	at := flag.Int64("time", 0, "time of the files, in seconds since 1970")
	flag.Parse()
	dir, err := root.Dir()
	if err != nil {
		log.Fatal(err)
	}
	name, content, err := wheel(dir, time.Unix(*at, 0).UTC())
	if err != nil {
		log.Fatal("wheel: ", err)
	}
	if err := os.WriteFile(filepath.Join(*out, name), content, 0o600); err != nil {
		log.Fatal("wheel: ", err)
	}
	_, _ = fmt.Fprintln(os.Stdout, name) // ignore the error: the caller can also find the file in the folder
}

// file is one file in the wheel.
type file struct {
	name    string
	content []byte
}

// wheel returns the name and the bytes of the wheel.
func wheel(dir string, at time.Time) (name string, content []byte, err error) {
	client := filepath.Join(dir, "libs/clients/python")
	project, err := os.ReadFile(filepath.Join(client, "pyproject.toml"))
	if err != nil {
		return "", nil, err
	}
	files, err := sources(client)
	if err != nil {
		return "", nil, err
	}
	version, err := versionOf(files)
	if err != nil {
		return "", nil, err
	}
	licence, err := os.ReadFile(filepath.Join(dir, "LICENSE"))
	if err != nil {
		return "", nil, err
	}
	metadata, err := metadata(project, version)
	if err != nil {
		return "", nil, err
	}
	info := "linkreel-" + version + ".dist-info/"
	files = append(files,
		file{info + "licenses/LICENSE", licence}, file{info + "METADATA", metadata},
		file{info + "WHEEL", []byte("Wheel-Version: 1.0\nGenerator: linkreel\nRoot-Is-Purelib: true\nTag: py3-none-any\n")})
	files = append(files, file{info + "RECORD", record(files, info)})
	content, err = pack(files, at)
	return "linkreel-" + version + "-py3-none-any.whl", content, err
}

// sources returns the files in the package, sorted by name.
func sources(client string) (files []file, err error) {
	names, err := filepath.Glob(filepath.Join(client, "linkreel", "*.py"))
	if err != nil {
		return nil, err
	}
	for _, name := range append(names, filepath.Join(client, "linkreel", "py.typed")) {
		content, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		files = append(files, file{path.Join("linkreel", filepath.Base(name)), content})
	}
	return files, nil
}

func versionOf(files []file) (string, error) {
	for _, f := range files {
		if m := regexp.MustCompile(`__version__ = "([0-9.]+)"`).FindSubmatch(f.content); f.name == "linkreel/_version.py" && m != nil {
			return string(m[1]), nil
		}
	}
	return "", errors.New("_version.py has no version")
}

// metadata returns the data in pyproject.toml in the format for installed packages.
func metadata(project []byte, version string) ([]byte, error) {
	var out bytes.Buffer
	fmt.Fprintf(&out, "Metadata-Version: 2.1\nName: linkreel\nVersion: %s\n", version)
	for _, field := range []struct{ key, name string }{{"description", "Summary"}, {"requires-python", "Requires-Python"}} {
		m := regexp.MustCompile(`(?m)^` + field.key + ` = "(.*)"$`).FindSubmatch(project)
		if m == nil {
			return nil, fmt.Errorf("pyproject.toml has no %s", field.key)
		}
		fmt.Fprintf(&out, "%s: %s\n", field.name, m[1])
	}
	out.WriteString("License: Apache-2.0\nLicense-File: LICENSE\n")
	return out.Bytes(), nil
}

func record(files []file, info string) []byte {
	var out bytes.Buffer
	for _, f := range files {
		sum := sha256.Sum256(f.content)
		fmt.Fprintf(&out, "%s,sha256=%s,%d\n", f.name, base64.RawURLEncoding.EncodeToString(sum[:]), len(f.content))
	}
	out.WriteString(info + "RECORD,,\n")
	return out.Bytes()
}

func pack(files []file, at time.Time) ([]byte, error) {
	var out bytes.Buffer
	zw := zip.NewWriter(&out)
	for _, f := range files {
		h := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: at}
		h.SetMode(0o644)
		w, err := zw.CreateHeader(h)
		if err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, err
		}
	}
	err := zw.Close()
	return out.Bytes(), err
}
