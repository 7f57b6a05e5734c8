// Package rules limits by the files of a folder, so that operators change limits
// without code. A rule is a path pattern of net/http's ServeMux with descriptors: what
// to count by, and how many in how much time.
//
//	# limits/api.yaml
//	rules:
//	  - path: /api/{rest...}
//	    descriptors:
//	      - {key: account, unit: minute, requests_per_unit: 100}
//	      - {key: account, value: acme, unit: minute, requests_per_unit: 5000}
//
// An [Engine] reads the folder, and decides:
//
//	engine, err := rules.Open("limits", memory.New())
//	go engine.Watch(ctx, time.Second, func(err error) { log.Println("rules read again:", err) })
//
//	d, err := engine.Decide(ctx, rules.Request{Path: "/api/users", Values: map[string]string{"account": "acme"}})
//	if !d.Allowed { … d.RetryAfter, d.Refused[0].Rule … }
//
// or serves as a middleware: [Engine.Middleware].
//
// # What applies
//
// Every rule whose pattern matches applies, not only the most specific one; "/" is for
// all requests. Of a rule's descriptors, those whose key the request has a value for
// apply; of several with one key the most specific: one with that value, or the longest
// with a value that ends in * and begins so, or one without a value. The latter two have
// a counter for each value. A descriptor in a descriptor applies if both do, and counts
// for the values of both. All that apply are charged, or none.
//
// A folder can also have files of Envoy's rate limit service (github.com/envoyproxy/ratelimit),
// which are asked by Domain and Descriptors. The page docs/rules.md of the repository has each
// field, what of Envoy's is refused, and what it costs.
//
// # When rules change
//
// A folder is taken whole or not at all: if anything is wrong in it, the rules in use
// stay. What was used stays used as long as the path, or the domain, the keys, the window
// and the strategy stay, whatever the limit.
package rules
