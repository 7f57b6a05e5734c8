package events

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
)

// ServeHTTP takes one event by POST and answers with its Result as JSON. It does not
// ask who sends: put that before it.
//
//   - 200: the event was processed; sent again, nothing more happens.
//   - 400: ErrInvalidEvent or ErrNoSource; 405: not a POST; 413: too large, see
//     WithMaxBody; 422: ErrUnhandled. To send it again will not help.
//   - 503: a token could not be released, or the request ended. Send it again.
func (m *Manager) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "events are sent by POST", http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, m.maxBody))
	var result Result
	if err == nil {
		result, err = m.Process(r.Context(), body)
	}
	if err != nil {
		m.report(err)
		status, text := statusOf(err)
		http.Error(w, text, status)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(result) // if it fails, there is nobody to tell
}

// statusOf is the answer to an event that failed. Errors of the event are told to
// its sender; errors of a pool may name servers, and are not.
func statusOf(err error) (status int, text string) {
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return http.StatusRequestEntityTooLarge, "events: the event is too large"
	case errors.Is(err, ErrUnhandled):
		return http.StatusUnprocessableEntity, err.Error()
	case errors.Is(err, ErrInvalidEvent), errors.Is(err, ErrNoSource):
		return http.StatusBadRequest, err.Error()
	}
	return http.StatusServiceUnavailable, "events: not released, send the event again"
}
