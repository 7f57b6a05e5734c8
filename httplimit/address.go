package httplimit

import (
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/netip"
	"strings"
)

const forwardedFor = "X-Forwarded-For"

// An AddrOption changes how addresses become keys.
type AddrOption func(*addrKeys)

// IPv6Bits is how many leading bits of an IPv6 address count, from 1 to 128; 64
// without it, because who has one address usually has the 2^64 of its network. It
// panics for other numbers. IPv4 addresses count whole.
func IPv6Bits(bits int) AddrOption {
	if bits < 1 || bits > 128 {
		panic(fmt.Sprintf("httplimit: IPv6Bits %d is not from 1 to 128", bits))
	}
	return func(a *addrKeys) { a.bits = bits }
}

// PeerAddr is the address at the other end of the connection, the key of New.
// Nobody can forge it; behind a proxy it is the proxy's.
func PeerAddr(opts ...AddrOption) KeyFunc {
	a := newAddrKeys(opts)
	return func(r *http.Request) (string, error) {
		addr, err := parseAddr(r.RemoteAddr)
		if err != nil {
			return noKey("the peer's address: %v", err)
		}
		return a.key(addr, r.RemoteAddr), nil
	}
}

// TrustedHeader is the address in a header field that a proxy of one's own sets,
// and sets in every request: X-Real-IP, CF-Connecting-IP, True-Client-IP. Whoever
// can reach the server around that proxy can write into it what he likes. Several
// lines, or several addresses in one, are no key.
func TrustedHeader(name string, opts ...AddrOption) KeyFunc {
	a, header := newAddrKeys(opts), Header(name)
	return func(r *http.Request) (string, error) {
		value, err := header(r)
		if err != nil {
			return "", err
		}
		value = trim(value)
		addr, err := parseAddr(value)
		if err != nil {
			return noKey("header %s: %v", name, err)
		}
		return a.key(addr, value), nil
	}
}

// ForwardedButN is the entry of X-Forwarded-For n places left of the last. Each
// proxy puts the address that it was asked from at the right: with one proxy of
// one's own n is 0, with two in a row 1. What is further left a client can have
// made up, and is not looked at. Too few entries are no key. It panics if n is
// negative.
//
// It must not be possible to reach the server around those proxies.
func ForwardedButN(n int, opts ...AddrOption) KeyFunc {
	if n < 0 {
		panic(fmt.Sprintf("httplimit: ForwardedButN of %d", n))
	}
	a := newAddrKeys(opts)
	return func(r *http.Request) (string, error) {
		i := 0
		for entry := range fromRight(r.Header.Values(forwardedFor)) {
			if i < n {
				i++
				continue
			}
			addr, err := parseAddr(entry)
			if err != nil {
				return noKey("entry %d from the right of %s: %v", n+1, forwardedFor, err)
			}
			return a.key(addr, entry), nil
		}
		return noKey("%s has %d entries, at least %d are expected", forwardedFor, i, n+1)
	}
}

// ForwardedOutside is the rightmost address outside the networks of one's own
// proxies: the peer's, if that is not a proxy, else the first from the right of
// X-Forwarded-For that is not. What is further left a client can have made up, and
// is not looked at. No address outside is no key: give only the networks of the
// proxies, not those of clients, and WithSkip for the proxies' own health checks.
// A peer on a Unix socket is taken for a proxy.
//
// It panics if a network is not valid.
func ForwardedOutside(proxies []netip.Prefix, opts ...AddrOption) KeyFunc {
	a, inside := newAddrKeys(opts), newNetworks(proxies)
	return func(r *http.Request) (string, error) {
		if r.RemoteAddr != "@" && r.RemoteAddr != "" { // not a Unix socket
			peer, err := parseAddr(r.RemoteAddr)
			if err != nil {
				return noKey("the peer's address: %v", err)
			}
			if !inside.contain(peer) {
				return a.key(peer, r.RemoteAddr), nil
			}
		}
		i := 0
		for entry := range fromRight(r.Header.Values(forwardedFor)) {
			i++
			addr, err := parseAddr(entry)
			if err != nil {
				return noKey("entry %d from the right of %s: %v", i, forwardedFor, err)
			}
			if !inside.contain(addr) {
				return a.key(addr, entry), nil
			}
		}
		return noKey("the peer and the %d entries of %s are all inside the proxies' networks", i, forwardedFor)
	}
}

// networks are those of proxies, IPv4 ones as such.
type networks []netip.Prefix

func newNetworks(prefixes []netip.Prefix) networks {
	n := make(networks, len(prefixes))
	for i, p := range prefixes {
		if !p.IsValid() {
			panic(fmt.Sprintf("httplimit: networks[%d] is not valid", i))
		}
		if p.Addr().Is4In6() && p.Bits() >= 96 {
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		n[i] = p
	}
	return n
}

func (n networks) contain(addr netip.Addr) bool {
	for _, p := range n {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

type addrKeys struct{ bits int }

func newAddrKeys(opts []AddrOption) addrKeys {
	a := addrKeys{bits: 64}
	for _, o := range opts {
		o(&a)
	}
	return a
}

// key is an address, or the network that it stands for. The address was parsed from
// text, which begins with it if it is written as IPv4: there is one way to do that.
func (a addrKeys) key(addr netip.Addr, text string) string {
	if addr.Is6() {
		return netip.PrefixFrom(addr, a.bits).Masked().String()
	}
	if host, _, _ := strings.Cut(text, ":"); strings.Contains(host, ".") {
		return host
	}
	return addr.String() // it was mapped into IPv6
}

var errNotAddr = errors.New("not an IP address") // and not repeated

// parseAddr reads an address as net/http and proxies write it: 192.0.2.1,
// 192.0.2.1:80, 2001:db8::1, [2001:db8::1], [2001:db8::1]:80. It is unmapped here,
// before anybody masks it: else all IPv4 clients of a socket that speaks both
// would be in one /64.
func parseAddr(s string) (netip.Addr, error) {
	withPort, err := netip.ParseAddrPort(s)
	addr := withPort.Addr()
	if err != nil {
		bracketed := len(s) > 2 && s[0] == '[' && s[len(s)-1] == ']'
		if bracketed {
			s = s[1 : len(s)-1]
		}
		if addr, err = netip.ParseAddr(s); err != nil || bracketed && addr.Is4() {
			return netip.Addr{}, errNotAddr
		}
	}
	return addr.Unmap().WithZone(""), nil
}

// fromRight iterates over the entries of a list in all its header lines, the last
// one first. Empty entries count: to leave one out would move the next into its
// place.
func fromRight(lines []string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := len(lines) - 1; i >= 0; i-- {
			rest := lines[i]
			for comma := 0; comma >= 0; {
				comma = strings.LastIndexByte(rest, ',')
				if !yield(trim(rest[comma+1:])) {
					return
				}
				rest = rest[:max(comma, 0)]
			}
		}
	}
}

func trim(s string) string { return strings.Trim(s, " \t") }
