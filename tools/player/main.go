// Command player bundles the scripts and styles of the share page into
// services/videos/internal/share/web/dist, where they are committed and embedded.
//
//	(cd tools/player && npm ci --ignore-scripts) && GOWORK=off go -C tools run ./player
//
// It builds hls.js from source. The light bundle of hls.js cannot play audio from a separate
// rendition. The other extras in the full bundle (DRM, interstitials, subtitles, advertising data)
// are left out.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/evanw/esbuild/pkg/api"
)

// leftOut matches the parts of hls.js that our playlists never use.
var leftOut = regexp.MustCompile(`/(cmcd|eme|content-steering|iframe|interstitials|subtitle-stream|subtitle-track|timeline|image-iframe-stream|iframe-stream)-controller$|/utils/cues$|/interstitial-player$|/interstitials-schedule$`)

func main() {
	root := flag.String("root", "..", "the repository")
	flag.Parse()
	if err := run(*root); err != nil {
		fmt.Fprintln(os.Stderr, "player:", err)
		os.Exit(1)
	}
}

func run(root string) error {
	root, err := filepath.Abs(root)
	if err != nil {
		return err
	}
	modules := filepath.Join(root, "tools", "player", "node_modules")
	hls := filepath.Join(modules, "hls.js")
	if _, err := os.Stat(hls); err != nil {
		return fmt.Errorf("%s is missing: run npm ci --ignore-scripts in tools/player", hls)
	}
	web := filepath.Join(root, "services", "videos", "internal", "share", "web")
	version, err := packageVersion(hls)
	if err != nil {
		return err
	}

	common := api.BuildOptions{
		Bundle: true, Write: true, MinifySyntax: true, MinifyWhitespace: true, MinifyIdentifiers: true,
		Target: api.ES2020, Format: api.FormatESModule, Charset: api.CharsetUTF8,
		NodePaths: []string{modules}, LogLevel: api.LogLevelWarning, LegalComments: api.LegalCommentsNone,
		TsconfigRaw: `{"compilerOptions":{"target":"ES2020","useDefineForClassFields":false}}`,
	}

	player := common
	player.EntryPoints = []string{filepath.Join(hls, "src", "exports-default.ts")}
	player.Outfile = filepath.Join(web, "dist", "hls.js")
	player.Banner = map[string]string{"js": "/*! hls.js " + version + " (Apache-2.0), reduced; see tools/player */"}
	player.Plugins = []api.Plugin{{Name: "leave-out", Setup: leaveOut}}
	player.Define = map[string]string{
		"__VERSION__":                   `"` + version + `"`,
		"__USE_ALT_AUDIO__":             "true",
		"__USE_EME_DRM__":               "false",
		"__USE_SUBTITLES__":             "false",
		"__USE_CMCD__":                  "false",
		"__USE_CONTENT_STEERING__":      "false",
		"__USE_VARIABLE_SUBSTITUTION__": "false",
		"__USE_M2TS_ADVANCED_CODECS__":  "false",
		"__USE_MEDIA_CAPABILITIES__":    "false",
		"__USE_INTERSTITIALS__":         "false",
		"__USE_IFRAMES__":               "false",
		"__IN_WORKER__":                 "false",
		"__HLS_WORKER_BUNDLE__":         "undefined",
	}

	page := common
	page.EntryPoints = []string{filepath.Join(web, "page.ts"), filepath.Join(web, "app.css")}
	page.Outdir = filepath.Join(web, "dist")

	for _, options := range []api.BuildOptions{player, page} {
		if result := api.Build(options); len(result.Errors) > 0 {
			return fmt.Errorf("%d errors, shown above", len(result.Errors))
		}
	}
	licence, err := os.ReadFile(filepath.Join(hls, "LICENSE"))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(web, "dist", "hls.LICENSE"), licence, 0o644)
}

// leaveOut replaces imports of unwanted modules with an empty module.
func leaveOut(build api.PluginBuild) {
	build.OnResolve(api.OnResolveOptions{Filter: `^\.`}, func(args api.OnResolveArgs) (api.OnResolveResult, error) {
		if leftOut.MatchString(args.Path) {
			return api.OnResolveResult{Path: args.Path, Namespace: "empty"}, nil
		}
		return api.OnResolveResult{}, nil
	})
	build.OnLoad(api.OnLoadOptions{Filter: `.*`, Namespace: "empty"}, func(api.OnLoadArgs) (api.OnLoadResult, error) {
		nothing := "module.exports = {}"
		return api.OnLoadResult{Contents: &nothing}, nil
	})
}

func packageVersion(dir string) (string, error) {
	b, err := os.ReadFile(filepath.Join(dir, "package.json"))
	if err != nil {
		return "", err
	}
	m := regexp.MustCompile(`"version":\s*"([^"]+)"`).FindSubmatch(b)
	if m == nil {
		return "", fmt.Errorf("%s has no version", dir)
	}
	return strings.TrimSpace(string(m[1])), nil
}
