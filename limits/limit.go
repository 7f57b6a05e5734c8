package limits

import (
	"context"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/granule-limits/ratelimit"
)

var (
	// ErrUnknownResource: the table has no limit for the account and no default for
	// the resource.
	ErrUnknownResource = errors.New("limits: unknown resource")
	// ErrInvalidLimit: a limit, or a file of limits, is refused. Nothing has changed.
	ErrInvalidLimit = errors.New("limits: invalid limit")
)

// maxName bounds the names of resources, accounts and services, in bytes.
const maxName = 256

// A Table knows the quotas of accounts. Tables are safe for concurrent use.
type Table interface {
	// Quotas are the quotas of an account: its own or, without any, those of the
	// resource's default, which is the account "". With neither the error wraps
	// ErrUnknownResource; any other error is a table that could not tell.
	//
	// The slice belongs to the table, and nobody changes it.
	Quotas(ctx context.Context, resource, account string) ([]ratelimit.Quota, error)
}

// A Limit is the quotas of one account for one resource.
type Limit struct {
	Resource string            // 1 to 256 bytes of UTF-8
	Account  string            // at most 256 bytes of UTF-8; "" is the resource's default
	Quotas   []ratelimit.Quota // at least one; all of them hold
}

// Validate tells what is wrong with a limit, if anything: an error that wraps
// ErrInvalidLimit and names the field and its value.
//
// Besides what ratelimit.Quota.Validate refuses, these are: two quotas of the same
// Window (they would be one counter), and a Burst with a Limit of 0 (a token bucket
// would let the burst pass, where 0 is to block).
func (l Limit) Validate() error {
	if l.Resource == "" {
		return fmt.Errorf("%w: the resource is empty", ErrInvalidLimit)
	}
	if err := checkName("resource", l.Resource); err != nil {
		return err
	}
	if err := checkName("account", l.Account); err != nil {
		return err
	}
	if err := checkQuotas(l.Quotas); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrInvalidLimit, l.id(), err)
	}
	return nil
}

func (l Limit) id() string {
	if l.Account == "" {
		return fmt.Sprintf("the default of resource %q", l.Resource)
	}
	return fmt.Sprintf("resource %q, account %q", l.Resource, l.Account)
}

func checkName(field, name string) error {
	switch {
	case len(name) > maxName:
		return fmt.Errorf("%w: the %s %.40q… has %d bytes, at most %d", ErrInvalidLimit, field, name, len(name), maxName)
	case !utf8.ValidString(name):
		return fmt.Errorf("%w: the %s %q is not UTF-8", ErrInvalidLimit, field, name)
	}
	return nil
}

func checkQuotas(quotas []ratelimit.Quota) error {
	if len(quotas) == 0 {
		return errors.New("there are no quotas; to block, give one with a limit of 0")
	}
	for i, q := range quotas {
		if err := q.Validate(); err != nil {
			return err
		}
		if q.Limit == 0 && q.Burst > 0 {
			return fmt.Errorf("the Burst %d with Limit 0, which is to block: leave the burst out", q.Burst)
		}
		if !utf8.ValidString(q.Name) || !utf8.ValidString(q.PrefixOverride) {
			return fmt.Errorf("the Name %q or PrefixOverride %q is not UTF-8", q.Name, q.PrefixOverride)
		}
		for _, other := range quotas[:i] {
			if other.Window == q.Window && other.PrefixOverride == q.PrefixOverride {
				return fmt.Errorf("two quotas have the Window %v: leave one of them out", q.Window)
			}
		}
	}
	return nil
}

// checkAll refuses limits of which one is invalid, or two are of the same account.
func checkAll(list []Limit) error {
	type id struct{ resource, account string }
	seen := make(map[id]bool, len(list))
	for _, l := range list {
		if err := l.Validate(); err != nil {
			return err
		}
		if seen[id{l.Resource, l.Account}] {
			return fmt.Errorf("%w: %s is there twice", ErrInvalidLimit, l.id())
		}
		seen[id{l.Resource, l.Account}] = true
	}
	return nil
}
