package config

import "strings"

// nearest returns the candidate that resembles name most, and how many edits
// lie between them. The first of equals wins.
func nearest(name string, candidates []string) (best string, distance int) {
	distance = -1
	for _, c := range candidates {
		if d := editDistance(name, c); distance < 0 || d < distance {
			best, distance = c, d
		}
	}
	return best, distance
}

// nearestKey is nearest for dotted keys. A key that has the right name in the
// wrong section is near, too.
func nearestKey(key string, known []string) string {
	best, distance := "", -1
	for _, c := range known {
		d := editDistance(key, c)
		if leaf := editDistance(leafName(key), leafName(c)); leaf == 0 {
			d = 0
		} else {
			d = min(d, leaf+1)
		}
		if distance < 0 || d < distance {
			best, distance = c, d
		}
	}
	return best
}

func leafName(key string) string { return key[strings.LastIndexByte(key, '.')+1:] }

// editDistance counts the bytes to insert, remove, replace or swap with their
// neighbour to make b of a (optimal string alignment).
func editDistance(a, b string) int {
	var before []int
	last := make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
