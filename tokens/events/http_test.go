package events_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/granule-limits/ratelimit/storage"
	"github.com/granule-limits/ratelimit/tokens/events"
)

// Over a real socket, as a sender sees it.
func TestHTTP(t *testing.T) {
	p := newPool(t, "1", "2", "3")
	var reported []error
	m, err := events.NewManager([]events.Processor{{Source: "s", Match: events.Is("ended", true), IDPath: "ids", Pool: &failing{p, "3", 1}}},
		events.WithMaxBody(200), events.WithOnError(func(err error) { reported = append(reported, err) }))
	require.NoError(t, err)
	server := httptest.NewServer(m)
	defer server.Close()
	for _, c := range []struct {
		name, method, body string
		status             int
		answer             string
		reported           error
	}{
		{"get", "GET", "", 405, "events are sent by POST\n", nil},
		{"put", "PUT", `{"source": "s"}`, 405, "events are sent by POST\n", nil},
		{"no match", "POST", `{"source": "s"}`, 200, `{"matched":false}` + "\n", nil},
		{"no id", "POST", `{"source": "s", "ended": true}`, 200, `{"matched":true}` + "\n", nil},
		{"released", "POST", `{"id": "e", "source": "s", "ended": true, "ids": ["1", "2"]}`, 200, `{"matched":true,"ids":["1","2"],"released":["1","2"]}` + "\n", nil},
		{"again", "POST", `{"id": "e", "source": "s", "ended": true, "ids": ["1", "2"]}`, 200, `{"matched":true,"duplicate":true,"ids":["1","2"]}` + "\n", nil},
		{"no token", "POST", `{"source": "s", "ended": true, "ids": "9"}`, 200, `{"matched":true,"ids":["9"]}` + "\n", nil},
		{"no JSON", "POST", `source=s`, 400, "", events.ErrInvalidEvent},
		{"no body", "POST", ``, 400, "", events.ErrInvalidEvent},
		{"no source", "POST", `{}`, 400, "events: the event has no source\n", events.ErrNoSource},
		{"no processor", "POST", `{"source": "x"}`, 422, `events: no processor for the event: source "x", detail-type ""` + "\n", events.ErrUnhandled},
		{"at the bound", "POST", `{"source": "s"` + strings.Repeat(" ", 185) + "}", 200, `{"matched":false}` + "\n", nil},
		{"above the bound", "POST", `{"source": "s"` + strings.Repeat(" ", 186) + "}", 413, "events: the event is too large\n", new(http.MaxBytesError)},
		{"storage fails", "POST", `{"source": "s", "ended": true, "ids": "3"}`, 503, "events: not released, send the event again\n", storage.ErrUnavailable},
		{"storage is back", "POST", `{"source": "s", "ended": true, "ids": "3"}`, 200, `{"matched":true,"ids":["3"],"released":["3"]}` + "\n", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			reported = nil
			r, err := http.NewRequestWithContext(t.Context(), c.method, server.URL, strings.NewReader(c.body))
			require.NoError(t, err)
			response, err := server.Client().Do(r)
			require.NoError(t, err)
			defer response.Body.Close()
			answer, err := io.ReadAll(response.Body)
			require.NoError(t, err)
			require.Equal(t, c.status, response.StatusCode, "%s", answer)
			if c.answer != "" {
				require.Equal(t, c.answer, string(answer))
			}
			if c.status == 405 {
				require.Equal(t, "POST", response.Header.Get("Allow"))
			}
			switch c.reported.(type) {
			case nil:
				require.Empty(t, reported)
			case *http.MaxBytesError:
				require.Len(t, reported, 1)
				require.ErrorAs(t, reported[0], new(*http.MaxBytesError))
			default:
				require.Len(t, reported, 1)
				require.ErrorIs(t, reported[0], c.reported)
			}
		})
	}
}
