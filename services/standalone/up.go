package standalone

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/caarlos0/env/v11"

	"github.com/linkreel/linkreel/services/standalone/internal/tools"
)

// usualStackFile is the stack file of the default data directory.
const usualStackFile = ".local/stack.json"

// stackFile is where scripts look for a running stack: .local/stack.json belongs
// to the stack on the default data directory, and every other data directory holds
// its own. The lock on the data directory therefore guards the file too, and two
// stacks started from one folder never touch each other's.
func stackFile(dataDir string) (string, error) {
	abs, err := filepath.Abs(dataDir)
	if err != nil {
		return "", fmt.Errorf("data directory: %w", err)
	}
	if usual, err := filepath.Abs(defaultDataDir); err == nil && abs == usual {
		return usualStackFile, nil
	}
	return filepath.Join(dataDir, "stack.json"), nil
}

// Up is `linkreel up`: it installs what is missing, starts a stack, says how to
// use it, and stays until ctx ends.
func Up(ctx context.Context, out io.Writer) error {
	var cfg Config
	if err := env.Parse(&cfg); err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	if err := tools.Ensure(ctx, out, "redis", "ffmpeg"); err != nil {
		return err
	}
	var err error
	if cfg.StackFile, err = stackFile(cfg.DataDir); err != nil {
		return err
	}
	s, err := Start(ctx, cfg)
	if err != nil {
		if ctx.Err() != nil {
			return nil // Ctrl-C while it started
		}
		return err
	}
	link, err := s.SignInLink(ctx)
	if err != nil { // the API works all the same
		s.notices = append(s.notices, fmt.Sprintf("there is no sign-in link (%v).", err))
		link = s.BaseURL + "/app"
	}
	_, _ = fmt.Fprint(out, s.welcome(cfg, link))
	for _, notice := range s.notices {
		_, _ = fmt.Fprintf(out, "\nWarning: %s\n", notice)
	}
	select {
	case <-ctx.Done():
		_, _ = fmt.Fprintln(out, "\nStopping …")
	case <-s.Done():
	}
	return s.Close()
}

// program is this program as a person here would type it.
func program() string {
	path, err := os.Executable()
	if err != nil {
		return os.Args[0]
	}
	if dir, err := os.Getwd(); err == nil {
		if near, err := filepath.Rel(dir, path); err == nil && filepath.IsLocal(near) {
			return near
		}
	}
	return path
}

func (s *Stack) welcome(cfg Config, link string) string {
	login := program() + " login --local"
	if cfg.StackFile != usualStackFile {
		login = "LINKREEL_DATA_DIR=" + cfg.DataDir + " " + login // else it logs in to the stack in .local
	}
	return fmt.Sprintf(`
Linkreel is ready.

  API, share pages, docs   %[1]s      (docs: %[1]s/docs)
  short links              %[2]s
  operator API             %[3]s      (token in %[6]s)
  uploads                  %[4]s
  data                     %[7]s

Work in the browser (this link signs you in once, within 15 minutes):

  %[9]s

A first link:

  curl -s %[1]s/api/v1/links -H 'Authorization: Bearer %[5]s' \
    -H 'Content-Type: application/json' -d '{"url":"https://go.dev/","slug":"first"}'
  curl -si %[2]s/first

A first video:

  ffmpeg -v error -y -f lavfi -i testsrc2=s=1280x720:d=20 -f lavfi -i sine=d=20 -pix_fmt yuv420p -shortest clip.mp4
  curl -s %[1]s/api/v1/videos -H 'Authorization: Bearer %[5]s' \
    -H 'Content-Type: application/json' -d '{"title":"My first video"}' | tee video.json
  curl -sST clip.mp4 "$(sed 's/.*"uploadUrl":"\([^"]*\)".*/\1/' video.json)"
  sed 's/.*"shareUrl":"\([^"]*\)".*/open \1/' video.json

The same with the command line (%[8]s help):

  %[10]s
  %[8]s videos upload clip.mp4

Keys for the other plans are in %[6]s. Ctrl-C stops; the data stays.
`, s.BaseURL, s.ShortBaseURL, s.AdminURL, s.UploadURL, s.Keys["business"], cfg.StackFile, cfg.DataDir, program(), link, login)
}
