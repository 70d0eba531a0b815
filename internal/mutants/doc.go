// Package mutants has the project's guards removed, one at a time, and demands
// that tests notice. It has tests only.
//
// A mutant is a file of testdata:
//
//	# What is done wrong, and which promise that breaks.
//	# by: sim
//	--- internal/object/commit.go
//	-		t.Require(p)
//	 		c.Add(p)
//
// Below a file's name stand lines that follow each other there, of which those
// with a minus go and those with a plus come. They must be found in the file
// exactly once: there are no line numbers that could go wrong, and a mutant
// whose place has changed no longer applies. What "by" names has to fail.
package mutants
