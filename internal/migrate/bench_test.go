package migrate_test

import (
	"testing"

	"github.com/davidwkeith/dwk/internal/migrate"
	"github.com/davidwkeith/dwk/internal/migrate/migratetest"
)

// BenchmarkObjects moves objects to a store set and back; the figures are
// objects a second.
func BenchmarkObjects(b *testing.B) {
	const n = 300
	for _, place := range []string{"file", "wire"} {
		b.Run(place, func(b *testing.B) {
			only := func(c *migrate.Config) { c.Only = []migrate.Kind{migrate.Objects} }
			data := b.TempDir()
			migratetest.Make(b, data, migratetest.Options{Objects: n})
			var up, down float64
			for range b.N {
				r := newRig(b, place == "wire", nil, nil)
				b.ResetTimer()
				r.up(data, only)
				up += b.Elapsed().Seconds()
				b.ResetTimer()
				r.down(r.newDir(), only)
				down += b.Elapsed().Seconds()
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(b.N*n)/up, "up/s")
			b.ReportMetric(float64(b.N*n)/down, "down/s")
		})
	}
}
