package libsqltest_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/davidwkeith/dwk/internal/libsql"
	"github.com/davidwkeith/dwk/internal/libsql/libsqltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFile(t *testing.T) {
	libsqltest.Run(t, func(t *testing.T) *libsql.DB { return libsqltest.File(t).Open(t) })
}

func TestLive(t *testing.T) {
	if !libsqltest.IsLive() {
		libsqltest.Live(t) // skips
	}
	libsqltest.Run(t, func(t *testing.T) *libsql.DB { return libsqltest.Live(t).Open(t) })
}

func TestWire(t *testing.T) {
	libsqltest.Run(t, func(t *testing.T) *libsql.DB { return libsqltest.Wire(t).Open(t) })
}
