package events

import (
	"errors"
	"fmt"
	"strings"
)

const maxPath = 1024 // bytes

// parsePath splits a path into its keys.
func parsePath(path string) ([]string, error) {
	if len(path) > maxPath {
		return nil, fmt.Errorf("path %.50q… has %d bytes, more than %d", path, len(path), maxPath)
	}
	var keys []string
	var key strings.Builder
	end := func() error {
		if key.Len() == 0 {
			return fmt.Errorf("path %q has an empty key", path)
		}
		keys = append(keys, key.String())
		key.Reset()
		return nil
	}
	for i := 0; i < len(path); i++ {
		switch c := path[i]; c {
		case '.':
			if err := end(); err != nil {
				return nil, err
			}
		case '\\':
			i++
			if i == len(path) || path[i] != '.' && path[i] != '\\' {
				return nil, fmt.Errorf(`path %q has a backslash before something else than a dot or a backslash`, path)
			}
			key.WriteByte(path[i])
		default:
			key.WriteByte(c)
		}
	}
	if path == "" {
		return nil, errors.New("the path is empty")
	}
	return keys, end()
}

// values are what a path leads to, in order: no lists, and no nulls.
func values(v any, keys []string) []any {
	switch v := v.(type) {
	case nil:
		return nil
	case []any:
		var all []any
		for _, element := range v {
			all = append(all, values(element, keys)...)
		}
		return all
	case map[string]any:
		if len(keys) > 0 {
			return values(v[keys[0]], keys[1:])
		}
	default:
		if len(keys) > 0 {
			return nil
		}
	}
	return []any{v}
}
