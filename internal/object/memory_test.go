package object

import (
	"net/http"
	"testing"
)

// TestMemoryIsBounded: objects that take too much together leave it, the least
// recently used first, and come back as they were.
func TestMemoryIsBounded(t *testing.T) {
	const room = 10 // objects
	f := newFleet(t)
	a := f.join("a")
	a.do(t, "first", "/add", nil)
	a.settled(t, f)
	one := a.Stats().Memory
	if one < 50<<10 || one > 1<<20 {
		t.Fatalf("one object takes %d bytes", one)
	}
	b := f.join("b", func(c *Config) { c.Memory = room*one + one/2 })
	for range 3 {
		for i := range 3 * room {
			if w := b.do(t, itoa(i), "/add", nil); w.Code != 200 {
				t.Fatalf("%d %s", w.Code, w.Body)
			}
			b.settled(t, f)
			// Room is made once an object is idle, by what ran it.
			eventually(t, "little enough is in memory", func() bool {
				s := b.Stats()
				return s.Memory <= b.cfg.Memory && s.Objects <= room+2
			})
		}
	}
	if s := b.Stats(); s.Objects < room/2 {
		t.Errorf("only %d objects are left", s.Objects)
	}
	// The last ones are those that stayed.
	b.mu.Lock()
	for i, name := range []string{itoa(3*room - 1), "0"} {
		a := b.actors[key{"Counter", b.Namespace("Counter").ID(name).String()}]
		if there := a != nil && a.place != nil; there != (i == 0) {
			t.Errorf("object %s is in memory: %v", name, there)
		}
	}
	b.mu.Unlock()
	for i := range 3 * room {
		if n := b.value(t, itoa(i)); n != 3 {
			t.Errorf("object %d: %d", i, n)
		}
	}
	// One that is too large alone is served, and leaves when another comes.
	large := handlers{"/large": func(o *funcObject, _ http.ResponseWriter, r *http.Request) {
		exec(t, o, r, `CREATE TABLE IF NOT EXISTS b(b); INSERT INTO b SELECT randomblob(2000000)`)
	}}
	c := f.join("c", func(c *Config) { c.Memory = 1 })
	for range 2 {
		if w := c.do(t, "large", "/large", large); w.Code != 200 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		c.settled(t, f)
		eventually(t, "one object is in memory", func() bool { return c.Stats().Objects == 1 })
		c.value(t, "0")
		c.settled(t, f)
	}
	eventually(t, "one object is in memory", func() bool { return c.Stats().Objects == 1 })
}
