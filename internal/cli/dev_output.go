package cli

import (
	"fmt"
	"os"
	"strings"

	"github.com/davidwkeith/dwk/internal/dev"
	"github.com/davidwkeith/dwk/internal/term"
)

// variables are the settings by which replicas and other commands find the
// stores.
func (d *devFleet) variables() [][2]string {
	s := d.stores
	list := [][2]string{
		{"DWK_DATA_DIR", d.dir},
		{"DWK_LIBSQL_URL", s.LibSQL}, {"DWK_LIBSQL_TOKEN", s.Token}, {"DWK_LIBSQL_NAMESPACE", "default"},
		{"DWK_OBJECT_STORE_URL", s.ObjectStore}, {"DWK_OBJECT_STORE_ACCESS_KEY", s.AccessKey}, {"DWK_OBJECT_STORE_SECRET_KEY", "unchecked"},
		{"DWK_OBJECT_STORE_REGION", "us-east-1"}, {"DWK_OBJECT_STORE_PATH_STYLE", "true"},
	}
	for _, db := range d.cfg.Databases {
		name := "DWK_DATABASE_" + strings.ToUpper(strings.ReplaceAll(db.Name, "-", "_"))
		list = append(list, [2]string{name + "_URL", s.DatabaseURL(namespaceOf(db))}, [2]string{name + "_TOKEN", s.Token})
	}
	return list
}

// writeEnvironment writes variables for shells to read, for nobody else's eyes.
func writeEnvironment(path string, variables [][2]string) error {
	var b strings.Builder
	for _, v := range variables {
		fmt.Fprintf(&b, "%s='%s'\n", v[0], strings.ReplaceAll(v[1], "'", `'\''`))
	}
	os.Remove(path) //nolint:errcheck // that of a run that was killed, or none
	return os.WriteFile(path, []byte(b.String()), 0o600)
}

// A devAnswer is what dev writes on stdout.
type devAnswer struct {
	URL         string        `json:"url"`
	LibSQL      string        `json:"libsql_url"`
	ObjectStore string        `json:"object_store_url"`
	Environment string        `json:"environment"` // a file
	Replicas    []dev.Process `json:"replicas"`
}

func (d *devFleet) answer(fleet *dev.Fleet, vars string) error {
	a := devAnswer{URL: d.baseURL, LibSQL: d.stores.LibSQL, ObjectStore: d.stores.ObjectStore, Environment: vars, Replicas: fleet.Processes()}
	t := d.e.term
	d.logging.Lock()
	defer d.logging.Unlock()
	if t.JSON {
		return t.WriteLine(a)
	}
	table := term.NewTable()
	table.Row("fleet", term.Cell{Text: a.URL, Tone: term.Good})
	table.Row("libSQL server", a.LibSQL)
	table.Row("object store", a.ObjectStore)
	table.Row("variables", a.Environment)
	for _, r := range a.Replicas {
		table.Row("replica "+r.Name, fmt.Sprintf("process %d, http://%s, admin http://%s", r.PID, r.Public, r.Admin))
	}
	return t.Table(table)
}

// line writes a line of a replica's log. In JSON each says by itself whose it
// is; people get a name before it.
func (d *devFleet) line(replica int, line []byte) {
	d.logging.Lock()
	defer d.logging.Unlock()
	if d.e.term.ErrIsTerminal() {
		fmt.Fprintf(d.e.term.Err, "%s %s\n", d.e.term.Label(replica, dev.Name(replica)), line)
		return
	}
	fmt.Fprintf(d.e.term.Err, "%s\n", line)
}

func (d *devFleet) notef(format string, args ...any) {
	d.logging.Lock()
	defer d.logging.Unlock()
	d.e.term.Notef(format, args...)
}
