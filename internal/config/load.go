package config

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/viper"
)

const (
	maxProblems = 50   // reported at once
	maxElements = 1000 // of a list
)

var (
	errNoMapping = errors.New("not a mapping of text keys to values")
	errNoList    = errors.New("not a list")
)

// Options say where a configuration comes from.
type Options struct {
	// File is the file asked for. "" means the one that DWK_CONFIG names, else
	// dwk.yaml in WorkDir, else /etc/dwk/dwk.yaml, else none: all defaults.
	File string
	// WorkDir is the directory that relative paths of the configuration file
	// and of secrets' files are relative to; "" is the process's own.
	WorkDir string
	// Environ is the environment as "NAME=value"; nil is the process's own.
	Environ []string
	// Flags are the values of flags that were set, by dotted key: text, or the
	// type of the field.
	Flags map[string]any
}

// Load reads, merges and validates a configuration. The error is an [*Error]
// with everything that is wrong.
func Load(opts Options) (*Config, error) { return load(opts, systemFile) }

func load(opts Options, system string) (*Config, error) {
	environ := opts.Environ
	if environ == nil {
		environ = os.Environ()
	}
	l := &loader{cfg: Default(), dir: opts.WorkDir, env: environment(environ), flags: opts.Flags}
	path, err := findFile(opts.File, l.dir, l.env, system)
	if err != nil {
		return nil, &Error{[]Problem{{Message: fmt.Sprintf("cannot read the file: %v", err)}}}
	}
	l.doc = &document{}
	if path != "" {
		if l.doc, err = readDocument(path, l.dir); err != nil {
			return nil, err
		}
	}
	return l.load()
}

// A loader fills one Config.
type loader struct {
	cfg      *Config
	doc      *document
	dir      string
	env      map[string]string
	flags    map[string]any
	problems []Problem
}

func (l *loader) load() (*Config, error) {
	l.cfg.file = l.doc.path
	l.checkKeys(schema(), l.doc.root, "")
	l.loadScalars()
	l.loadLists()
	l.dropLabDefaults()
	l.loadElements()
	l.warnVariables()
	l.validate()
	if len(l.problems) > maxProblems {
		more := Problem{Message: fmt.Sprintf("and %d more", len(l.problems)-maxProblems)}
		l.problems = append(l.problems[:maxProblems], more)
	}
	if len(l.problems) > 0 {
		return nil, &Error{l.problems}
	}
	return l.cfg, nil
}

// validate adds the problems of validation, but for keys whose value could not
// be read, which stand at their defaults.
func (l *loader) validate() {
	unread := map[string]bool{}
	for _, p := range l.problems {
		unread[p.Key] = true
	}
	for _, p := range l.cfg.check().problems {
		if unread[p.Key] {
			continue
		}
		p.Where = l.where(p.Key)
		l.problems = append(l.problems, p)
	}
}

// where names the source of the value that a key has.
func (l *loader) where(key string) string {
	origin := l.cfg.origin(key)
	if list, _, ok := strings.Cut(key, "["); ok && origin == originDefault {
		key, _, _ = strings.Cut(key, "].")
		key, origin = strings.TrimSuffix(key, "]")+"]", l.cfg.origin(list)
	}
	switch {
	case origin == originDefault:
		return ""
	case strings.HasPrefix(origin, originFile):
		return l.doc.where(key)
	default:
		return origin
	}
}

func (l *loader) problem(key, where string, err error) {
	l.problems = append(l.problems, Problem{Key: key, Where: where, Message: err.Error()})
}

// checkKeys reports unknown keys of m, and sections and lists that are none.
func (l *loader) checkKeys(nodes []*node, m map[string]any, path string) {
	for _, name := range l.doc.keysInOrder(m, path) {
		key := joinKey(path, name)
		i := slices.IndexFunc(nodes, func(n *node) bool { return n.name == name })
		switch {
		case i < 0:
			l.unknownKey(key)
		case nodes[i].list:
			l.checkList(nodes[i], m[name])
		case !nodes[i].scalar() && m[name] != nil:
			if section, ok := m[name].(map[string]any); ok {
				l.checkKeys(nodes[i].children, section, key)
			} else {
				l.problem(key, l.doc.where(key), errNoMapping)
			}
		}
	}
}

