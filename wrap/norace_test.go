//go:build !race

package wrap_test

const raceEnabled = false

// rounds of a twin test.
const rounds = 80
