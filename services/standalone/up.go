package standalone

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"syscall"

	"github.com/caarlos0/env/v11"

	"github.com/linkreel/linkreel/libs/boot"
	"github.com/linkreel/linkreel/services/standalone/internal/tools"
)

// usualStackFile is where scripts look for the stack running in this folder.
const usualStackFile = ".local/stack.json"

// claimStackFile chooses the file that a stack uses to describe itself to scripts. It is
// .local/stack.json, unless another running stack from this folder has claimed that file. In that
// case, it is a file in the stack's own data directory. The kernel releases the claim when the
// process exits.
func claimStackFile(dataDir string) (path string, release func(), err error) {
	dir := filepath.Dir(usualStackFile)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", nil, fmt.Errorf("stack file: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, "stack.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", nil, fmt.Errorf("stack file: %w", err)
	}
	release = func() { unlockFile(lock) }
	switch err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); {
	case err == nil:
		return usualStackFile, release, nil
	case errors.Is(err, syscall.EWOULDBLOCK):
		return filepath.Join(dataDir, "stack.json"), release, nil
	default:
		release()
		return "", nil, fmt.Errorf("lock stack file: %w", err)
	}
}

// readSettings reads cfg from the environment, with extra as in [Config.Env]. Errors contain the
// name of the variable.
func readSettings(cfg *Config, extra map[string]string) error {
	err := env.ParseWithOptions(cfg, env.Options{Environment: environment(extra, nil)})
	var wrong env.ParseError // contains the field name
	if errors.As(err, &wrong) {
		if field, ok := reflect.TypeFor[Config]().FieldByName(wrong.Name); ok {
			return fmt.Errorf("configuration: %s: %w", field.Tag.Get("env"), plain(wrong.Err))
		}
	}
	if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	if cfg.PortBase < 0 || cfg.PortBase > maxPortBase {
		return fmt.Errorf("configuration: LINKREEL_PORT_BASE: use a number from 0 to %d, not %d", maxPortBase, cfg.PortBase)
	}
	return nil
}

// maxPortBase is the highest first port of four.
const maxPortBase = 65535 - 3

// plain replaces Go's message about an unparsable number with a full sentence.
func plain(err error) error {
	var number *strconv.NumError
	if !errors.As(err, &number) {
		return err
	}
	return fmt.Errorf("use a whole number, such as 9000, not %q", number.Num)
}

// Up is `linkreel up`. It installs missing programs, starts a stack, prints how to use it, and runs
// until ctx is done.
func Up(ctx context.Context, out io.Writer) error {
	var cfg Config
	if err := readSettings(&cfg, nil); err != nil {
		return err
	}
	if err := tools.Ensure(ctx, out, "redis", "ffmpeg"); err != nil {
		return err
	}
	file, release, err := claimStackFile(cfg.DataDir)
	if err != nil {
		return err
	}
	defer release()
	cfg.StackFile = file
	s, err := Start(ctx, cfg)
	if err != nil {
		if ctx.Err() != nil {
			return nil // the user pressed Ctrl-C during startup
		}
		return err
	}
	if own := filepath.Join(cfg.DataDir, "stack.json"); file != own {
		_ = os.Remove(own) // left behind by a second stack that was killed
	}
	link, err := s.SignInLink(ctx)
	if s.readOnly.on.Load() {
		link, err = s.BaseURL+"/app", nil
		s.notices = append(s.notices, "the data is read-only, because it has been moved or is being moved. To accept changes again, run linkreel move --abort.")
	}
	if err != nil { // the API works without it
		s.notices = append(s.notices, fmt.Sprintf("cannot create a sign-in link (%v).", err))
		link = s.BaseURL + "/app"
	}
	_, _ = fmt.Fprint(out, s.welcome(cfg, link))
	for _, notice := range s.notices {
		_, _ = fmt.Fprintf(out, "\nWarning: %s\n", notice)
	}
	select {
	case <-ctx.Done():
		_, _ = fmt.Fprintln(out, "\nStopping …")
		boot.Stopping("linkreel", context.Cause(ctx))
	case <-s.Done():
		boot.Stopping("linkreel", context.Cause(s.ctx))
	}
	return s.Close()
}

// program returns the command that a user in this folder would type to run this program.
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
		login = "LINKREEL_DATA_DIR=" + cfg.DataDir + " " + login // otherwise the command would log in to the stack in .local
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

The same from the command line (%[8]s help):

  %[10]s
  %[8]s videos upload clip.mp4

Keys for the other plans are in %[6]s. Ctrl-C stops Linkreel and keeps the data.
`, s.BaseURL, s.ShortBaseURL, s.AdminURL, s.UploadURL, s.Keys["business"], cfg.StackFile, cfg.DataDir, program(), link, login)
}
