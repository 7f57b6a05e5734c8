//go:build race

package wrap_test

const raceEnabled = true

// rounds of a twin test; the race detector is slow.
const rounds = 20
