package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"time"
)

const (
	shownMalformed = 5   // lines
	shownBytes     = 100 // of each
	progressEvery  = 250 * time.Millisecond
)

// notes are what goes to standard error. On a terminal there is also a line of
// progress, rewritten in place.
type notes struct {
	w        io.Writer
	terminal bool

	shown int       // malformed lines
	next  time.Time // when the progress is told again
	dirty bool      // the line of progress is on the screen
}

func newNotes(w io.Writer, terminal bool) *notes {
	// A run that is over in no time needs no progress.
	return &notes{w: w, terminal: terminal, next: time.Now().Add(progressEvery)}
}

// isTerminal takes all character devices for terminals; nobody looks at the
// others, such as /dev/null.
func isTerminal(file *os.File) bool {
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

func (n *notes) printf(format string, args ...any) {
	n.clear()
	fmt.Fprintf(n.w, format+"\n", args...)
}

// malformed shows a malformed line, if it is one of the first. Quoted: who writes
// requests into a log must not write to the terminal of its reader.
func (n *notes) malformed(number int64, line []byte, reason error) {
	if n.shown++; n.shown > shownMalformed {
		return
	}
	more := ""
	if len(line) > shownBytes {
		line, more = line[:shownBytes], "…"
	}
	n.printf("replay: line %d: %v: %s%s", number, reason, strconv.Quote(string(line)), more)
}

// progress tells how far the replay has come, if it is time to.
func (n *notes) progress(l *log) {
	if !n.terminal || time.Now().Before(n.next) {
		return
	}
	n.next = time.Now().Add(progressEvery)
	n.dirty = true
	if part, known := l.done(); known {
		fmt.Fprintf(n.w, "\r%d lines, %.0f%%\x1b[K", l.line, 100*part)
	} else {
		fmt.Fprintf(n.w, "\r%d lines\x1b[K", l.line)
	}
}

// clear takes the line of progress off the screen.
func (n *notes) clear() {
	if n.dirty {
		fmt.Fprint(n.w, "\r\x1b[K")
		n.dirty = false
	}
}
