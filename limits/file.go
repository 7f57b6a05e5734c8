package limits

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/internal/settle"
)

// ReadFile reads a file of limits, as Parse does. Errors name the file.
func ReadFile(path string) ([]Limit, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("limits: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, MaxFileSize+1))
	if err != nil {
		return nil, fmt.Errorf("limits: %w", err)
	}
	if len(data) > MaxFileSize {
		return nil, fmt.Errorf("%s: %w: more than %d bytes", path, ErrInvalidLimit, MaxFileSize)
	}
	list, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return list, nil
}

// A File is a table that is read from a file, and again when the file has changed.
// Lookups never touch the file.
type File struct {
	path  string
	table *Memory

	mu   sync.Mutex // of those who read
	read os.FileInfo
}

var _ Table = (*File)(nil)

// OpenFile reads a file; see Parse for what it holds. A broken one is refused.
func OpenFile(path string) (*File, error) {
	f := &File{path: path, table: new(Memory)}
	if err := f.Reload(); err != nil {
		return nil, err
	}
	return f, nil
}

// Quotas are those of an account; see Table.
func (f *File) Quotas(ctx context.Context, resource, account string) ([]ratelimit.Quota, error) {
	return f.table.Quotas(ctx, resource, account)
}

// Source is the quotas of a resource, for ratelimit.NewPolicyFrom. The policy's
// keys are the accounts.
func (f *File) Source(resource string) ratelimit.QuotaSource { return f.table.Source(resource) }

// Reload reads the file now. If it is broken, or not there, all stays as it was.
func (f *File) Reload() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	info, err := f.stat() // before reading: what changes meanwhile is read again
	if err != nil {
		return err
	}
	f.read = info
	list, err := ReadFile(f.path)
	if err != nil {
		return err
	}
	return f.table.Replace(list)
}

// Watch looks at the file once in every interval, and reloads it when its size, its
// time or the file itself is another and has stayed so for an interval: so a file
// that is being written is not read half. A change is there after two intervals.
//
// Each time the file was read, or could not be, told is called, unless it is nil,
// with the error of Reload; once for each state of the file. Watch returns when the
// context ends, with its error.
func (f *File) Watch(ctx context.Context, every time.Duration, told func(error)) error {
	if every <= 0 {
		return fmt.Errorf("limits: File.Watch: the interval %v is not above zero", every)
	}
	return settle.Watch[os.FileInfo]{
		Every: every,
		Stat:  f.stat,
		Same:  same,
		Read:  f.lastRead,
		Load:  f.Reload,
		Told:  told,
	}.Run(ctx)
}

func (f *File) stat() (os.FileInfo, error) {
	info, err := os.Stat(f.path)
	if err != nil {
		return nil, fmt.Errorf("limits: %w", err)
	}
	return info, nil
}

func (f *File) lastRead() os.FileInfo {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.read
}

func same(a, b os.FileInfo) bool {
	return a != nil && b != nil && os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}
