package httplimit

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

type plainWriter struct{ http.ResponseWriter }

type flushWriter struct{ plainWriter }

func (flushWriter) Flush() {}

type pushWriter struct{ flushWriter }

func (pushWriter) Push(string, *http.PushOptions) error { return http.ErrNotSupported }

type http1Writer struct{ flushWriter }

func (http1Writer) Hijack() (net.Conn, *bufio.ReadWriter, error) { return nil, nil, nil }
func (http1Writer) ReadFrom(io.Reader) (int64, error)            { return 0, nil }

type hijackWriter struct{ flushWriter }

func (hijackWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) { return nil, nil, nil }

// What is wrapped can do what it could, and no more.
func TestRecordOffersWhatThereIs(t *testing.T) {
	for name, w := range map[string]http.ResponseWriter{
		"plain": plainWriter{}, "flush": flushWriter{}, "HTTP/2": pushWriter{}, "HTTP/1": http1Writer{}, "HTTP/1, wrapped": hijackWriter{},
	} {
		t.Run(name, func(t *testing.T) {
			statuses := []int{}
			wrapped, rec := record(w, func(status int) { statuses = append(statuses, status) })
			for what, can := range map[string]func(http.ResponseWriter) bool{
				"Flush":    func(w http.ResponseWriter) bool { _, ok := w.(http.Flusher); return ok },
				"Hijack":   func(w http.ResponseWriter) bool { _, ok := w.(http.Hijacker); return ok },
				"Push":     func(w http.ResponseWriter) bool { _, ok := w.(http.Pusher); return ok },
				"ReadFrom": func(w http.ResponseWriter) bool { _, ok := w.(io.ReaderFrom); return ok },
			} {
				require.Equal(t, can(w), can(wrapped), what)
			}
			require.Equal(t, w, wrapped.(interface{ Unwrap() http.ResponseWriter }).Unwrap())
			if p, ok := wrapped.(http.Pusher); ok {
				require.ErrorIs(t, p.Push("/", nil), http.ErrNotSupported)
			}
			require.Empty(t, statuses)
			switch w := wrapped.(type) {
			case http.Hijacker:
				_, _, err := w.Hijack()
				require.NoError(t, err)
				rec.learn(http.StatusOK)
				require.Equal(t, []int{http.StatusSwitchingProtocols}, statuses)
			case http.Flusher:
				w.Flush()
				rec.learn(http.StatusTeapot)
				require.Equal(t, []int{http.StatusOK}, statuses)
			}
		})
	}
}
