package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// tripsMetric is the beginning of the samples that count a replica's round
// trips to the coordination store.
const tripsMetric = `dwk_store_round_trips_total{`

// trips adds up the round trips of all replicas, in transactions of a file or
// requests to a server. Replicas that wait make a few too.
func (f *benchFleet) trips(ctx context.Context) (sum int64, err error) {
	for _, r := range f.replicas {
		n, err := r.trips(ctx)
		if err != nil {
			return 0, fmt.Errorf("count round trips: %w", err)
		}
		sum += n
	}
	return sum, nil
}

func (r *benchReplica) trips(ctx context.Context) (sum int64, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.admin+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := c.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("%s of metrics", resp.Status)
	}
	lines := bufio.NewScanner(io.LimitReader(resp.Body, 16<<20))
	for lines.Scan() {
		labels, ok := strings.CutPrefix(lines.Text(), tripsMetric)
		if !ok || !strings.Contains(labels, `store="coordination"`) {
			continue
		}
		n, err := strconv.ParseFloat(labels[strings.LastIndexByte(labels, ' ')+1:], 64)
		if err != nil {
			return 0, fmt.Errorf("metrics: %w", err)
		}
		sum += int64(n)
	}
	return sum, lines.Err()
}
