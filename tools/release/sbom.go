package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"time"
)

// writeSBOM writes an SPDX 2.3 document for a program's Go modules, as recorded in the program by
// the linker, and for the Debian packages in the image below it.
// https://spdx.github.io/spdx-spec/v2.3/
func (r *release) writeSBOM(name, binary string, debian []debianPackage) error {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return err
	}
	sum, err := sha256File(binary)
	if err != nil {
		return err
	}
	type ref struct {
		Category string `json:"referenceCategory"`
		Type     string `json:"referenceType"`
		Locator  string `json:"referenceLocator"`
	}
	type checksum struct {
		Algorithm string `json:"algorithm"`
		Value     string `json:"checksumValue"`
	}
	type pkg struct {
		ID        string     `json:"SPDXID"`
		Name      string     `json:"name"`
		Version   string     `json:"versionInfo"`
		Location  string     `json:"downloadLocation"`
		Analyzed  bool       `json:"filesAnalyzed"`
		Concluded string     `json:"licenseConcluded"`
		Declared  string     `json:"licenseDeclared"`
		Copyright string     `json:"copyrightText"`
		Checksums []checksum `json:"checksums,omitempty"`
		Refs      []ref      `json:"externalRefs,omitempty"`
	}
	type relation struct {
		From string `json:"spdxElementId"`
		Type string `json:"relationshipType"`
		To   string `json:"relatedSpdxElement"`
	}
	const none = "NOASSERTION"
	root := pkg{
		ID: "SPDXRef-root", Name: name, Version: r.version, Location: none, Concluded: "Apache-2.0", Declared: "Apache-2.0", Copyright: none,
		Checksums: []checksum{{"SHA256", sum}},
	}
	packages := []pkg{root}
	relations := []relation{{"SPDXRef-DOCUMENT", "DESCRIBES", root.ID}}
	add := func(kind, name, version, purl string) {
		id := fmt.Sprintf("SPDXRef-%s-%d", kind, len(packages))
		packages = append(packages, pkg{
			ID: id, Name: name, Version: version, Location: none, Concluded: none, Declared: none, Copyright: none,
			Refs: []ref{{"PACKAGE-MANAGER", "purl", purl}},
		})
		relations = append(relations, relation{root.ID, "DEPENDS_ON", id})
	}
	add("go", "stdlib", strings.TrimPrefix(info.GoVersion, "go"), "pkg:golang/stdlib@"+strings.TrimPrefix(info.GoVersion, "go"))
	for _, m := range modulesOf(info) {
		add("go", m.Path, m.Version, "pkg:golang/"+m.Path+"@"+m.Version)
	}
	for _, p := range debian {
		add("deb", p.name, p.version, "pkg:deb/debian/"+p.name+"@"+p.version+"?arch="+p.arch)
	}
	document := struct {
		ID        string     `json:"SPDXID"`
		Version   string     `json:"spdxVersion"`
		Name      string     `json:"name"`
		License   string     `json:"dataLicense"`
		Namespace string     `json:"documentNamespace"`
		Creation  any        `json:"creationInfo"`
		Packages  []pkg      `json:"packages"`
		Relations []relation `json:"relationships"`
	}{
		"SPDXRef-DOCUMENT", "SPDX-2.3", name, "CC0-1.0",
		"https://github.com/linkreel/linkreel/releases/v" + r.version + "/" + name + "-" + sum[:16],
		map[string]any{"created": r.time.Format(time.RFC3339), "creators": []string{"Tool: linkreel-release"}},
		packages, relations,
	}
	return r.writeJSON(name+".spdx.json", document)
}

// modulesOf returns the third-party modules in a program. It skips our own modules, which go.mod
// replaces with folders and which are released with the program.
func modulesOf(info *buildinfo.BuildInfo) []*debug.Module {
	var all []*debug.Module
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		if !strings.HasPrefix(m.Path, ".") {
			all = append(all, m)
		}
	}
	return all
}

func (r *release) writeJSON(file string, v any) error {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return err
	}
	return r.writeFile(file, text.Bytes())
}

// writeFile adds a file to the files for download.
func (r *release) writeFile(file string, content []byte) error {
	if err := os.WriteFile(filepath.Join(r.out, file), content, 0o644); err != nil { //nolint:gosec // everybody may read it
		return err
	}
	sum := sha256.Sum256(content)
	r.made = append(r.made, artifact{file, hex.EncodeToString(sum[:])})
	return nil
}

func sha256File(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

var licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|copyright)`)

// goLicences collects the licence texts of a program's modules. Most licences must accompany
// every copy.
func goLicences(binary string) ([]byte, error) {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	cache, err := exec.Command("go", "env", "GOMODCACHE").Output()
	if err != nil {
		return nil, err
	}
	var all bytes.Buffer
	for _, m := range modulesOf(info) {
		dir := filepath.Join(strings.TrimSpace(string(cache)), escapeModule(m.Path)+"@"+m.Version)
		entries, err := os.ReadDir(dir)
		if err != nil {
			return nil, fmt.Errorf("licence of %s: %w", m.Path, err)
		}
		for _, e := range entries {
			if e.IsDir() || !licenceFile.MatchString(e.Name()) {
				continue
			}
			text, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				return nil, err
			}
			fmt.Fprintf(&all, "==== %s %s (%s)\n\n%s\n\n", m.Path, m.Version, e.Name(), bytes.TrimSpace(text))
		}
	}
	return all.Bytes(), nil
}

// escapeModule converts a module's path to its form in the module cache, with an exclamation mark
// and the lower-case letter for each upper-case letter.
func escapeModule(path string) string {
	var b strings.Builder
	for _, c := range path {
		if c >= 'A' && c <= 'Z' {
			b.WriteByte('!')
			c += 'a' - 'A'
		}
		b.WriteRune(c)
	}
	return b.String()
}