func (l *loader) checkList(n *node, raw any) {
	elems, ok := raw.([]any)
	switch {
	case !ok && raw != nil:
		l.problem(n.key, l.doc.where(n.key), errNoList)
	case len(elems) > maxElements:
		l.problem(n.key, l.doc.where(n.key), fmt.Errorf("more than %d elements", maxElements))
		return
	}
	for i, elem := range elems {
		key := elementKey(n.key, i)
		if m, ok := elem.(map[string]any); ok {
			l.checkKeys(n.children, m, key)
		} else {
			l.problem(key, l.doc.where(key), errNoMapping)
		}
	}
}

// unknownKey reports a key that is not in the schema and names the one that is
// probably meant. Looking for it takes time: problems that nobody will see and
// names that are none go without.
func (l *loader) unknownKey(key string) {
	message := "unknown key"
	if len(key) <= maxNear && len(l.problems) <= maxProblems {
		message += hint(key)
	}
	l.problem(key, l.doc.where(key), errors.New(message))
}

func hint(key string) string {
	var known []string
	for _, info := range Keys() {
		if strings.Count(info.Key, "[]") <= strings.Count(key, "[") {
			known = append(known, info.Key)
		}
	}
	bare := listIndex.ReplaceAllString(key, "[]")
	if slices.Contains(known, bare) {
		return ": sections are nested, not dotted"
	}
	return ": did you mean " + nearestKey(bare, known) + "?"
}

// loadScalars merges the layers of all scalars and sets the fields. Each layer
// gets known keys only, and the environment is read by exact names, so that
// nothing else can reach the configuration.
func (l *loader) loadScalars() {
	v := viper.New()
	origins := map[string]string{}
	for _, n := range scalars() {
		v.SetDefault(n.key, n.def)
		if raw := dig(l.doc.root, n.key); raw != nil {
			v.MergeConfigMap(nest(n.key, raw)) // fails for no map
			origins[n.key] = originFile + l.doc.path
		}
	}
	for _, n := range scalars() {
		if value, name, ok := l.envScalar(n.key); ok {
			v.Set(n.key, value)
			origins[n.key] = originEnv + name
		}
	}
	for _, key := range slices.Sorted(maps.Keys(l.flags)) {
		if !slices.ContainsFunc(scalars(), func(n *node) bool { return n.key == key }) {
			l.problem(key, originFlag, errors.New("no key that a flag can set"))
			continue
		}
		v.Set(key, l.flags[key])
		origins[key] = originFlag
	}
	l.mergeOlder(v, origins)
	for _, n := range scalars() {
		origin, ok := origins[n.key]
		if !ok {
			continue
		}
		l.cfg.origins[n.key] = origin
		l.setField(reflect.ValueOf(l.cfg).Elem(), n, n.key, v.Get(n.key))
	}
}

// mergeOlder applies the older variables that change a part of a value. They
// win over the file, but not over a flag or the variable of today; an s3:// URL
// has no endpoint and takes one wherever it comes from.
func (l *loader) mergeOlder(v *viper.Viper, origins map[string]string) {
	const listen, url = "listen", "object_store.url"
	chosen := func(key string) bool {
		return origins[key] == originFlag || strings.HasPrefix(origins[key], originEnv)
	}
	if value, name, ok := l.olderListen(v.GetString(listen)); ok && !chosen(listen) {
		v.Set(listen, value)
		origins[listen] = originEnv + name
	}
	current := v.GetString(url)
	if value, name, ok := l.olderObjectStore(current); ok && (!chosen(url) || strings.HasPrefix(current, "s3://")) {
		v.Set(url, value)
		origins[url] = originEnv + name
	}
}

// setField sets the field of the struct v that n describes from raw, or notes
// the problem under key.
func (l *loader) setField(v reflect.Value, n *node, key string, raw any) {
	value, err := n.parse(raw)
	if err == nil && n.typ == secretType {
		value, err = resolveSecret(value.(string), l.dir, l.env)
	}
	if err != nil {
		l.problem(key, l.where(key), err)
		return
	}
	v.FieldByIndex(n.index).Set(reflect.ValueOf(value))
}

// dig returns the value at a dotted key of nested maps, nil for none.
func dig(m map[string]any, key string) any {
	section, rest, nested := strings.Cut(key, ".")
	if !nested {
		return m[section]
	}
	inner, _ := m[section].(map[string]any)
	return dig(inner, rest)
}

// nest is the inverse of dig.
func nest(key string, value any) map[string]any {
	section, rest, nested := strings.Cut(key, ".")
	if !nested {
		return map[string]any{section: value}
	}
	return map[string]any{section: nest(rest, value)}
}
