package events

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

// Errors of events. Nothing was released.
var (
	// ErrInvalid: an argument is out of bounds, or a processor's path or predicate is
	// none.
	ErrInvalid = errors.New("events: invalid argument")
	// ErrInvalidEvent: the event is not a JSON object, or has at the place of an id
	// something that is none.
	ErrInvalidEvent = errors.New("events: invalid event")
	// ErrNoSource: the event does not say where it comes from.
	ErrNoSource = errors.New("events: the event has no source")
	// ErrUnhandled: there is no processor for the event.
	ErrUnhandled = errors.New("events: no processor for the event")
)

// A Pool gives back the token of a resource, and reports whether there was one; to
// do it again is no error. A *tokens.Pool does.
type Pool interface {
	Release(ctx context.Context, resourceID string) (bool, error)
}

// A Processor knows the events of a source that tell of a resource's end.
type Processor struct {
	Source     string    // whose events these are
	DetailType string    // and of which type, to the letter; empty: of all types that have no processor of their own
	Match      Predicate // which of them tell of an end; zero: all
	IDPath     string    // where the resource's id stands, or the ids: strings, or numbers as they are written
	Pool       Pool      // where its token is
}

// A Manager releases the tokens of resources that have ended.
type Manager struct {
	processors map[kind]processor
	seen       *seen
	maxBody    int64
	report     func(error)
}

type kind struct{ source, detailType string }

// A processor is a Processor with its path parsed.
type processor struct {
	Processor
	keys []string
}

// An Option changes a Manager.
type Option func(*Manager) error

// WithRemembered is how many events are remembered so as not to be processed twice;
// 10,000 if not given, 0 for none. Each takes about 200 bytes. One that failed in part
// counts as many as the resources that it has released.
func WithRemembered(n int) Option {
	return func(m *Manager) error {
		if n < 0 {
			return fmt.Errorf("%w: events.WithRemembered: %d is negative", ErrInvalid, n)
		}
		m.seen = newSeen(n)
		return nil
	}
}

// WithMaxBody is how many bytes a request may have; 1 MiB if not given.
func WithMaxBody(n int64) Option {
	return func(m *Manager) error {
		if n <= 0 {
			return fmt.Errorf("%w: events.WithMaxBody: %d is not above zero", ErrInvalid, n)
		}
		m.maxBody = n
		return nil
	}
}

// WithOnError has every error of ServeHTTP reported, of which the sender of a request
// learns no more than its kind.
func WithOnError(report func(error)) Option {
	return func(m *Manager) error {
		if report == nil {
			return fmt.Errorf("%w: events.WithOnError: the function is nil", ErrInvalid)
		}
		m.report = report
		return nil
	}
}

// NewManager makes a manager of at least one processor. There can be one for each
// source and detail-type, and one for the rest of each source.
func NewManager(processors []Processor, opts ...Option) (*Manager, error) {
	m := &Manager{processors: make(map[kind]processor), seen: newSeen(10_000), maxBody: 1 << 20, report: func(error) {}}
	for _, o := range opts {
		if err := o(m); err != nil {
			return nil, err
		}
	}
	if len(processors) == 0 {
		return nil, fmt.Errorf("%w: events.NewManager: no processors", ErrInvalid)
	}
	for i, p := range processors {
		if err := m.add(p); err != nil {
			return nil, fmt.Errorf("%w: processors[%d], source %q: %w", ErrInvalid, i, p.Source, err)
		}
	}
	return m, nil
}

func (m *Manager) add(p Processor) error {
	k := kind{p.Source, p.DetailType}
	_, twice := m.processors[k]
	switch {
	case p.Source == "":
		return errors.New("the Source is empty")
	case p.Pool == nil:
		return errors.New("the Pool is nil")
	case twice:
		return fmt.Errorf("there is another for DetailType %q", p.DetailType)
	}
	if err := p.Match.check(); err != nil {
		return fmt.Errorf("its Match: %w", err)
	}
	keys, err := parsePath(p.IDPath)
	if err != nil {
		return fmt.Errorf("its IDPath: %w", err)
	}
	m.processors[k] = processor{p, keys}
	return nil
}

