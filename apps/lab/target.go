package lab

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxName bounds the name of an object, in bytes.
const maxName = 256

// classes are the object classes by the first segment of their paths.
var classes = map[string]string{"counter": "Counter", "note": "Note", "alarm": "Timer", "room": "Room"}

// methods are the methods of each path, by kind and action.
var methods = map[[2]string][]string{
	{"", ""}:             {http.MethodGet, http.MethodHead},
	{"whoami", ""}:       {http.MethodGet, http.MethodHead},
	{"counter", ""}:      {http.MethodGet, http.MethodHead},
	{"counter", "add"}:   {http.MethodPost},
	{"counter", "ops"}:   {http.MethodGet, http.MethodHead},
	{"note", ""}:         {http.MethodGet, http.MethodHead, http.MethodPut},
	{"note", "sql"}:      {http.MethodPost},
	{"note", "sleep"}:    {http.MethodPost},
	{"note", "sleeps"}:   {http.MethodGet, http.MethodHead},
	{"alarm", ""}:        {http.MethodGet, http.MethodHead, http.MethodPost, http.MethodDelete},
	{"room", "socket"}:   {http.MethodGet},
	{"room", "messages"}: {http.MethodGet, http.MethodHead, http.MethodPost},
	{"counter", "move"}:  {http.MethodPost},
	{"counter", "moves"}: {http.MethodGet, http.MethodHead},
	{"cron", "runs"}:     {http.MethodGet, http.MethodHead},
	{"sql", ""}:          {http.MethodPost},
	{"queue", "send"}:    {http.MethodPost},
	{"queue", "seen"}:    {http.MethodGet, http.MethodHead},
	{"bucket", ""}:       {http.MethodGet, http.MethodHead, http.MethodPut, http.MethodDelete},
	{"bucket", "list"}:   {http.MethodGet, http.MethodHead},
}

// A target is what a path names: "/kind/name/action", or "/bucket/name", whose
// name has slashes.
type target struct{ kind, name, action string }

// parseTarget reads the path of a request, in the front door and again in the
// object. An encoded slash belongs to a name. It is false for a path that the
// lab does not have.
func parseTarget(r *http.Request) (target, bool) {
	segments := strings.Split(strings.TrimPrefix(r.URL.EscapedPath(), "/"), "/")
	for i, s := range segments {
		var err error
		if segments[i], err = url.PathUnescape(s); err != nil {
			return target{}, false
		}
	}
	t := target{kind: segments[0]}
	_, named := classes[t.kind]
	named = named || t.kind == "queue"
	switch {
	case t.kind == "bucket" && len(segments) > 1:
		if t.name = strings.Join(segments[1:], "/"); t.name == "" {
			t.action = "list"
		}
	case t.kind == "bucket":
		return target{}, false
	case t.kind == "cron" && len(segments) == 2:
		t.action = segments[1]
	case !named && len(segments) == 1:
	case named && len(segments) == 2:
		t.name = segments[1]
	case named && len(segments) == 3 && segments[2] != "":
		t.name, t.action = segments[1], segments[2]
	default:
		return target{}, false
	}
	_, ok := methods[[2]string{t.kind, t.action}]
	return t, ok
}

// allowed answers a request whose method its path does not have.
func (t target) allowed(w http.ResponseWriter, r *http.Request) bool {
	allowed := methods[[2]string{t.kind, t.action}]
	if slices.Contains(allowed, r.Method) {
		return true
	}
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	writeError(w, http.StatusMethodNotAllowed, "method not allowed")
	return false
}

func checkName(name string) error {
	switch {
	case name == "":
		return errors.New("a name is needed")
	case len(name) > maxName:
		return fmt.Errorf("name has %d bytes, at most %d are allowed", len(name), maxName)
	case !utf8.ValidString(name):
		return errors.New("name is not UTF-8")
	}
	return nil
}

// intParam reads a query parameter within bounds; def stands for one that is
// not given.
func intParam(q url.Values, key string, def, low, high int64) (int64, error) {
	if !q.Has(key) {
		return def, nil
	}
	n, err := strconv.ParseInt(q.Get(key), 10, 64)
	if err != nil || n < low || n > high {
		return 0, fmt.Errorf("%s must be a whole number from %d to %d", key, low, high)
	}
	return n, nil
}
