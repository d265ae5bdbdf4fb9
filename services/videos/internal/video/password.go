package video

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/crypto/argon2"
)

// ErrBusy is the answer when more passwords wait to be hashed than the process
// is ready to hold. Memory is what an attacker would exhaust: each hash takes
// 19 MiB while it runs.
var ErrBusy = errors.New("video: too many passwords are being checked")

// Passwords hashes and checks video passwords with argon2id. At most a few run
// at once, a bounded number wait, and the rest are refused at once, so that a
// flood of guesses costs neither memory nor the time of other requests.
type Passwords struct {
	slots   chan struct{}
	waiting atomic.Int64
	queue   int64
	params  argonParams
}

type argonParams struct {
	memory  uint32 // KiB
	time    uint32
	threads uint8
}

const (
	saltSize = 16
	hashSize = 32
)

// NewPasswords allows parallel hashes at once and queue more to wait.
func NewPasswords(parallel, queue int) *Passwords {
	return &Passwords{
		slots:  make(chan struct{}, max(1, parallel)),
		queue:  int64(queue),
		params: argonParams{memory: 19 * 1024, time: 2, threads: 1},
	}
}

// Hash makes the PHC string to keep. It answers ErrBusy, or ctx's error.
func (p *Passwords) Hash(ctx context.Context, password string) (string, error) {
	salt := make([]byte, saltSize)
	rand.Read(salt)
	key, err := p.derive(ctx, password, salt, p.params, hashSize)
	if err != nil {
		return "", err
	}
	enc := base64.RawStdEncoding
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version,
		p.params.memory, p.params.time, p.params.threads, enc.EncodeToString(salt), enc.EncodeToString(key)), nil
}

// Check reports whether password is the one that phc was made from, in time
// that does not depend on how much of it is right.
func (p *Passwords) Check(ctx context.Context, phc, password string) (bool, error) {
	// With the parameters of the stored hash: ours may be raised without breaking older ones.
	params, salt, want, err := parsePHC(phc)
	if err != nil {
		return false, err
	}
	got, err := p.derive(ctx, password, salt, params, uint32(len(want)))
	if err != nil {
		return false, err
	}
	return subtle.ConstantTimeCompare(got, want) == 1, nil
}

func (p *Passwords) derive(ctx context.Context, password string, salt []byte, a argonParams, size uint32) ([]byte, error) {
	if err := p.enter(ctx); err != nil {
		return nil, err
	}
	defer func() { <-p.slots }()
	// A hash cannot be interrupted. ctx only ends the wait for a slot.
	return argon2.IDKey([]byte(password), salt, a.time, a.memory, a.threads, size), nil
}

func (p *Passwords) enter(ctx context.Context) error {
	select {
	case p.slots <- struct{}{}:
		return nil
	default:
	}
	// Counted first and given back: a check before the addition would let a burst through.
	if p.waiting.Add(1) > p.queue {
		p.waiting.Add(-1)
		return ErrBusy
	}
	defer p.waiting.Add(-1)
	select {
	case p.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

var errPHC = errors.New("video: not an argon2id PHC string")

// parsePHC reads the stored form. Bounds keep a damaged record from asking for
// more memory or time than any hash of ours ever did.
func parsePHC(s string) (argonParams, []byte, []byte, error) {
	fields := strings.Split(s, "$")
	if len(fields) != 6 || fields[0] != "" || fields[1] != "argon2id" || fields[2] != "v="+strconv.Itoa(argon2.Version) {
		return argonParams{}, nil, nil, errPHC
	}
	var a argonParams
	if n, err := fmt.Sscanf(fields[3], "m=%d,t=%d,p=%d", &a.memory, &a.time, &a.threads); n != 3 || err != nil ||
		a.memory < 8 || a.memory > 256*1024 || a.time < 1 || a.time > 16 || a.threads < 1 || a.threads > 16 {
		return argonParams{}, nil, nil, errPHC
	}
	salt, err := base64.RawStdEncoding.DecodeString(fields[4])
	if err != nil || len(salt) < 8 {
		return argonParams{}, nil, nil, errPHC
	}
	hash, err := base64.RawStdEncoding.DecodeString(fields[5])
	if err != nil || len(hash) < 16 || len(hash) > 64 {
		return argonParams{}, nil, nil, errPHC
	}
	return a, salt, hash, nil
}
