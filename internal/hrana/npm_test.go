package hrana_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/uuid"

	"github.com/davidwkeith/dwk/internal/hrana"
)

// Clients from npm work with this server, set up as that of dwk dev is. Make
// installs them: they are no part of the other runs.
func TestNPMClients(t *testing.T) {
	dir := os.Getenv("DWK_TEST_NPM")
	if dir == "" {
		t.Skip("needs npm: make test-npm")
	}
	const database = "clients"
	token := uuid.NewString()
	s, url := start(t, hrana.Config{Namespaces: filepath.Join(t.TempDir(), "namespaces"), Token: token, Strict: true})
	if err := s.CreateNamespace(database); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "node", "--test", "--test-reporter=spec")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LIBSQL_URL="+url+"/dev/"+database+"/", "LIBSQL_TOKEN="+token)
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
}
