package proto

import (
	"encoding/base64"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// A maker writes messages.
type maker struct {
	t   *rapid.T
	bad bool
}

func (g *maker) one(name string, of ...func() string) string {
	return of[rapid.IntRange(0, len(of)-1).Draw(g.t, name)]()
}

func (g *maker) space() string {
	return rapid.SampledFrom([]string{"", "", "", " ", "\n\t\r "}).Draw(g.t, "space")
}

func (g *maker) likely(name string) bool { return rapid.IntRange(0, 3).Draw(g.t, name) > 0 }

// wrong is a value of another type, in a message that is bad.
func (g *maker) wrong(good func() string) string {
	if g.bad && rapid.IntRange(0, 15).Draw(g.t, "wrong") == 0 {
		return rapid.SampledFrom([]string{"null", "1", "-1.5", `"x"`, "true", "{}", "[]", "[null]", `{"type":"ok"}`, `"\udc00"`, "nul", ""}).Draw(g.t, "instead")
	}
	return good()
}

func (g *maker) text() string {
	s := rapid.StringN(0, 12, -1).Filter(utf8.ValidString).Draw(g.t, "text")
	return g.quote(s)
}

// quote writes a text with or without escapes.
func (g *maker) quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		escape := rapid.IntRange(0, 5).Draw(g.t, "escape") == 0
		switch {
		case escape && r >= 0x10000:
			fmt.Fprintf(&b, `\u%04x\u%04X`, 0xd800+(r-0x10000)>>10, 0xdc00+(r-0x10000)&0x3ff)
		case escape || r < ' ':
			fmt.Fprintf(&b, `\u%04x`, r)
		case r == '"' || r == '\\':
			b.WriteString(`\` + string(r))
		default:
			b.WriteRune(r)
		}
	}
	return b.String() + `"`
}

func (g *maker) list(each func() string) string {
	var parts []string
	for range rapid.IntRange(0, 4).Draw(g.t, "n") {
		parts = append(parts, g.space()+g.wrong(each)+g.space())
	}
	return "[" + strings.Join(parts, ",") + "]"
}

func (g *maker) object(must string, members map[string]func() string) string {
	var names []string
	for _, name := range rapid.Permutation(slices.Sorted(maps.Keys(members))).Draw(g.t, "order") {
		if name == must && !g.bad || g.likely(name) {
			names = append(names, name)
		}
	}
	if g.bad && len(names) > 0 && rapid.IntRange(0, 15).Draw(g.t, "twice") == 0 {
		names = append(names, names[0])
	}
	var parts []string
	for _, name := range names {
		parts = append(parts, g.space()+g.one("name", func() string { return `"` + name + `"` }, func() string { return g.quote(name) })+g.space()+":"+g.space()+g.wrong(members[name])+g.space())
		if !g.likely("other") {
			parts = append(parts, g.text()+":"+g.one("other value", g.text, g.value, func() string { return "[]" }, func() string { return "null" }))
		}
	}
	return "{" + strings.Join(parts, ",") + "}"
}

func (g *maker) maybe(f func() string) func() string {
	return func() string {
		if g.likely("some") {
			return f()
		}
		return "null"
	}
}

func (g *maker) id() string { return strconv.Itoa(int(rapid.Int32().Draw(g.t, "id"))) }

func (g *maker) message() string {
	return g.object("", map[string]func() string{
		"baton": g.maybe(g.text), "requests": func() string { return g.list(g.request) }, "batch": g.maybe(g.batch),
	})
}

func (g *maker) kind(kinds ...string) func() string {
	return func() string { return g.quote(rapid.SampledFrom(kinds).Draw(g.t, "type")) }
}

func (g *maker) request() string {
	return g.object("type", map[string]func() string{
		"type": g.kind("execute", "batch", "close", "date"), "stmt": g.maybe(g.statement), "batch": g.maybe(g.batch), "sql": g.maybe(g.text), "sql_id": g.maybe(g.id),
	})
}

func (g *maker) batch() string {
	return g.object("", map[string]func() string{"steps": func() string {
		return g.list(func() string {
			return g.object("stmt", map[string]func() string{"stmt": g.statement, "condition": g.maybe(func() string { return g.condition(0) })})
		})
	}})
}

func (g *maker) condition(depth int) string {
	members := map[string]func() string{"type": g.kind("ok", "not", "and", "x"), "step": g.maybe(func() string { return strconv.Itoa(rapid.Int().Draw(g.t, "step")) })}
	if depth < 2 {
		members["cond"] = g.maybe(func() string { return g.condition(depth + 1) })
		members["conds"] = func() string { return g.list(func() string { return g.condition(depth + 1) }) }
	}
	return g.object("type", members)
}

func (g *maker) statement() string {
	return g.object("", map[string]func() string{
		"sql":  g.maybe(func() string { return g.one("sql", g.text, func() string { return `"INSERT INTO t VALUES(?,?)"` }) }),
		"args": g.maybe(func() string { return g.list(g.value) }), "sql_id": g.maybe(g.id),
		"named_args": func() string {
			return g.list(func() string {
				if g.bad {
					return g.object("", map[string]func() string{"name": g.text, "value": g.value})
				}
				return `{"name":` + g.text() + `,"value":` + g.value() + `}`
			})
		},
		"want_rows": g.maybe(func() string { return strconv.FormatBool(rapid.Bool().Draw(g.t, "rows")) }),
	})
}

// value is mostly in the usual form.
func (g *maker) value() string {
	v := rapid.OneOf(
		rapid.Int64().AsAny(),
		rapid.Float64().Filter(func(f float64) bool { return !math.IsInf(f, 0) }).AsAny(),
		rapid.String().Filter(utf8.ValidString).AsAny(),
		rapid.SliceOf(rapid.Byte()).AsAny(),
		rapid.Just[any](nil),
	).Draw(g.t, "v")
	if g.likely("usual") {
		b, err := AppendValue(nil, v)
		if err != nil {
			g.t.Fatal(err)
		}
		return string(b)
	}
	kind, name, value := "null", "value", func() string { return "null" }
	switch v := v.(type) {
	case int64:
		kind, value = "integer", func() string { return fmt.Sprintf(`"%d"`, v) }
	case float64:
		kind, value = "float", func() string { return strconv.FormatFloat(v, 'e', -1, 64) }
	case string:
		kind, value = "text", func() string { return g.quote(v) }
	case []byte:
		kind, name, value = "blob", "base64", func() string {
			return g.quote(rapid.SampledFrom([]*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding}).Draw(g.t, "padding").EncodeToString(v))
		}
	}
	members := map[string]func() string{"type": g.kind(kind), name: value}
	if g.bad {
		return g.object("", members)
	}
	if rapid.Bool().Draw(g.t, "type first") {
		return `{"type":` + g.quote(kind) + `,` + `"` + name + `":` + value() + `}`
	}
	return `{ "` + name + `" :` + value() + `, "type":"` + kind + `"}`
}
