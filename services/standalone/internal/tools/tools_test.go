package tools_test

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/linkreel/linkreel/services/standalone/internal/tools"
)

func TestEnsure(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		goos    string
		root    bool
		present []string
		want    []string // the expected commands
		err     string   // part of the error; "" for success
	}{
		{name: "nothing is missing", goos: "linux", present: []string{"valkey-server", "ffmpeg"}},
		{name: "root installs with apt", goos: "linux", root: true, present: []string{"apt-get", "ffmpeg"},
			want: []string{"apt-get update -q", "apt-get install -y -q --no-install-recommends redis-server"}},
		{name: "a user installs with sudo", goos: "linux", present: []string{"apt-get", "sudo"},
			want: []string{"sudo apt-get update -q", "sudo apt-get install -y -q --no-install-recommends redis-server ffmpeg"}},
		{name: "a Mac installs with brew", goos: "darwin", present: []string{"brew", "ffmpeg"}, want: []string{"brew install redis"}},
		{name: "on other systems the error says what to install", goos: "linux", present: []string{"apt-get"},
			err: "please install redis, ffmpeg (Debian packages: redis-server ffmpeg) and try again"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			have := map[string]bool{}
			for _, p := range tt.present {
				have[p] = true
			}
			var ran []string
			m := tools.Machine{GOOS: tt.goos, Root: tt.root, Look: func(bin string) bool { return have[bin] },
				Run: func(_ context.Context, argv ...string) error {
					ran = append(ran, strings.Join(argv, " "))
					have["redis-server"], have["ffmpeg"] = true, true
					return nil
				}}
			err := m.Ensure(t.Context(), io.Discard, "redis", "ffmpeg")
			if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
				t.Errorf("Ensure = %v, want an error with %q", err, tt.err)
			}
			if d := cmp.Diff(tt.want, ran); d != "" {
				t.Errorf("commands (-want +got):\n%s", d)
			}
		})
	}
}
