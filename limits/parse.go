package limits

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"

	"github.com/granule-limits/ratelimit"
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
	if !utf8.Valid(data) {
		return nil, fmt.Errorf("%w: the text is not UTF-8", ErrInvalidLimit)
	}
	root, err := parseYAML(string(data))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalidLimit, err)
	}
	list, err := readFile(root)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalidLimit, err)
	}
	return list, nil
}

func readFile(root value) ([]Limit, error) {
	fields, err := root.fields("limits")
	if err != nil {
		return nil, err
	}
	entries, err := fields.need("limits").list()
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
			return nil, entry.fault(reason(err))
		}
		if line := lines[id{l.Resource, l.Account}]; line > 0 {
			return nil, entry.fault(fmt.Sprintf("%s is there already, in line %d", l.id(), line))
		}
		lines[id{l.Resource, l.Account}] = entry.line()
		list = append(list, l)
	}
	return list, nil
}

// reason is an error of Validate without the prefix that Parse puts before it.
func reason(err error) string {
	return err.Error()[len(ErrInvalidLimit.Error()+": "):]
}

func readLimit(entry value) (Limit, error) {
	fields, err := entry.fields("resourceName", "accountId", "limit", "windowSec", "quotas")
	if err != nil {
		return Limit{}, err
	}
	var l Limit
	if l.Resource, err = fields.need("resourceName").text(); err != nil {
		return Limit{}, err
	}
	if account, ok := fields.get("accountId"); ok {
		if l.Account, err = account.text(); err != nil {
			return Limit{}, err
		}
		if l.Account == "" {
			return Limit{}, account.fault("is empty: leave it out for the default of the resource")
		}
	}
	l.Quotas, err = readQuotas(fields)
	return l, err
}

// readQuotas reads either form: a limit and its windowSec, or quotas.
func readQuotas(fields fields) ([]ratelimit.Quota, error) {
	several, ok := fields.get("quotas")
	if !ok {
		q, err := readPlain(fields)
		return []ratelimit.Quota{q}, err
	}
	for _, name := range []string{"limit", "windowSec"} {
		if v, ok := fields.get(name); ok {
			return nil, v.fault("stands beside quotas: use one or the other")
		}
	}
	list, err := several.list()
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

func readPlain(fields fields) (q ratelimit.Quota, err error) {
	if q.Limit, err = fields.need("limit").whole(); err != nil {
		return q, err
	}
	window := fields.need("windowSec")
	seconds, err := window.whole()
	if err != nil {
		return q, err
	}
	if seconds > math.MaxInt64/int64(time.Second) {
		return q, window.fault(fmt.Sprintf("%d is more than 71 years", seconds))
	}
	q.Window = time.Duration(seconds) * time.Second
	return q, window.valid(q)
}

func readQuota(v value) (q ratelimit.Quota, err error) {
	fields, err := v.fields("limit", "window", "granularity", "burst", "name", "prefixOverride")
	if err != nil {
		return q, err
	}
	if q.Limit, err = fields.need("limit").whole(); err != nil {
		return q, err
	}
	if q.Window, err = fields.need("window").duration(); err != nil {
		return q, err
	}
	if g, ok := fields.get("granularity"); ok {
		if q.Granularity, err = g.duration(); err != nil {
			return q, err
		}
	}
	if b, ok := fields.get("burst"); ok {
		if q.Burst, err = b.whole(); err != nil {
			return q, err
		}
	}
	if n, ok := fields.get("name"); ok {
		if q.Name, err = n.text(); err != nil {
			return q, err
		}
	}
	if p, ok := fields.get("prefixOverride"); ok {
		if q.PrefixOverride, err = p.text(); err != nil {
			return q, err
		}
	}
	return q, v.valid(q)
}

// valid refuses a quota at the place where it, or its window, stands.
func (v value) valid(q ratelimit.Quota) error {
	if err := q.Validate(); err != nil {
		return v.fault(err.Error())
	}
	return nil
}

// whole reads a number that is written in decimal digits and nothing else: 010,
// 0x10, 1_000 and 1e3 mean different numbers to different readers.
func (v value) whole() (int64, error) {
	if v.node == nil {
		return 0, v.fault("is missing")
	}
	text := v.node.GetToken().Value
	_, isNumber := v.node.(*ast.IntegerNode)
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange):
		return 0, v.fault(fmt.Sprintf("%s is out of range", text))
	case !isNumber || err != nil || text != strconv.FormatInt(n, 10):
		return 0, v.fault(fmt.Sprintf("%s is not a whole number in plain digits", v.quoted()))
	case n < 0:
		return 0, v.fault(fmt.Sprintf("%d is negative", n))
	}
	return n, nil
}

func (v value) duration() (time.Duration, error) {
	text, err := v.text()
	if err != nil {
		return 0, err
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, v.fault(fmt.Sprintf("%q is not a duration such as 30s, 5m or 24h", text))
	}
	if d <= 0 {
		return 0, v.fault(fmt.Sprintf("%s is not above zero", text))
	}
	return d, nil
}
