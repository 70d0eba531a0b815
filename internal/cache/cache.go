// Package cache is a map of values that lives in one process: bounded by a
// number of entries, the least recently used of which goes, and each for a time.
package cache

import (
	"container/list"
	"sync"
	"time"

	"github.com/davidwkeith/dwk/durable"
	"github.com/davidwkeith/dwk/internal/clock"
)

// A Cache is safe for concurrent use. What it holds is not copied.
type Cache struct {
	most int
	ttl  time.Duration

	mu      sync.Mutex
	entries map[string]*list.Element
	used    *list.List // of *entry, the latest used first
}

var _ durable.Cache = (*Cache)(nil)

type entry struct {
	key   string
	value any
	until time.Time
}

// New returns an empty cache of at most so many entries, none of which lives
// longer than ttl. Both must be positive.
func New(most int, ttl time.Duration) *Cache {
	return &Cache{most: most, ttl: ttl, entries: map[string]*list.Element{}, used: list.New()}
}

// Get implements [durable.Cache].
func (c *Cache) Get(key string) (value any, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[key]
	if e == nil {
		return nil, false
	}
	if !clock.Now().Before(e.Value.(*entry).until) {
		c.remove(e)
		return nil, false
	}
	c.used.MoveToFront(e)
	return e.Value.(*entry).value, true
}

// Set implements [durable.Cache]. Without a ttl, or with a longer one than the
// cache's, the cache's holds.
func (c *Cache) Set(key string, value any, ttl time.Duration) {
	if ttl <= 0 || ttl > c.ttl {
		ttl = c.ttl
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.entries[key]; e != nil {
		c.remove(e)
	}
	for c.used.Len() >= c.most {
		c.remove(c.used.Back())
	}
	c.entries[key] = c.used.PushFront(&entry{key, value, clock.Now().Add(ttl)})
}

// Delete implements [durable.Cache].
func (c *Cache) Delete(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.entries[key]; e != nil {
		c.remove(e)
	}
}

// Len returns the number of entries, those that have ended and were not asked
// for since included.
func (c *Cache) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.used.Len()
}

func (c *Cache) remove(e *list.Element) {
	delete(c.entries, e.Value.(*entry).key)
	c.used.Remove(e)
}
