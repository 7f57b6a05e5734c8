package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/granule-limits/ratelimit/httplimit"
)

// keyOf is the key, or "" for an error.
func keyOf(t testing.TB, key httplimit.KeyFunc, change ...func(*http.Request)) string {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	for _, c := range change {
		c(r)
	}
	k, err := key(r)
	if err != nil {
		require.ErrorIs(t, err, httplimit.ErrNoKey)
		require.Empty(t, k)
		return ""
	}
	require.NotEmpty(t, k)
	return k
}

var addresses = []struct{ in, want string }{
	{"192.0.2.1", "192.0.2.1"},
	{"192.0.2.1:80", "192.0.2.1"},
	{"192.0.2.1:65535", "192.0.2.1"},
	{"::ffff:192.0.2.1", "192.0.2.1"},
	{"[::ffff:192.0.2.1]:80", "192.0.2.1"},
	{"::ffff:c000:201", "192.0.2.1"},
	{"0:0:0:0:0:ffff:192.0.2.1", "192.0.2.1"},
	{"[0:0:0:0:0:FFFF:192.0.2.1]:80", "192.0.2.1"},
	{"[::ffff:192.0.2.1%eth0]:80", "192.0.2.1"},
	{"2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"},
	{"[2001:db8:1:2:ffff::]", "2001:db8:1:2::/64"},
	{"[2001:DB8:1:2::1]:443", "2001:db8:1:2::/64"},
	{"2001:0db8:0001:0002::", "2001:db8:1:2::/64"},
	{"fe80::1%eth0", "fe80::/64"},
	{"[fe80::1%eth0]:80", "fe80::/64"},
	{"::1", "::/64"},
	{"0.0.0.0", "0.0.0.0"},
	// no addresses
	{"", ""}, {"unknown", ""}, {"@", ""}, {"-", ""}, {"_hidden", ""}, {"unix:", ""},
	{"192.0.2", ""}, {"192.0.2.1.5", ""}, {"192.0.2.256", ""}, {"192.0.2.01", ""}, {"3221225985", ""}, {"0xc0.0.2.1", ""},
	{"192.0.2.1:", ""}, {"192.0.2.1:x", ""}, {"192.0.2.1:65536", ""}, {"192.0.2.1:-1", ""}, {"192.0.2.1/32", ""},
	{"[192.0.2.1]", ""}, {"[192.0.2.1]:80", ""}, {"[::1", ""}, {"::1]", ""}, {"[]", ""}, {"[]:80", ""}, {"[[::1]]", ""}, {"[::1]80", ""},
	{":80", ""}, {"::g", ""}, {"2001:db8::1::2", ""}, {"fe80::1%", ""}, {"192.0.2.1%eth0", ""}, {`"192.0.2.1"`, ""},
	{"for=192.0.2.1", ""}, {"192.0.2.1 192.0.2.2", ""}, {"192.0.2.1;", ""}, {"example.com", ""}, {"192.0.2.1\x00", ""}, {"１92.0.2.1", ""},
}

func TestAddresses(t *testing.T) {
	for _, tt := range addresses {
		t.Run(tt.in, func(t *testing.T) {
			require.Equal(t, tt.want, keyOf(t, httplimit.PeerAddr(), peer(tt.in)), "peer")
			require.Equal(t, tt.want, keyOf(t, httplimit.TrustedHeader("X-Real-IP"), header("X-Real-IP", " "+tt.in+"\t")), "header")
			require.Equal(t, tt.want, keyOf(t, httplimit.ForwardedButN(0), header("X-Forwarded-For", "203.0.113.9, "+tt.in)), "forwarded")
			require.Equal(t, tt.want, keyOf(t, httplimit.ForwardedOutside(proxies("10.0.0.0/8")), peer("10.0.0.1:1"), header("X-Forwarded-For", "203.0.113.9,"+tt.in)), "outside")
		})
	}
}

func TestIPv6Bits(t *testing.T) {
	for bits, want := range map[int]string{
		48: "2001:db8:1::/48", 56: "2001:db8:1:200::/56", 64: "2001:db8:1:2ff::/64", 128: "2001:db8:1:2ff::1/128", 1: "::/1",
	} {
		require.Equal(t, want, keyOf(t, httplimit.PeerAddr(httplimit.IPv6Bits(bits)), peer("[2001:db8:1:2ff::1]:80")))
		require.Equal(t, "192.0.2.1", keyOf(t, httplimit.PeerAddr(httplimit.IPv6Bits(bits)), peer("[::ffff:192.0.2.1]:80")), "IPv4 counts whole")
	}
	for _, bits := range []int{0, -1, 129} {
		require.Panics(t, func() { httplimit.IPv6Bits(bits) })
	}
}

