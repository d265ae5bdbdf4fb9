// Package password hashes and checks visitors' passwords with argon2id.
//
// Each hash takes 19 MiB and about 30 ms of CPU time, the resources that an attacker would exhaust
// first. So a process runs only a few hashes at a time, accounts take turns, and no account can use
// all the slots. A flood of guesses for one account's records does not cost other accounts any
// memory or time. Only calls for that account are refused.
package password

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/crypto/argon2"

	"github.com/linkreel/linkreel/libs/turns"
)

// ErrBusy means that too many of the account's passwords are waiting to be hashed.
var ErrBusy = turns.ErrFull

// Hasher hashes and checks. It is safe for concurrent use.
type Hasher struct {
	queue  *turns.Queue
	params argonParams
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

// accounts is how many accounts with a full queue may wait at the same time.
const accounts = 16

// New returns a Hasher that runs up to parallel hashes at the same time, at most half of them for
// one account. waiting is how many more hashes may wait per account.
func New(parallel, waiting int) *Hasher {
	parallel, waiting = max(1, parallel), max(1, waiting)
	return &Hasher{
		queue:  turns.NewQueue(turns.QueueOptions{Name: "passwords", Parallel: parallel, Each: (parallel + 1) / 2, Waiting: waiting, AllWaiting: accounts * waiting}),
		params: argonParams{memory: 19 * 1024, time: 2, threads: 1},
	}
}

// Hash returns the PHC string to store. It waits for the account's turn. The error is ErrBusy or
// the error from ctx.
func (p *Hasher) Hash(ctx context.Context, account, password string) (string, error) {
	salt := make([]byte, saltSize)
	rand.Read(salt)
	key, err := p.derive(ctx, account, password, salt, p.params, hashSize)
	if err != nil {
		return "", err
	}
	enc := base64.RawStdEncoding
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version,
		p.params.memory, p.params.time, p.params.threads, enc.EncodeToString(salt), enc.EncodeToString(key)), nil
}

// Check reports whether phc is a hash of password. The time it takes does not reveal how much of
// password is correct. account owns the record that the password protects. The error is ErrBusy,
// the error from ctx, or the error for a malformed phc.
func (p *Hasher) Check(ctx context.Context, account, phc, password string) (bool, error) {
	// Use the parameters of the stored hash so that the parameters for new hashes can be raised.
	params, salt, want, err := parsePHC(phc)
	if err != nil {
		return false, err
	}
	got, err := p.derive(ctx, account, password, salt, params, uint32(len(want)))
	if err != nil {
		return false, err
	}
	return subtle.ConstantTimeCompare(got, want) == 1, nil
}

func (p *Hasher) derive(ctx context.Context, account, password string, salt []byte, a argonParams, size uint32) ([]byte, error) {
	release, err := p.queue.Enter(ctx, account)
	if err != nil {
		return nil, err
	}
	defer release()
	// A hash cannot be interrupted. ctx only limits the wait for a slot.
	return argon2.IDKey([]byte(password), salt, a.time, a.memory, a.threads, size), nil
}

var errPHC = errors.New("not an argon2id PHC string")

// parsePHC parses the stored form. It rejects out-of-range parameters, so a damaged record cannot
// use excessive memory or time.
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
