package remotestorage

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"strings"

	"golang.org/x/crypto/argon2"
)

const (
	minPassword = 8    // bytes
	maxPassword = 1024 // bytes
	saltSize    = 16
	keySize     = 32
)

// What a hash costs: 19 MiB and two passes, some 30 ms.
const (
	hashTime    = 2
	hashMemory  = 19 << 10 // KiB
	hashThreads = 1
	hashAtOnce  = 4 // hashes made at a time, of all requests
)

// A hasher makes and checks password hashes, a few at a time: each takes
// memory.
type hasher struct {
	turns  chan struct{}
	memory uint32 // of each, in KiB
}

var theHasher = &hasher{make(chan struct{}, hashAtOnce), hashMemory}

func (h *hasher) key(ctx context.Context, password string, salt []byte, time, memory uint32, threads uint8) ([]byte, error) {
	select {
	case h.turns <- struct{}{}:
		defer func() { <-h.turns }()
		return argon2.IDKey([]byte(password), salt, time, memory, threads, keySize), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// hash returns the hash in the form that argon2 tools write.
func (h *hasher) hash(ctx context.Context, password string) (string, error) {
	salt := make([]byte, saltSize)
	rand.Read(salt) //nolint:errcheck // never fails: it ends the program instead
	key, err := h.key(ctx, password, salt, hashTime, h.memory, hashThreads)
	if err != nil {
		return "", err
	}
	b64 := base64.RawStdEncoding
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, h.memory, hashTime, hashThreads, b64.EncodeToString(salt), b64.EncodeToString(key)), nil
}

// nobodys has the same cost as everybody's.
func (h *hasher) nobodys() string {
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$AAAAAAAAAAAAAAAAAAAAAA$AA", argon2.Version, h.memory, hashTime, hashThreads)
}

// check compares a password with a hash. An empty one is that of nobody, and
// takes as long.
func (h *hasher) check(ctx context.Context, hash, password string) (bool, error) {
	if hash == "" {
		hash = h.nobodys()
	}
	parts := strings.Split(hash, "$")
	var v int
	var memory, time uint32
	var threads uint8
	if len(parts) != 6 || parts[1] != "argon2id" {
		return false, fmt.Errorf("a password's hash is not one of argon2id")
	}
	if _, err := fmt.Sscanf(parts[2]+" "+parts[3], "v=%d m=%d,t=%d,p=%d", &v, &memory, &time, &threads); err != nil || v != argon2.Version || time < 1 || threads < 1 || memory > 1<<20 {
		return false, fmt.Errorf("a password's hash has bad parameters")
	}
	b64 := base64.RawStdEncoding
	salt, err := b64.DecodeString(parts[4])
	if err != nil {
		return false, fmt.Errorf("a password's hash has a bad salt")
	}
	want, err := b64.DecodeString(parts[5])
	if err != nil {
		return false, fmt.Errorf("a password's hash has a bad key")
	}
	key, err := h.key(ctx, password, salt, time, memory, threads)
	if err != nil {
		return false, err
	}
	return subtle.ConstantTimeCompare(key, want) == 1, nil
}

// checkPassword says what is wrong with a new password.
func checkPassword(password string) error {
	if len(password) < minPassword || len(password) > maxPassword {
		return fmt.Errorf("a password has %d to %d bytes", minPassword, maxPassword)
	}
	return nil
}
