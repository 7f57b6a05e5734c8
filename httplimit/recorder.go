package httplimit

import (
	"bufio"
	"io"
	"net"
	"net/http"
)

// A recorder learns the status of an answer. There is one only where answers are
// counted by status.
type recorder struct {
	http.ResponseWriter
	known func(status int) // called once, before the status is sent
}

// record wraps a ResponseWriter into one that offers what it offers: handlers ask
// by type assertion whether they can flush, hijack or push.
func record(w http.ResponseWriter, known func(status int)) (http.ResponseWriter, *recorder) {
	rec := &recorder{w, known}
	flusher := flushRecorder{rec}
	switch w.(type) {
	case interface {
		http.Flusher
		http.Hijacker
		io.ReaderFrom
	}:
		return http1Recorder{hijackRecorder{flusher}}, rec
	case interface { // which most middlewares leave of that
		http.Flusher
		http.Hijacker
	}:
		return hijackRecorder{flusher}, rec
	case interface {
		http.Flusher
		http.Pusher
	}:
		return http2Recorder{flusher}, rec
	case http.Flusher:
		return flusher, rec
	}
	return rec, rec
}

func (r *recorder) learn(status int) {
	if known := r.known; known != nil {
		r.known = nil
		known(status)
	}
}

// Unwrap is for http.ResponseController.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

func (r *recorder) WriteHeader(status int) {
	if status >= 200 || status == http.StatusSwitchingProtocols { // the others announce one
		r.learn(status)
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(b []byte) (int, error) {
	r.learn(http.StatusOK)
	return r.ResponseWriter.Write(b)
}

type flushRecorder struct{ *recorder }

func (r flushRecorder) Flush() { _ = r.FlushError() }

func (r flushRecorder) FlushError() error {
	r.learn(http.StatusOK)
	return http.NewResponseController(r.ResponseWriter).Flush()
}

type hijackRecorder struct{ flushRecorder }

func (r hijackRecorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(r.ResponseWriter).Hijack()
	if err == nil {
		r.learn(http.StatusSwitchingProtocols)
	}
	return conn, rw, err
}

type http1Recorder struct{ hijackRecorder }

// ReadFrom keeps sendfile.
func (r http1Recorder) ReadFrom(src io.Reader) (int64, error) {
	r.learn(http.StatusOK)
	return r.ResponseWriter.(io.ReaderFrom).ReadFrom(src)
}

type http2Recorder struct{ flushRecorder }

func (r http2Recorder) Push(target string, opts *http.PushOptions) error {
	return r.ResponseWriter.(http.Pusher).Push(target, opts)
}
