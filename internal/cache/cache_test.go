package cache

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

func TestTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(10, time.Minute)
		c.Set("short", 1, time.Second)
		c.Set("long", 2, time.Hour)
		c.Set("own", 3, 0)
		for _, step := range []struct {
			wait time.Duration
			want string
		}{{0, "[1 2 3]"}, {time.Second - 1, "[1 2 3]"}, {1, "[<nil> 2 3]"}, {59*time.Second - 1, "[<nil> 2 3]"}, {1, "[<nil> <nil> <nil>]"}} {
			time.Sleep(step.wait)
			var got []any
			for _, key := range []string{"short", "long", "own"} {
				v, ok := c.Get(key)
				if ok != (v != nil) {
					t.Errorf("%s: %v, %v", key, v, ok)
				}
				got = append(got, v)
			}
			if fmt.Sprint(got) != step.want {
				t.Errorf("after %v: %v, want %s", step.wait, got, step.want)
			}
		}
		if c.Len() != 0 {
			t.Errorf("%d entries are left", c.Len())
		}
	})
}

// Against a model: a list of keys, the latest used first.
func TestBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(1, 5).Draw(t, "most")
		c := New(most, time.Hour)
		var order []string
		values := map[string]int{}
		touch := func(key string) {
			for i, k := range order {
				if k == key {
					order = append(order[:i:i], order[i+1:]...)
					break
				}
			}
		}
		for i := range rapid.IntRange(0, 60).Draw(t, "steps") {
			key := rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f", "g"}).Draw(t, "key")
			_, held := values[key]
			switch rapid.IntRange(0, 2).Draw(t, "what") {
			case 0:
				touch(key)
				if !held && len(order) == most {
					delete(values, order[most-1])
					order = order[:most-1]
				}
				order = append([]string{key}, order...)
				values[key] = i
				c.Set(key, i, 0)
			case 1:
				v, ok := c.Get(key)
				if ok != held || held && v != values[key] {
					t.Fatalf("%s: %v, %v, want %v, %v", key, v, ok, values[key], held)
				}
				if held {
					touch(key)
					order = append([]string{key}, order...)
				}
			case 2:
				touch(key)
				delete(values, key)
				c.Delete(key)
			}
			if c.Len() != len(order) {
				t.Fatalf("%d entries, want %d", c.Len(), len(order))
			}
		}
	})
}
