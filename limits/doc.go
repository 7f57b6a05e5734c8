// Package limits keeps the limits of a service's resources: a default for each,
// and for some accounts one of their own. A [Table] tells which quotas an account
// has; a Policy made with ratelimit.NewPolicyFrom asks it for each call.
//
//	table, err := limits.OpenFile("limits.yaml") // or NewMemory, or package redistable
//	perAccount, err := ratelimit.NewPolicyFrom("search", limiter, table.Source("search"))
//	d, err := perAccount.Allow(ctx, "acct-1")
//
// An account without a limit of its own has the default. A limit of 0 blocks it.
// A resource without a default knows only the accounts that it lists, and is
// [ErrUnknownResource] for the others.
//
// # Which table
//
//   - [NewMemory]: limits that the program has already.
//   - [OpenFile]: a YAML or JSON file, read again when it has changed.
//   - Package redistable: a table in Redis that a fleet shares, filled by a
//     [Loader] from the files of many services. Put a [Cache] before it.
//
// # When a limit changes
//
// What was used stays used: a counter belongs to a quota's Window and Granularity,
// not to its Limit. An account whose Window changes starts a new counter.
package limits
