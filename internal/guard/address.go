package guard

import "net/netip"

// refused are the blocks of special purpose (IANA's IPv4 and IPv6 registries)
// and one address that a hosting service uses for its own machines.
var refused = prefixes(
	"0.0.0.0/8",         // this network
	"10.0.0.0/8",        // private
	"100.64.0.0/10",     // shared by carriers
	"127.0.0.0/8",       // loopback
	"168.63.129.16/32",  // Azure's metadata service
	"169.254.0.0/16",    // link-local; metadata services
	"172.16.0.0/12",     // private
	"192.0.0.0/24",      // protocol assignments
	"192.0.2.0/24",      // documentation
	"192.31.196.0/24",   // AS112
	"192.52.193.0/24",   // multicast tunnels
	"192.88.99.0/24",    // 6to4 relays
	"192.168.0.0/16",    // private
	"192.175.48.0/24",   // AS112
	"198.18.0.0/15",     // benchmarks
	"198.51.100.0/24",   // documentation
	"203.0.113.0/24",    // documentation
	"224.0.0.0/4",       // multicast
	"240.0.0.0/4",       // reserved, broadcast
	"2001::/23",         // protocol assignments, Teredo, ORCHID, benchmarks
	"2001:db8::/32",     // documentation
	"2002::/16",         // 6to4: an IPv4 address within
	"2620:4f:8000::/48", // AS112
	"3fff::/20",         // documentation
)

var (
	// globalV6 is all of IPv6 that is given out as public. Loopback,
	// unspecified, unique local, link-local, multicast and the forms that hold
	// an IPv4 address (compatible, translated, local NAT64) lie outside.
	globalV6 = netip.MustParsePrefix("2000::/3")
	// nat64 is the one form with an IPv4 address within that a machine without
	// IPv4 needs (RFC 6052): it is as public as that address.
	nat64 = netip.MustParsePrefix("64:ff9b::/96")
)

func prefixes(list ...string) []netip.Prefix {
	ps := make([]netip.Prefix, len(list))
	for i, s := range list {
		ps[i] = netip.MustParsePrefix(s)
	}
	return ps
}

// Public reports whether an address belongs to the public Internet: neither to
// the machine, its network or its provider's, nor to a block with a purpose of
// its own. An IPv4 address within an IPv6 one counts as itself.
func Public(ip netip.Addr) bool {
	if !ip.IsValid() || ip.Zone() != "" {
		return false
	}
	ip = ip.Unmap()
	if nat64.Contains(ip) {
		b := ip.As16()
		ip = netip.AddrFrom4([4]byte(b[12:]))
	}
	if ip.Is6() && !globalV6.Contains(ip) {
		return false
	}
	for _, p := range refused {
		if p.Contains(ip) {
			return false
		}
	}
	return true
}