func TestTrustedHeader(t *testing.T) {
	key := httplimit.TrustedHeader("X-Real-IP")
	require.Empty(t, keyOf(t, key), "missing")
	require.Empty(t, keyOf(t, key, header("X-Real-IP", "192.0.2.1", "192.0.2.2")), "two lines")
	require.Empty(t, keyOf(t, key, header("X-Real-IP", "192.0.2.1", "192.0.2.1")), "two lines, if equal")
	require.Empty(t, keyOf(t, key, header("X-Real-IP", "192.0.2.1, 192.0.2.2")), "a list")
}

func TestForwardedButN(t *testing.T) {
	for _, tt := range []struct {
		name  string
		n     int
		lines []string
		want  string
	}{
		{"one proxy", 0, []string{"192.0.2.1"}, "192.0.2.1"},
		{"spoofed", 0, []string{"203.0.113.9, 203.0.113.8, 192.0.2.1"}, "192.0.2.1"},
		{"spoofed junk", 0, []string{`", ,, <script>,192.0.2.1`}, "192.0.2.1"},
		{"spoofed in a line of its own", 0, []string{"203.0.113.9", "192.0.2.1"}, "192.0.2.1"},
		{"an empty line first", 0, []string{"", "192.0.2.1"}, "192.0.2.1"},
		{"two proxies", 1, []string{"192.0.2.1, 10.0.0.1"}, "192.0.2.1"},
		{"two proxies, two lines", 1, []string{"192.0.2.1", "10.0.0.1"}, "192.0.2.1"},
		{"two proxies, spoofed", 1, []string{"203.0.113.9", "203.0.113.8, 192.0.2.1", "10.0.0.1"}, "192.0.2.1"},
		{"junk that is skipped", 1, []string{"192.0.2.1, unknown"}, "192.0.2.1"},
		{"three proxies", 2, []string{"192.0.2.1 ,\t10.0.0.2", "  10.0.0.1  "}, "192.0.2.1"},
		{"no header", 0, nil, ""},
		{"an empty header", 0, []string{""}, ""},
		{"too few", 1, []string{"192.0.2.1"}, ""},
		{"far too few", 1 << 40, []string{"192.0.2.1"}, ""},
		{"junk", 0, []string{"192.0.2.1, unknown"}, ""},
		{"a comma at the end", 0, []string{"192.0.2.1,"}, ""},
		{"an empty line last", 0, []string{"192.0.2.1", ""}, ""},
		{"an empty entry", 1, []string{"203.0.113.9,, 10.0.0.1"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			require.Equal(t, tt.want, keyOf(t, httplimit.ForwardedButN(tt.n), header("X-Forwarded-For", tt.lines...)))
		})
	}
	require.Panics(t, func() { httplimit.ForwardedButN(-1) })
}

func proxies(networks ...string) (prefixes []netip.Prefix) {
	for _, n := range networks {
		prefixes = append(prefixes, netip.MustParsePrefix(n))
	}
	return prefixes
}

func TestForwardedOutside(t *testing.T) {
	networks := proxies("10.0.0.0/8", "2001:db8:f::/48", "::ffff:172.16.0.0/108")
	for _, tt := range []struct {
		name  string
		peer  string
		lines []string
		want  string
	}{
		{"through a proxy", "10.0.0.1:1", []string{"192.0.2.1"}, "192.0.2.1"},
		{"through two", "10.0.0.1:1", []string{"192.0.2.1, 10.0.0.2"}, "192.0.2.1"},
		{"through three, of both kinds", "[2001:db8:f::1]:1", []string{"192.0.2.1, 10.0.0.2", "[2001:db8:f::2]:80"}, "192.0.2.1"},
		{"a mapped proxy", "[::ffff:10.0.0.1]:1", []string{"192.0.2.1, ::ffff:10.0.0.1"}, "192.0.2.1"},
		{"a mapped network", "172.16.0.1:1", []string{"192.0.2.1"}, "192.0.2.1"},
		{"a proxy with a zone", "[2001:db8:f::1%eth0]:1", []string{"192.0.2.1"}, "192.0.2.1"},
		{"around the proxies", "192.0.2.7:1", []string{"192.0.2.1"}, "192.0.2.7"},
		{"around the proxies, without the header", "192.0.2.7:1", nil, "192.0.2.7"},
		{"around the proxies, with junk", "192.0.2.7:1", []string{"junk"}, "192.0.2.7"},
		{"spoofed", "10.0.0.1:1", []string{"203.0.113.9, 192.0.2.1"}, "192.0.2.1"},
		{"a spoofed proxy", "10.0.0.1:1", []string{"203.0.113.9, 10.0.0.9, 192.0.2.1"}, "192.0.2.1"},
		{"spoofed in a line of its own", "10.0.0.1:1", []string{"203.0.113.9", "192.0.2.1"}, "192.0.2.1"},
		{"spoofed junk", "10.0.0.1:1", []string{",,junk, 192.0.2.1, 10.0.0.2"}, "192.0.2.1"},
		{"over a Unix socket", "@", []string{"192.0.2.1"}, "192.0.2.1"},
		{"over a Unix socket without a name", "", []string{"192.0.2.1"}, "192.0.2.1"},
		{"junk where a proxy writes", "10.0.0.1:1", []string{"192.0.2.1, unknown, 10.0.0.2"}, ""},
		{"an empty entry", "10.0.0.1:1", []string{"192.0.2.1,, 10.0.0.2"}, ""},
		{"all inside", "10.0.0.1:1", []string{"10.1.1.1, 10.0.0.2"}, ""},
		{"a proxy that adds nothing", "10.0.0.1:1", nil, ""},
		{"no peer", "junk", []string{"192.0.2.1"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			require.Equal(t, tt.want, keyOf(t, httplimit.ForwardedOutside(networks), peer(tt.peer), header("X-Forwarded-For", tt.lines...)))
		})
	}
	require.Equal(t, "192.0.2.7", keyOf(t, httplimit.ForwardedOutside(nil), peer("192.0.2.7:1"), header("X-Forwarded-For", "203.0.113.9")))
	require.Panics(t, func() { httplimit.ForwardedOutside([]netip.Prefix{{}}) })
}

