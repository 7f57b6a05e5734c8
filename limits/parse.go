package limits

import (
	"fmt"
	"math"
	"time"

	"github.com/granule-limits/ratelimit"
	"github.com/granule-limits/ratelimit/internal/strictyaml"
)

// MaxFileSize is how many bytes of limits are read, from a file or by Parse: room
// for about 40,000 accounts.
const MaxFileSize = 4 << 20

// Parse reads limits from YAML, or from JSON, which is YAML too, as docs/limits.md
// describes:
//
//	limits:
//	  - {resourceName: search, limit: 100, windowSec: 60}            # the default
//	  - {resourceName: search, accountId: acct-1, limit: 0, windowSec: 60}
//	  - resourceName: search
//	    accountId: acct-2
//	    quotas:
//	      - {limit: 1000, window: 1m, granularity: 5s, name: per minute}
//	      - {limit: 9000, window: 1h}
//
// All is refused or nothing. Refused are unknown and repeated fields, two limits of
// the same resource and account, numbers that are not whole or not plain, anchors,
// tags, and what Limit.Validate refuses. The error wraps ErrInvalidLimit, and names
// line, column, field and value.
func Parse(data []byte) ([]Limit, error) {
	if len(data) > MaxFileSize {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrInvalidLimit, len(data), MaxFileSize)
	}
	root, err := strictyaml.Parse(string(data))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalidLimit, err)
	}
	list, err := readFile(root)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalidLimit, err)
	}
	return list, nil
}

func readFile(root strictyaml.Value) ([]Limit, error) {
	fields, _, err := root.Fields("limits")
	if err != nil {
		return nil, err
	}
	entries, err := fields.Need("limits").List()
	if err != nil {
		return nil, err
	}
	type id struct{ resource, account string }
	lines := make(map[id]int, len(entries))
	list := make([]Limit, 0, len(entries))
	for _, entry := range entries {
		l, err := readLimit(entry)
		if err != nil {
			return nil, err
		}
		if err := l.Validate(); err != nil {
			return nil, entry.Fault(reason(err))
		}
		if line := lines[id{l.Resource, l.Account}]; line > 0 {
			return nil, entry.Fault(fmt.Sprintf("%s is there already, in line %d", l.id(), line))
		}
		lines[id{l.Resource, l.Account}] = entry.Line()
		list = append(list, l)
	}
	return list, nil
}

// reason is an error of Validate without the prefix that Parse puts before it.
func reason(err error) string {
	return err.Error()[len(ErrInvalidLimit.Error()+": "):]
}

func readLimit(entry strictyaml.Value) (Limit, error) {
	fields, _, err := entry.Fields("resourceName", "accountId", "limit", "windowSec", "quotas")
	if err != nil {
		return Limit{}, err
	}
	var l Limit
	if l.Resource, err = fields.Need("resourceName").Text(); err != nil {
		return Limit{}, err
	}
	if account, ok := fields.Get("accountId"); ok {
		if l.Account, err = account.Text(); err != nil {
			return Limit{}, err
		}
		if l.Account == "" {
			return Limit{}, account.Fault("is empty: leave it out for the default of the resource")
		}
	}
	l.Quotas, err = readQuotas(fields)
	return l, err
}

// readQuotas reads either form: a limit and its windowSec, or quotas.
func readQuotas(fields strictyaml.Fields) ([]ratelimit.Quota, error) {
	several, ok := fields.Get("quotas")
	if !ok {
		q, err := readPlain(fields)
		return []ratelimit.Quota{q}, err
	}
	for _, name := range []string{"limit", "windowSec"} {
		if v, ok := fields.Get(name); ok {
			return nil, v.Fault("stands beside quotas: use one or the other")
		}
	}
	list, err := several.List()
	if err != nil {
		return nil, err
	}
	quotas := make([]ratelimit.Quota, 0, len(list))
	for _, v := range list {
		q, err := readQuota(v)
		if err != nil {
			return nil, err
		}
		quotas = append(quotas, q)
	}
	return quotas, nil
}

func readPlain(fields strictyaml.Fields) (q ratelimit.Quota, err error) {
	limit, window := fields.Need("limit"), fields.Need("windowSec")
	if q.Limit, err = limit.Whole(); err != nil {
		return q, err
	}
	if err := valid(limit, ratelimit.Quota{Limit: q.Limit, Window: time.Second}); err != nil {
		return q, err
	}
	seconds, err := window.Whole()
	if err != nil {
		return q, err
	}
	if seconds > math.MaxInt64/int64(time.Second) {
		return q, window.Fault(fmt.Sprintf("%d is more than 71 years", seconds))
	}
	q.Window = time.Duration(seconds) * time.Second
	return q, valid(window, q)
}

func readQuota(v strictyaml.Value) (q ratelimit.Quota, err error) {
	fields, _, err := v.Fields("limit", "window", "granularity", "burst", "name", "prefixOverride")
	if err != nil {
		return q, err
	}
	if q.Limit, err = fields.Need("limit").Whole(); err != nil {
		return q, err
	}
	if q.Window, err = fields.Need("window").Duration(); err != nil {
		return q, err
	}
	if g, ok := fields.Get("granularity"); ok {
		if q.Granularity, err = g.Duration(); err != nil {
			return q, err
		}
	}
	if b, ok := fields.Get("burst"); ok {
		if q.Burst, err = b.Whole(); err != nil {
			return q, err
		}
	}
	if n, ok := fields.Get("name"); ok {
		if q.Name, err = n.Text(); err != nil {
			return q, err
		}
	}
	if p, ok := fields.Get("prefixOverride"); ok {
		if q.PrefixOverride, err = p.Text(); err != nil {
			return q, err
		}
	}
	return q, valid(v, q)
}

// valid refuses a quota at the place where it, or its window, stands.
func valid(v strictyaml.Value, q ratelimit.Quota) error {
	if err := q.Validate(); err != nil {
		return v.Fault(err.Error())
	}
	return nil
}
