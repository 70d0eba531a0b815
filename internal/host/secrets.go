package host

import (
	"log/slog"
	"sync"
	"time"

	"github.com/davidwkeith/dwk/internal/clock"
	"github.com/davidwkeith/dwk/internal/config"
	"github.com/davidwkeith/dwk/internal/event"
)

// secretAge is how long a secret is used before its file is looked at again.
const secretAge = time.Second

// secrets are the values that applications ask for by name. One that came from
// a file is read again when it is used: a rotated secret needs no restart.
type secrets struct {
	log *slog.Logger

	mu    sync.Mutex
	known map[string]*knownSecret
}

type knownSecret struct {
	source config.Secret
	value  string
	read   time.Time
	failed bool
}

func newSecrets(log *slog.Logger) *secrets {
	return &secrets{log: log, known: map[string]*knownSecret{}}
}

// add makes a secret known.
func (s *secrets) add(name string, source config.Secret) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known[name] = &knownSecret{source: source, value: source.Reveal(), read: clock.Now()}
}

// get returns the present value. While its file cannot be read the last value
// stays, and the log says so once.
func (s *secrets) get(name string) (value string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.known[name]
	if k == nil {
		return "", false
	}
	if k.source.File() == "" || clock.Since(k.read) < secretAge {
		return k.value, true
	}
	k.read = clock.Now()
	fresh, err := k.source.Reread()
	switch {
	case err != nil && !k.failed:
		s.log.Warn(event.SecretFailed, "secret", name, event.KeyError, err)
	case err == nil && fresh.Reveal() != k.value:
		s.log.Info(event.SecretChanged, "secret", name)
	}
	if k.failed = err != nil; !k.failed {
		k.value = fresh.Reveal()
	}
	return k.value, true
}
