package config

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"
)

func TestParseSize(t *testing.T) {
	for _, c := range []struct {
		text string
		want Size
		back string
	}{
		{"0", 0, "0B"},
		{"1", 1, "1B"},
		{"1023", 1023, "1023B"},
		{"1024", 1 << 10, "1KiB"},
		{"256KiB", 256 << 10, "256KiB"},
		{"5MB", 5e6, "5MB"},
		{"1000 kb", 1e6, "1MB"},
		{" 64 mib ", 64 << 20, "64MiB"},
		{"1024MiB", 1 << 30, "1GiB"},
		{"3TiB", 3 << 40, "3TiB"},
		{"7TB", 7e12, "7TB"},
		{"9223372036854775807", math.MaxInt64, "9223372036854775807B"},
	} {
		got, err := ParseSize(c.text)
		if err != nil || got != c.want || got.String() != c.back {
			t.Errorf("%q: %d (%s), %v; want %d (%s)", c.text, got, got, err, c.want, c.back)
		}
	}
	for _, text := range []string{"", "KiB", "-1", "1.5GiB", "1e3", "1 K", "1KiBx", "8388608TiB", "9223372036854775808", "٣KiB"} {
		if got, err := ParseSize(text); err == nil {
			t.Errorf("%q: accepted as %s", text, got)
		}
	}
}

func TestSizeText(t *testing.T) {
	var v struct {
		Size Size `json:"size" yaml:"size"`
	}
	if err := json.Unmarshal([]byte(`{"size":"2KiB"}`), &v); err != nil || v.Size != 2048 {
		t.Errorf("JSON: %v, %v", v.Size, err)
	}
	if b, err := json.Marshal(v); err != nil || string(b) != `{"size":"2KiB"}` {
		t.Errorf("JSON: %s, %v", b, err)
	}
	if b, err := yaml.Marshal(v); err != nil || string(b) != "size: 2KiB\n" {
		t.Errorf("YAML: %s, %v", b, err)
	}
	if err := yaml.Unmarshal([]byte("size: 3KiB"), &v); err != nil || v.Size != 3072 {
		t.Errorf("YAML: %v, %v", v.Size, err)
	}
	if err := json.Unmarshal([]byte(`{"size":"2 apples"}`), &v); err == nil || v.Size != 3072 {
		t.Errorf("JSON: a wrong size gave %v, %v", v.Size, err)
	}
}

func TestSizeRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Size(rapid.Int64Min(0).Draw(t, "size"))
		if back, err := ParseSize(s.String()); err != nil || back != s {
			t.Fatalf("%d is %s, read as %d, %v", int64(s), s, int64(back), err)
		}
	})
}

func FuzzParseSize(f *testing.F) {
	for _, text := range []string{"0", "256KiB", " 1 mb", "-1", "8388608TiB", "1.5GiB"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseSize(text)
		if err != nil {
			if len(err.Error()) > 4*maxShown+100 || strings.Contains(err.Error(), "\n") {
				t.Fatalf("error of %d bytes: %v", len(err.Error()), err)
			}
			return
		}
		if back, err := ParseSize(s.String()); s < 0 || err != nil || back != s {
			t.Fatalf("%q is %d, its text %s is %d, %v", text, int64(s), s, int64(back), err)
		}
	})
}
