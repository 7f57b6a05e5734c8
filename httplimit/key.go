package httplimit

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
)

// A KeyFunc tells under which key a request is counted. An error, or an empty
// key, is answered with 400: a request is never counted under a key that stands
// for nobody. Errors should not repeat what the client sent.
type KeyFunc func(*http.Request) (string, error)

// ErrNoKey is wrapped by the errors of requests that have no key: a header that
// is missing, an address that is none.
var ErrNoKey = errors.New("httplimit: the request has no key")

// of is the key, or an error that wraps ErrNoKey.
func (k KeyFunc) of(r *http.Request) (string, error) {
	key, err := k(r)
	switch {
	case err == nil && key != "":
		return key, nil
	case err == nil:
		return "", fmt.Errorf("%w: the key is empty", ErrNoKey)
	case errors.Is(err, ErrNoKey):
		return "", err
	default:
		return "", fmt.Errorf("%w: %w", ErrNoKey, err)
	}
}

func noKey(format string, args ...any) (string, error) {
	return "", fmt.Errorf("%w: %s", ErrNoKey, fmt.Sprintf(format, args...))
}

// Everyone is the KeyFunc of a limit that all requests share.
func Everyone(*http.Request) (string, error) { return "everyone", nil }

// Header is the value of a header field, such as an API key. A client that can
// invent values escapes the limit: put the limit behind what verifies them. A
// request with several lines of the field has no key, because the handler may take
// another line for the true one.
func Header(name string) KeyFunc {
	return func(r *http.Request) (string, error) {
		lines := r.Header.Values(name)
		switch {
		case len(lines) > 1:
			return noKey("%d lines of header %s", len(lines), name)
		case len(lines) == 0 || lines[0] == "":
			return noKey("no header %s", name)
		}
		return lines[0], nil
	}
}

// Cookie is the value of a cookie, of the first one if there are several of that
// name, as with http.Request.Cookie. What is said of Header holds here too.
func Cookie(name string) KeyFunc {
	return func(r *http.Request) (string, error) {
		c, err := r.Cookie(name)
		if err != nil || c.Value == "" {
			return noKey("no cookie %s", name)
		}
		return c.Value, nil
	}
}

// Route is the pattern that a request matches, such as "GET /items/{id}": a limit
// for each route rather than for each path. Inside a mux, around each of its
// handlers, that is r.Pattern, and mux can be nil. Around a mux, give it, for its
// pattern is not known yet; requests that it has no handler for share a key.
func Route(mux *http.ServeMux) KeyFunc {
	return func(r *http.Request) (string, error) {
		pattern := r.Pattern // may be that of a mux around the one that was given
		if mux != nil {
			if _, inner := mux.Handler(r); inner != "" {
				pattern = inner
			} else if pattern == "" {
				pattern = "none" // a pattern has a slash
			}
		}
		if pattern == "" {
			return noKey("no pattern: the middleware is not inside a mux; see Route")
		}
		return pattern, nil
	}
}

// Join is several keys as one: the route and the address, for instance. It puts
// its length before each, so that "a" and "bc" never meet "ab" and "c".
func Join(keys ...KeyFunc) KeyFunc {
	return func(r *http.Request) (string, error) {
		var joined []byte
		for _, k := range keys {
			key, err := k.of(r)
			if err != nil {
				return "", err
			}
			joined = strconv.AppendInt(joined, int64(len(key)), 10)
			joined = append(append(joined, ':'), key...)
		}
		if len(joined) == 0 {
			return noKey("Join of no keys")
		}
		return string(joined), nil
	}
}
