package config

import (
	"maps"
	"reflect"
	"slices"
)

// loadLists replaces the default of each list that the file has.
func (l *loader) loadLists() {
	for _, list := range lists() {
		elems, ok := l.doc.root[list.name].([]any)
		if !ok || len(elems) > maxElements {
			continue
		}
		l.cfg.origins[list.key] = originFile + l.doc.path
		out := reflect.MakeSlice(list.typ, len(elems), len(elems))
		for i, elem := range elems {
			setDefaults(out.Index(i), list.children)
			m, _ := elem.(map[string]any)
			for _, n := range list.children {
				if raw := m[n.name]; raw != nil {
					key := joinKey(elementKey(list.key, i), n.name)
					l.cfg.origins[key] = originFile + l.doc.path
					l.setField(out.Index(i), n, key, raw)
				}
			}
		}
		reflect.ValueOf(l.cfg).Elem().FieldByIndex(list.index).Set(out)
	}
}

// dropLabDefaults removes what the default lists hold for the lab when the file
// mounts other applications only.
func (l *loader) dropLabDefaults() {
	if slices.ContainsFunc(l.cfg.Mounts, func(m Mount) bool { return m.App == labApp }) {
		return
	}
	for _, list := range lists() {
		if _, given := l.cfg.origins[list.key]; !given && list.key != "queues" {
			v := reflect.ValueOf(l.cfg).Elem().FieldByIndex(list.index)
			v.Set(reflect.MakeSlice(list.typ, 0, 0))
		}
	}
}

// loadElements applies the variables of named things. One that names a thing
// which the file does not have adds it.
func (l *loader) loadElements() {
	for _, variable := range slices.Sorted(maps.Keys(l.env)) {
		listKey, field, name, ok := splitElementVariable(variable)
		if !ok {
			continue
		}
		list := lists()[slices.IndexFunc(lists(), func(n *node) bool { return n.key == listKey })]
		n := list.children[slices.IndexFunc(list.children, func(n *node) bool { return n.name == field })]
		i := l.element(list, name, variable)
		key := joinKey(elementKey(list.key, i), field)
		l.cfg.origins[key] = originEnv + variable
		elems := reflect.ValueOf(l.cfg).Elem().FieldByIndex(list.index)
		l.setField(elems.Index(i), n, key, l.env[variable])
	}
}

// element returns the index of the element that variables call name.
func (l *loader) element(list *node, name, variable string) int {
	names := l.cfg.names(list.key)
	if i := slices.IndexFunc(names, func(n string) bool { return envForm(n) == envForm(name) }); i >= 0 {
		return i
	}
	if near, d := nearest(name, names); near != "" && len(name) <= maxNear && d <= 1+len(near)/8 && list.key != "secrets" {
		l.warn("environment variable %s adds %s to %s: did you mean %s?", variable, name, list.key, near)
	}
	elem := reflect.New(list.typ.Elem()).Elem()
	setDefaults(elem, list.children)
	elem.FieldByName("Name").SetString(name)
	elems := reflect.ValueOf(l.cfg).Elem().FieldByIndex(list.index)
	elems.Set(reflect.Append(elems, elem))
	l.cfg.origins[joinKey(elementKey(list.key, len(names)), "name")] = originEnv + variable
	return len(names)
}
