package probe

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/davidwkeith/dwk/internal/clock"
	"github.com/davidwkeith/dwk/internal/mode"
)

// maxSkew is the difference of clocks above which the note is a warning. It
// harms no promise, but makes logs of several machines hard to compare.
const maxSkew = time.Second

// marker judges how the store set is written. That it is new is no failure.
func (p *prober) marker(g *group) error {
	var marker string
	var id mode.Store
	return g.step("marker", func(ctx context.Context) (err error) {
		marker, id, err = mode.Read(ctx, p.KV)
		return err
	}, func() error {
		if marker == "" && id.ID == "" {
			g.note("marker", "new store set: no replica has claimed it yet", false)
			return nil
		}
		g.note("marker", fmt.Sprintf("mode %s, store set %s", marker, id.ID), false)
		return mode.Check(marker, id)
	})
}

// skew compares the primary's clock with this machine's. The repetition with
// the shortest round trip tells the most, and is the one that is noted.
func (p *prober) skew(g *group) error {
	var took time.Duration
	return g.step("skew", func(ctx context.Context) error {
		begin := clock.Now()
		_, err := p.KV.Now(ctx)
		took = clock.Since(begin)
		return err
	}, func() error {
		if samples := g.checks[0].samples; samples[len(samples)-1] > slices.Min(samples) {
			return nil
		}
		skew, within := p.KV.Skew(), took/2+2*time.Millisecond
		text := fmt.Sprintf("this machine's clock agrees with the primary's within %s", round(within))
		switch {
		case skew > within:
			text = fmt.Sprintf("the primary's clock is %s ahead of this machine's, give or take %s", skew, round(within))
		case skew < -within:
			text = fmt.Sprintf("the primary's clock is %s behind this machine's, give or take %s", -skew, round(within))
		}
		g.note("skew", text, skew.Abs() > maxSkew+within)
		return nil
	})
}
