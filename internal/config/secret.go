package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strings"
)

// hidden is what every printed form of a secret shows.
const hidden = "(hidden)"

// maxSecret bounds a secret read from a file, in bytes.
const maxSecret = 64 << 10

// Secret is a value that never appears in output: all its printed forms are
// "(hidden)", or "" when it is empty. Only Reveal returns it.
type Secret struct {
	// A pointer, since fmt calls no method on what it finds in unexported
	// fields of other types: there it prints an address, not the value.
	value *string
	file  string // where it came from, or ""
}

// NewSecret returns a secret of the given value.
func NewSecret(value string) Secret {
	if value == "" {
		return Secret{}
	}
	return Secret{value: &value}
}

// Reveal returns the value itself.
func (s Secret) Reveal() string {
	if s.value == nil {
		return ""
	}
	return *s.value
}

// File returns the path of the file that the secret was read from, or "".
func (s Secret) File() string { return s.file }

// Reread returns the secret as its file has it now; one that came from elsewhere
// is what it is.
func (s Secret) Reread() (Secret, error) {
	if s.file == "" {
		return s, nil
	}
	return secretFile(s.file)
}

// IsZero reports whether the secret is empty.
func (s Secret) IsZero() bool { return s.value == nil }

func (s Secret) String() string {
	if s.IsZero() {
		return ""
	}
	return hidden
}

// GoString returns String, quoted.
func (s Secret) GoString() string { return fmt.Sprintf("%q", s.String()) }

// Format writes String for every verb.
func (s Secret) Format(f fmt.State, verb rune) {
	if verb == 'q' || f.Flag('#') {
		io.WriteString(f, s.GoString())
		return
	}
	io.WriteString(f, s.String())
}

// MarshalText returns String, for JSON and YAML.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// LogValue returns String.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// resolveSecret returns the secret that raw stands for: env:NAME, file:PATH
// (relative to dir, a trailing newline cut) or itself. Errors name the variable
// or file, and never show a value.
func resolveSecret(raw, dir string, env map[string]string) (Secret, error) {
	if name, ok := strings.CutPrefix(raw, "env:"); ok {
		if env[name] == "" {
			return Secret{}, fmt.Errorf("environment variable %s is not set", name)
		}
		return NewSecret(env[name]), nil
	}
	if name, ok := strings.CutPrefix(raw, "file:"); ok {
		return secretFile(inDir(dir, name))
	}
	return NewSecret(raw), nil
}

func secretFile(name string) (Secret, error) {
	b, err := readBounded(name, maxSecret)
	if err != nil {
		return Secret{}, fmt.Errorf("secret file: %w", err)
	}
	value := strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r")
	if value == "" {
		return Secret{}, fmt.Errorf("secret file %s is empty", name)
	}
	return Secret{value: &value, file: name}, nil
}

// readBounded reads a regular file or pipe of at most limit bytes.
func readBounded(name string, limit int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > limit {
		return nil, &fs.PathError{Op: "read", Path: name, Err: errors.New("larger than " + Size(limit).String())}
	}
	return b, nil
}