// A header of 100 KB costs next to nothing, whatever is in it.
func TestLongHeaders(t *testing.T) {
	for _, long := range []string{strings.Repeat(",", 100_000), strings.Repeat("203.0.113.9,", 8_000), strings.Repeat("x", 100_000) + ",", strings.Repeat(" ", 100_000) + ","} {
		h := header("X-Forwarded-For", long+"192.0.2.1")
		require.Equal(t, "192.0.2.1", keyOf(t, httplimit.ForwardedButN(0), h))
		require.Equal(t, "192.0.2.1", keyOf(t, httplimit.ForwardedOutside(proxies("10.0.0.0/8")), peer("10.0.0.1:1"), h))
		require.Empty(t, keyOf(t, httplimit.ForwardedButN(200_000), h))
		require.Empty(t, keyOf(t, httplimit.TrustedHeader("X-Forwarded-For"), h))
	}
	lines := make([]string, 10_000)
	require.Empty(t, keyOf(t, httplimit.ForwardedButN(10_000), header("X-Forwarded-For", lines...)))
}

// A key is the one way to write an address or a network, however it was written.
func FuzzAddress(f *testing.F) {
	for _, a := range addresses {
		f.Add(a.in)
	}
	f.Fuzz(func(t *testing.T, text string) {
		key := keyOf(t, httplimit.PeerAddr(), peer(text))
		if key == "" {
			return
		}
		if addr, err := netip.ParseAddr(key); err == nil {
			require.True(t, addr.Is4(), key)
			require.Equal(t, addr.String(), key)
			return
		}
		network, err := netip.ParsePrefix(key)
		require.NoError(t, err)
		require.Equal(t, network.Masked().String(), key)
		require.Equal(t, 64, network.Bits())
		require.False(t, network.Addr().Is4In6())
	})
}

// What is found is what splitting all lines at once finds.
func FuzzForwardedFor(f *testing.F) {
	f.Add("203.0.113.9, 192.0.2.1", "10.0.0.1", uint8(1))
	f.Add("", ",", uint8(2))
	for _, a := range addresses {
		f.Add(a.in, a.in, uint8(0))
	}
	f.Fuzz(func(t *testing.T, line1, line2 string, n uint8) {
		entries := strings.Split(line1+","+line2, ",")
		want := ""
		if i := len(entries) - 1 - int(n); i >= 0 {
			want = keyOf(t, httplimit.PeerAddr(), peer(strings.Trim(entries[i], " \t")))
		}
		h := header("X-Forwarded-For", line1, line2)
		require.Equal(t, want, keyOf(t, httplimit.ForwardedButN(int(n)), h))

		want = ""
		inside := netip.MustParsePrefix("10.0.0.0/8")
		for len(entries) > 0 && want == "" {
			entry := strings.Trim(entries[len(entries)-1], " \t")
			entries = entries[:len(entries)-1]
			want = keyOf(t, httplimit.PeerAddr(), peer(entry))
			if want == "" {
				break
			}
			if addr, err := netip.ParseAddr(want); err == nil && inside.Contains(addr) {
				want = ""
			}
		}
		require.Equal(t, want, keyOf(t, httplimit.ForwardedOutside([]netip.Prefix{inside}), peer("10.0.0.1:1"), h))
	})
}
