package redistable

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"time"

	"github.com/granule-limits/ratelimit"
)

// A record is a limit as it is in Redis. Equal limits of a service are equal texts:
// by that a load knows that there is nothing to do.
type record struct {
	Service string        `json:"service"`
	Quotas  []quotaRecord `json:"quotas"`
}

type quotaRecord struct {
	Limit          int64    `json:"limit"`
	Window         duration `json:"window"`
	Granularity    duration `json:"granularity,omitzero"`
	Burst          int64    `json:"burst,omitempty"`
	Name           string   `json:"name,omitempty"`
	PrefixOverride string   `json:"prefixOverride,omitempty"`
}

// A duration is written as in a file, such as 1m30s.
type duration time.Duration

func (d duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

func (d *duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	*d = duration(parsed)
	return err
}

func encode(service string, quotas []ratelimit.Quota) (string, error) {
	r := record{Service: service, Quotas: make([]quotaRecord, len(quotas))}
	for i, q := range quotas {
		r.Quotas[i] = quotaRecord{
			Limit: q.Limit, Window: duration(q.Window), Granularity: duration(q.Granularity),
			Burst: q.Burst, Name: q.Name, PrefixOverride: q.PrefixOverride,
		}
	}
	text, err := json.Marshal(r)
	return string(text), err
}

// decode refuses fields that it does not know: they could say that a limit means
// something else.
func decode(text string) (service string, quotas []ratelimit.Quota, err error) {
	var r record
	d := json.NewDecoder(bytes.NewReader([]byte(text)))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return "", nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return "", nil, errors.New("more follows after it")
	}
	quotas = make([]ratelimit.Quota, len(r.Quotas))
	for i, q := range r.Quotas {
		quotas[i] = ratelimit.Quota{
			Limit: q.Limit, Window: time.Duration(q.Window), Granularity: time.Duration(q.Granularity),
			Burst: q.Burst, Name: q.Name, PrefixOverride: q.PrefixOverride,
		}
	}
	return r.Service, quotas, nil
}
