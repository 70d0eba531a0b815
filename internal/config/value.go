package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxShown bounds what an error shows of a value.
const maxShown = 80

// parse makes the value of a scalar key from what YAML, the environment (text)
// or a flag gave. For a secret that is the text as written: it stands for the
// secret, and resolveSecret finds that. Bounds are for validation to check.
func (n *node) parse(raw any) (any, error) {
	switch {
	case n.typ == secretType:
		return n.parseSecretText(raw)
	case n.typ == durationType:
		return parseDuration(raw)
	case n.typ == sizeType:
		return parseSize(raw)
	}
	switch n.typ.Kind() {
	case reflect.String:
		return n.parseText(raw)
	case reflect.Bool:
		return parseBool(raw)
	case reflect.Int:
		return parseInt(raw)
	case reflect.Float64:
		return parseFloat(raw)
	default:
		return parseMapping(raw)
	}
}

func wanted(raw any, what string) error {
	shown := fmt.Sprint(raw)
	if s, ok := raw.(string); ok {
		shown = strconv.Quote(s)
	}
	if len(shown) > maxShown {
		shown = strings.ToValidUTF8(shown[:maxShown], "") + "..."
	}
	return fmt.Errorf("%s is not %s", shown, what)
}

func (n *node) parseText(raw any) (any, error) {
	// YAML reads some of the allowed words, such as true, as other types.
	if word := fmt.Sprint(raw); slices.Contains(n.oneOf, word) {
		return word, nil
	}
	if s, ok := raw.(string); ok {
		return s, nil
	}
	return nil, wanted(raw, "text: put it in quotes")
}

func (n *node) parseSecretText(raw any) (any, error) {
	if s, ok := raw.(string); ok {
		return s, nil
	}
	return nil, errors.New("the value is not text: put it in quotes")
}

func parseDuration(raw any) (any, error) {
	switch v := raw.(type) {
	case time.Duration:
		return v, nil
	case string:
		if d, err := time.ParseDuration(v); err == nil {
			return d, nil
		}
	case int:
		if v == 0 {
			return time.Duration(0), nil
		}
	}
	return nil, wanted(raw, "a duration such as 10s or 1h30m")
}

func parseSize(raw any) (any, error) {
	switch v := raw.(type) {
	case Size:
		return v, nil
	case int:
		return Size(v), nil
	case string:
		return ParseSize(v)
	}
	return nil, wanted(raw, "a size such as 256KiB")
}

func parseBool(raw any) (any, error) {
	switch v := raw.(type) {
	case bool:
		return v, nil
	case string:
		if b, err := strconv.ParseBool(v); err == nil {
			return b, nil
		}
	}
	return nil, wanted(raw, "true or false")
}

func parseInt(raw any) (any, error) {
	switch v := raw.(type) {
	case int:
		return v, nil
	case string:
		if i, err := strconv.Atoi(v); err == nil {
			return i, nil
		}
	}
	return nil, wanted(raw, "a whole number")
}

func parseFloat(raw any) (any, error) {
	switch v := raw.(type) {
	case float64:
		if !math.IsNaN(v) {
			return v, nil
		}
	case int:
		return float64(v), nil
	case string:
		if f, err := strconv.ParseFloat(v, 64); err == nil && !math.IsNaN(f) {
			return f, nil
		}
	}
	return nil, wanted(raw, "a number")
}

func parseMapping(raw any) (any, error) {
	switch v := raw.(type) {
	case map[string]any:
		if _, err := json.Marshal(v); err != nil {
			return nil, errors.New("the mapping has a key that is not text, or a number that is not finite")
		}
		return v, nil
	case string:
		if v == "{}" {
			return map[string]any{}, nil
		}
	}
	return nil, wanted(raw, "a mapping")
}

// format is the inverse of parse, except for secrets.
func (n *node) format(v reflect.Value) string {
	switch value := v.Interface().(type) {
	case time.Duration:
		return formatDuration(value)
	case float64:
		return strconv.FormatFloat(value, 'g', -1, 64)
	case map[string]any:
		text, err := json.Marshal(hideSensitive(value))
		if err != nil {
			return fmt.Sprintf("(%v)", err)
		}
		return string(text)
	default:
		return fmt.Sprint(value)
	}
}

// formatDuration is Duration.String without units that are zero: 336h, 1h30m.
func formatDuration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// hideSensitive returns settings in which values are hidden whose names say
// that they are secret. Applications should use secrets for those, but may not.
func hideSensitive(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, value := range v {
			if out[name] = hideSensitive(value); sensitive(name) {
				out[name] = hidden
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = hideSensitive(v[i])
		}
		return out
	default:
		return v
	}
}

func sensitive(name string) bool {
	name = strings.ToLower(name)
	for _, word := range []string{"secret", "token", "password", "passwd", "credential"} {
		if strings.Contains(name, word) {
			return true
		}
	}
	return strings.HasSuffix(name, "key")
}
