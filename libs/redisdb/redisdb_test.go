package redisdb

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
)

func TestParseKnowsEveryFormOfAddress(t *testing.T) {
	t.Parallel()
	type want struct {
		addrs                        []string
		user, password, master, sent string
		db                           int
		tls, cluster                 bool
	}
	for addr, w := range map[string]want{
		"localhost:6379":                                    {addrs: []string{"localhost:6379"}},
		"redis.example":                                     {addrs: []string{"redis.example:6379"}},
		"redis://u:p%40ss@h:1/3":                            {addrs: []string{"h:1"}, user: "u", password: "p@ss", db: 3},
		"rediss://:pw@h:1":                                  {addrs: []string{"h:1"}, password: "pw", tls: true},
		"redis://[::1]:7000":                                {addrs: []string{"[::1]:7000"}},
		"redis://a:1,b:2,c:3":                               {addrs: []string{"a:1", "b:2", "c:3"}, cluster: true},
		"rediss://:p@discovery:1?cluster=true":              {addrs: []string{"discovery:1"}, password: "p", tls: true, cluster: true},
		"redis://:p@a:1,b:2/1?master=m&sentinel_password=s": {addrs: []string{"a:1", "b:2"}, password: "p", master: "m", sent: "s", db: 1},
	} {
		opt, err := parse(addr)
		if err != nil {
			t.Errorf("parse(%q): got %v, want no error", addr, err)
			continue
		}
		got := want{opt.Addrs, opt.Username, opt.Password, opt.MasterName, opt.SentinelPassword, opt.DB, opt.TLSConfig != nil, opt.IsClusterMode}
		if diff := cmp.Diff(w, got, cmp.AllowUnexported(want{})); diff != "" {
			t.Errorf("parse(%q) (-want +got):\n%s", addr, diff)
		}
	}
	for _, addr := range []string{"http://h:1", "redis://h:1,", "redis://a:1,b:2/3", "redis://h:1/x", "redis://:secret@h:1%zz"} {
		if _, err := parse(addr); !errors.Is(err, ErrAddress) || strings.Contains(err.Error(), "secret") {
			t.Errorf("parse(%q): got %v, want ErrAddress without the password", addr, err)
		}
	}
}

func TestPasswordMayHoldAnyCharacterApartFromTheAddress(t *testing.T) {
	t.Parallel()
	const odd = "a/b#c?d%e@f,g h:\"\\\n"
	for addr, want := range map[string]struct{ user, password string }{
		"redis://h:1/0":          {"", odd},
		"rediss://u@h:1":         {"u", odd},
		"h:1":                    {"", odd},
		"redis://:p@a:1,b:2":     {"", "p"},
		"redis://a:1,b?master=m": {"", odd},
		"redis://u:p%40ss@h:1/3": {"u", "p@ss"},
	} {
		opt, err := Config{URL: addr, Password: odd}.options()
		if err != nil {
			t.Errorf("options for %s: got %v, want no error", addr, err)
			continue
		}
		if opt.Username != want.user || opt.Password != want.password {
			t.Errorf("%s: user = %q and password = %q, want %q and %q", addr, opt.Username, opt.Password, want.user, want.password)
		}
	}
}

// certificate creates a self-signed certificate for 127.0.0.1.
func certificate(t *testing.T, dir string) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "EC PRIVATE KEY", Bytes: raw}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

func TestOpenSpeaksTLSWithAPrivateAuthorityAndAPassword(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key := certificate(t, dir)
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close()
	_, port, _ := net.SplitHostPort(addr)
	cmd := exec.CommandContext(t.Context(), "redis-server", "--bind", "127.0.0.1", "--port", "0", "--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key,
		"--tls-auth-clients", "no", "--requirepass", "pw", "--save", "", "--dir", dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	ping := func(cfg Config) error {
		cfg.Timeout = 2 * time.Second
		c, err := Open(cfg)
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		return c.Ping(context.Background()).Err()
	}
	good := Config{URL: "rediss://:pw@" + addr, CAFile: cert}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if err = ping(good); err == nil || time.Now().After(deadline) {
			break
		}
	}
	if err != nil {
		t.Fatalf("ping with the authority and the password: got %v, want no error", err)
	}
	if err := ping(Config{URL: good.URL}); err == nil {
		t.Error("ping with a certificate from an unknown authority succeeded, want an error")
	}
	if err := ping(Config{URL: "rediss://:no@" + addr, CAFile: cert}); err == nil || redis.HasErrorPrefix(err, "OK") {
		t.Error("ping with a wrong password succeeded, want an error")
	}
	if _, err := Open(Config{URL: good.URL, CAFile: key}); err == nil {
		t.Error("Open with a file without a certificate succeeded, want an error")
	}
}
