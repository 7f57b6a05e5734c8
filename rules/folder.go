package rules

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Bounds of a folder.
const (
	MaxFileSize   = 4 << 20  // bytes
	MaxFolderSize = 32 << 20 // bytes, of all files that are read
	MaxFiles      = 1000
)

// ErrInvalidRules: a folder of rules is refused, and nothing has changed.
var ErrInvalidRules = errors.New("rules: invalid rules")

// A file of a folder, as it was when it was looked at.
type file struct {
	name string
	info fs.FileInfo
}

// look lists the files of rules, sorted. Others, those that begin with a dot, and folders are
// none.
func look(root *os.Root) ([]file, error) {
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return nil, err
	}
	var files []file
	for _, e := range entries {
		name := e.Name()
		if !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(name)) || strings.HasPrefix(name, ".") || e.IsDir() {
			continue
		}
		info, err := root.Stat(name) // of what a link leads to, which must be in the folder
		if err != nil {
			return nil, err
		}
		files = append(files, file{name, info})
	}
	return files, nil
}

func lookAt(dir string) ([]file, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("rules: %w", err)
	}
	defer root.Close()
	files, err := look(root)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrInvalidRules, dir, err)
	}
	return files, nil
}

func sameFiles(a, b []file) bool {
	return slices.EqualFunc(a, b, func(a, b file) bool {
		return a.name == b.name && os.SameFile(a.info, b.info) && a.info.Size() == b.info.Size() && a.info.ModTime().Equal(b.info.ModTime())
	})
}

// readFolder reads all files of a folder that were found there.
func (l *loader) readFolder(dir string, files []file) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("rules: %w", err)
	}
	defer root.Close()
	switch {
	case len(files) == 0:
		return fmt.Errorf("%w: %s: no file *.yaml, *.yml or *.json; for no rules write a file with rules: []", ErrInvalidRules, dir)
	case len(files) > MaxFiles:
		return fmt.Errorf("%w: %s: %d files, at most %d", ErrInvalidRules, dir, len(files), MaxFiles)
	}
	left := int64(MaxFolderSize)
	for _, f := range files {
		text, err := read(root, f)
		if left -= int64(len(text)); err == nil && left < 0 {
			return fmt.Errorf("%w: %s: more than %d bytes in all files", ErrInvalidRules, dir, MaxFolderSize)
		}
		if err != nil {
			l.faults = append(l.faults, fmt.Errorf("%s: %w", filepath.Join(dir, f.name), err))
			continue
		}
		l.readFile(filepath.Join(dir, f.name), text)
	}
	return l.err()
}

func read(root *os.Root, f file) (string, error) {
	if !f.info.Mode().IsRegular() {
		return "", errors.New("is no regular file")
	}
	r, err := root.Open(f.name)
	if err != nil {
		return "", err
	}
	defer r.Close()
	data, err := io.ReadAll(io.LimitReader(r, MaxFileSize+1))
	switch {
	case err != nil:
		return "", err
	case len(data) > MaxFileSize:
		return "", fmt.Errorf("more than %d bytes", MaxFileSize)
	}
	return string(data), nil
}
