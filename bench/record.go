package main

import (
	"context"
	"fmt"
	"log"
	"slices"
	"strings"
	"time"

	"github.com/davidwkeith/dwk/internal/bench"
	"github.com/davidwkeith/dwk/internal/fleettest/figures"
)

// A contender is one side that runs.
type contender struct {
	name   string
	pid    int // whose fsyncs count
	server bool
	target bench.Target
}

// compare puts a load on each side in turn. The first two are compared: dwk and
// the other. The order changes from round to round.
func compare(ctx context.Context, o options, r *figures.Beside, name string, aim float64, load bench.Load, sides ...contender) error {
	c := figures.BesideCase{Name: name, Objects: load.Objects, Clients: load.Clients, Aim: aim, Sides: make([]figures.BesideSide, len(sides))}
	cost := make([][]float64, len(sides))
	p50, p99 := make([][]float64, len(sides)), make([][]float64, len(sides))
	for i, s := range sides {
		c.Sides[i].Name = s.name
	}
	for round := -1; round < o.rounds; round++ { // the first warms up
		load.Duration = o.duration
		if round < 0 {
			load.Duration = min(o.duration, 2*time.Second)
		}
		for i := range sides {
			i := (i + round + len(sides)) % len(sides)
			// While the others had their turn this one may have put its objects
			// away, which is no part of the load.
			if err := bench.Populate(ctx, load, sides[i].target); err != nil {
				return fmt.Errorf("%s: %s: %w", name, sides[i].name, err)
			}
			used, err := processorTime(sides[i].pid)
			if err != nil {
				return err
			}
			report, err := bench.Run(ctx, load, sides[i].target)
			if err != nil {
				return err
			}
			if len(report.Errors) > 0 {
				return fmt.Errorf("%s: %s: failed: %v", name, sides[i].name, report.Errors)
			}
			after, err := processorTime(sides[i].pid)
			if err != nil {
				return err
			}
			log.Printf("%s: %s: %.0f/s, p50 %v, p99 %v", name, sides[i].name, report.Throughput(), report.Latency.P50, report.Latency.P99)
			if round < 0 {
				continue
			}
			c.Sides[i].Rates = append(c.Sides[i].Rates, report.Throughput())
			cost[i] = append(cost[i], float64((after-used).Microseconds())/float64(report.OK))
			p50[i] = append(p50[i], report.Latency.P50.Seconds()*1000)
			p99[i] = append(p99[i], report.Latency.P99.Seconds()*1000)
		}
	}
	for i, s := range sides {
		side := &c.Sides[i]
		side.Rate, side.P50, side.P99 = median(side.Rates), median(p50[i]), median(p99[i])
		if s.server {
			side.CPU = median(cost[i])
		}
		var err error
		if side.Fsyncs, err = fsyncs(ctx, o, load, s); err != nil {
			return fmt.Errorf("%s: %s: %w", name, s.name, err)
		}
	}
	for round := range o.rounds {
		c.Ratios = append(c.Ratios, c.Sides[0].Rates[round]/c.Sides[1].Rates[round])
	}
	c.Ratio = median(c.Ratios)
	c.Unequal = unequal(c.Sides[0], c.Sides[1])
	log.Printf("%s: %.2f times (aim %.2f), fsyncs an operation %.2f and %.2f", name, c.Ratio, aim, c.Sides[0].Fsyncs, c.Sides[1].Fsyncs)
	r.Cases = append(r.Cases, c)
	return nil
}

// unequal reports whether of two sides only one syncs. How often says nothing:
// operations that wait together share one.
func unequal(a, b figures.BesideSide) bool {
	const none = 0.01 // a checkpoint now and then makes nothing durable in time
	return a.Fsyncs < 0 || b.Fsyncs < 0 || (a.Fsyncs < none) != (b.Fsyncs < none)
}

func median(list []float64) float64 {
	if len(list) == 0 {
		return 0
	}
	list = slices.Sorted(slices.Values(list))
	if n := len(list); n%2 == 0 {
		return (list[n/2-1] + list[n/2]) / 2
	}
	return list[len(list)/2]
}

func (o options) wanted(name string) bool { return strings.Contains(name, o.only) }
