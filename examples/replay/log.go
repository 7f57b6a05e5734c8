package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
)

// maxLine is the most bytes that a line can have. What has no line ends is no log,
// and must not fill the memory.
const maxLine = 1 << 20

var errInterrupted = errors.New("interrupted")

// A log hands out the lines of a file.
type log struct {
	input *input
	file  *os.File // nil if it is standard input
	lines *bufio.Reader
	line  int64 // number of the line that next returned last
}

// openLog opens a file, or standard input for "-". What is compressed is told by
// its first bytes, not by its name.
func openLog(ctx context.Context, name string, stdin io.Reader) (*log, error) {
	l := &log{input: &input{ctx: ctx, r: stdin}}
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		l.file, l.input.r, l.input.size = file, file, sizeOf(file)
	}
	if err := l.detect(); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

func sizeOf(file *os.File) int64 {
	if info, err := file.Stat(); err == nil && info.Mode().IsRegular() {
		return info.Size()
	}
	return 0
}

func (l *log) detect() error {
	raw := bufio.NewReader(l.input)
	var r io.Reader = raw
	magic, err := raw.Peek(2)
	if err == nil && bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		r, err = gzip.NewReader(raw)
	}
	if err != nil && err != io.EOF {
		return fmt.Errorf("line 1 of the log: %w", err)
	}
	// The longest line and its end fit into the buffer.
	l.lines = bufio.NewReaderSize(r, maxLine+len("\r\n"))
	return nil
}

// next returns the next line without its end; its bytes are good until the next
// call. Of a line longer than maxLine it returns the beginning, which is longer
// than maxLine, too. After the last line the error is io.EOF.
func (l *log) next() ([]byte, error) {
	line, err := l.lines.ReadSlice('\n')
	switch {
	case l.input.ctx.Err() != nil: // also with lines left in the buffer
		err = errInterrupted
	case err == io.EOF && len(line) > 0:
		err = nil // the last line has no end
	case err == io.EOF:
		return nil, io.EOF
	}
	l.line++
	if err == bufio.ErrBufferFull {
		line, err = l.skip(line)
	}
	if err != nil {
		return nil, fmt.Errorf("line %d of the log: %w", l.line, err)
	}
	return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r")), nil
}

// skip reads on to the end of a line that begins with what is in the buffer.
func (l *log) skip(line []byte) ([]byte, error) {
	start := bytes.Clone(line)
	for {
		_, err := l.lines.ReadSlice('\n')
		if err == nil || err == io.EOF {
			return start, nil
		}
		if err != bufio.ErrBufferFull {
			return nil, err
		}
	}
}

// done is how much of the file has been read, from 0 to 1, if that is known.
func (l *log) done() (part float64, known bool) {
	if l.input.size == 0 {
		return 0, false
	}
	return min(1, float64(l.input.read)/float64(l.input.size)), true
}

func (l *log) Close() error {
	if l.file == nil {
		return nil
	}
	return l.file.Close()
}

// An input is a reader whose reads an interrupt ends. The read of a pipe or a
// terminal can't be called off, only left behind.
type input struct {
	ctx  context.Context
	r    io.Reader
	size int64 // of a file; 0 if it is not known
	read int64 // bytes, so far
	buf  []byte
}

func (in *input) Read(p []byte) (int, error) {
	if in.ctx.Err() != nil { // buf may belong to a read that was left behind
		return 0, errInterrupted
	}
	if in.buf == nil {
		in.buf = make([]byte, 1<<16)
	}
	type answer struct {
		n   int
		err error
	}
	answers := make(chan answer, 1)
	go func() {
		n, err := in.r.Read(in.buf[:min(len(p), len(in.buf))])
		answers <- answer{n, err}
	}()
	select {
	case a := <-answers:
		in.read += int64(a.n)
		return copy(p, in.buf[:a.n]), a.err
	case <-in.ctx.Done():
		return 0, errInterrupted
	}
}
