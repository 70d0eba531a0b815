package figures

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const intro = `# Figures

What long runs have measured, with the conditions under which they were made: a figure
without those says nothing. This file is made of the records in [figures](figures)
(` + "`go test ./internal/fleettest/figures -run TestFiguresDocument -update`" + `): change those, by
running again what made them.
`

// sections make the parts of the document, of the records in a folder. One whose
// records are missing is "".
var sections = []func(dir string) (string, error){
	robustnessSection,
	soakSection,
	besideSection,
	mutantsSection,
}

// Document is the whole document.
func Document(dir string) (string, error) {
	var b strings.Builder
	b.WriteString(intro)
	for _, section := range sections {
		text, err := section(dir)
		if err != nil {
			return "", err
		}
		if text != "" {
			b.WriteString("\n" + strings.TrimSpace(text) + "\n")
		}
	}
	return b.String(), nil
}

// read decodes a file of records; false when there is none.
func read(dir, name string, into any) (bool, error) {
	b, err := os.ReadFile(filepath.Join(dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		err = json.Unmarshal(b, into)
	}
	if err != nil {
		return false, fmt.Errorf("%s: %w", name, err)
	}
	return true, nil
}

// grouped writes a number with commas.
func grouped(n int) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// seconds writes milliseconds as seconds.
func seconds(ms int64) string { return fmt.Sprintf("%.2f s", float64(ms)/1000) }
