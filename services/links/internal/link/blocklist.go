package link

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nlnwa/whatwg-url/url"
)

// Blocklist is a file of host names, one per line. Links must not redirect to these hosts. Each
// name covers its subdomains. Empty lines and lines that begin with # are skipped.
type Blocklist struct {
	path  string
	hosts atomic.Pointer[map[string]bool]
	seen  fileVersion
}

type fileVersion struct {
	size    int64
	changed time.Time
}

// OpenBlocklist reads the file. After an error, the service must not start, because without the
// list it would allow all destinations.
func OpenBlocklist(path string) (*Blocklist, error) {
	b := &Blocklist{path: path}
	return b, b.Refresh(context.Background())
}

// Refresh reads the file if it has changed. While the file cannot be read, the previous list stays
// in effect. Kubernetes updates a mounted ConfigMap by changing a symbolic link. Refresh detects
// this because the new file has a different modification time.
func (b *Blocklist) Refresh(context.Context) error {
	f, err := os.Open(b.path)
	if err != nil {
		return fmt.Errorf("blocked destinations: %w", err)
	}
	defer func() { _ = f.Close() }() // opened for reading only
	// Stat the open file, so that the result describes the version that is read below.
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("blocked destinations: %w", err)
	}
	now := fileVersion{info.Size(), info.ModTime()}
	if b.hosts.Load() != nil && now == b.seen {
		return nil
	}
	hosts, err := readBlocklist(f)
	if err != nil {
		return fmt.Errorf("blocked destinations: %w", err)
	}
	b.hosts.Store(&hosts)
	b.seen = now
	slog.Info("blocked destinations read", "hosts", len(hosts))
	return nil
}

func readBlocklist(r io.Reader) (map[string]bool, error) {
	hosts := map[string]bool{}
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		name := strings.TrimSpace(lines.Text())
		if name == "" || name[0] == '#' {
			continue
		}
		// Convert the name to the form that destinations have: lower case, Punycode. Lists from
		// other sources contain "*.example.com" or ".example.com". Both mean example.com here
		// because a name covers its subdomains.
		u, err := url.Parse("http://" + strings.TrimPrefix(strings.TrimPrefix(name, "*"), ".") + "/")
		if err != nil || u.Hostname() == "" {
			return nil, fmt.Errorf("line %d is not a host name", n)
		}
		hosts[strings.TrimSuffix(u.Hostname(), ".")] = true
	}
	return hosts, lines.Err()
}

// Has reports whether a URL in standard form is on a blocked host. It runs on every redirect, so it
// does not copy the URL.
func (b *Blocklist) Has(location string) bool {
	hosts := *b.hosts.Load()
	if len(hosts) == 0 {
		return false
	}
	_, host, _ := strings.Cut(location, "://")
	if i := strings.IndexAny(host, "/?#"); i >= 0 {
		host = host[:i]
	}
	if i := strings.LastIndexByte(host, ':'); i >= 0 && !strings.HasSuffix(host, "]") {
		host = host[:i]
	}
	for host = strings.TrimSuffix(host, "."); host != ""; {
		if hosts[host] {
			return true
		}
		_, host, _ = strings.Cut(host, ".")
	}
	return false
}