// A Result tells what became of an event.
type Result struct {
	Matched   bool     `json:"matched"`             // it tells of an end, as far as the processor's Match can say
	Duplicate bool     `json:"duplicate,omitempty"` // it has been processed before, and was not again
	IDs       []string `json:"ids,omitempty"`       // the resources that it names
	Released  []string `json:"released,omitempty"`  // those of them that held a token, which they no longer do
}

// Process releases what an event says has ended. The processor is that of the event's
// source and detail-type or, if there is none, that of the source.
//
// An event that does not match, names no resource, or names one that holds no token
// is no error. One that can't be understood is, or that nobody handles:
// ErrInvalidEvent, ErrNoSource, ErrUnhandled. Those come back however often it is
// sent. Any other error is that of a Release; the other resources of the event have
// been released, and it should be processed again, which leaves those alone.
func (m *Manager) Process(ctx context.Context, event []byte) (Result, error) {
	e, err := decode(event)
	if err != nil {
		return Result{}, err
	}
	p, err := m.processor(e)
	if err != nil || !p.Match.matches(e) {
		return Result{}, err
	}
	r := Result{Matched: true}
	if r.IDs, err = ids(e, p); err != nil {
		return Result{}, err
	}
	id, hasID := e["id"].(string)
	if !hasID {
		r.Released, err = release(ctx, p.Pool, r.IDs)
		return r, err
	}
	key := keyOf(p.Source, id)
	if m.seen.has(key) {
		r.Duplicate = true
		return r, nil
	}
	left := m.notReleased(key, r.IDs)
	r.Released, err = release(ctx, p.Pool, left)
	switch {
	case err != nil:
		for _, resource := range r.Released {
			m.seen.add(key.of(resource))
		}
	case len(r.Released) > 0 || len(left) < len(r.IDs):
		m.seen.add(key)
	}
	return r, err
}

// notReleased are the resources of an event without those that it has released before
// it failed for others.
func (m *Manager) notReleased(event key, resources []string) []string {
	return slices.DeleteFunc(slices.Clone(resources), func(resource string) bool { return m.seen.has(event.of(resource)) })
}

func decode(event []byte) (map[string]any, error) {
	d := json.NewDecoder(bytes.NewReader(event))
	d.UseNumber()
	var e map[string]any
	if err := d.Decode(&e); err != nil {
		return nil, fmt.Errorf("%w: it is not a JSON object: %w", ErrInvalidEvent, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("%w: there is more than one JSON object", ErrInvalidEvent)
	}
	if e == nil {
		return nil, fmt.Errorf("%w: it is null, not a JSON object", ErrInvalidEvent)
	}
	return e, nil
}

func (m *Manager) processor(e map[string]any) (processor, error) {
	source, _ := e["source"].(string)
	if source == "" {
		return processor{}, ErrNoSource
	}
	detailType, _ := e["detail-type"].(string)
	p, ok := m.processors[kind{source, detailType}]
	if !ok {
		p, ok = m.processors[kind{source, ""}]
	}
	if !ok {
		return processor{}, fmt.Errorf("%w: source %.200q, detail-type %.200q", ErrUnhandled, source, detailType)
	}
	return p, nil
}

// ids are the resources that an event names, each once.
func ids(e map[string]any, p processor) ([]string, error) {
	var all []string
	known := make(map[string]bool)
	for _, v := range values(e, p.keys) {
		var id string
		switch v := v.(type) {
		case string:
			id = v
		case json.Number:
			id = v.String()
		default:
			return nil, fmt.Errorf("%w: at %q there is a %s, not a string or a number", ErrInvalidEvent, p.IDPath, jsonType(v))
		}
		if id == "" {
			return nil, fmt.Errorf("%w: the id at %q is empty", ErrInvalidEvent, p.IDPath)
		}
		if !known[id] {
			known[id] = true
			all = append(all, id)
		}
	}
	return all, nil
}

func jsonType(v any) string {
	if _, ok := v.(bool); ok {
		return "bool"
	}
	return "JSON object"
}

// release releases all that can be.
func release(ctx context.Context, pool Pool, ids []string) (released []string, err error) {
	var errs []error
	for _, id := range ids {
		switch ok, err := pool.Release(ctx, id); {
		case err != nil:
			errs = append(errs, fmt.Errorf("events: releasing %.200q: %w", id, err))
		case ok:
			released = append(released, id)
		}
	}
	return released, errors.Join(errs...)
}
