package webhook

import (
	"fmt"
	"net/netip"
	"syscall"
)

// A privateError says that a connection to an address was refused because it is not public.
type privateError struct{ address netip.Addr }

// Error names the address.
func (e *privateError) Error() string {
	return fmt.Sprintf("the host has the address %s, which is not public, and the configuration refuses those", e.address)
}

// refusePrivate is the Control function of a dialer. It is called with the address that a connection is about to be made
// to, so a name that resolves to another address at each request (DNS rebinding) does not get past it.
func refusePrivate(_, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("the address of the receiver is not an IP address: %w", err)
	}
	if !isPublic(at.Addr()) {
		return &privateError{at.Addr()}
	}
	return nil
}

// isPublic reports whether an address can belong to a server on the Internet.
func isPublic(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	if !a.IsGlobalUnicast() || a.IsPrivate() {
		return false
	}
	for _, reserved := range reservedPrefixes() {
		if reserved.Contains(a) {
			return false
		}
	}
	return a.Is4() || netip.PrefixFrom(netip.AddrFrom16([16]byte{0: 0x20}), 3).Contains(a) // 2000::/3, the only one that is assigned
}

// reservedPrefixes are the blocks that netip has no method for and that no public server is in, and those that have an IPv4
// address inside, to which a gateway would forward.
// https://www.iana.org/assignments/iana-ipv4-special-registry, https://www.iana.org/assignments/iana-ipv6-special-registry
func reservedPrefixes() []netip.Prefix {
	v4 := func(a, b, c byte, bits int) netip.Prefix {
		return netip.PrefixFrom(netip.AddrFrom4([4]byte{a, b, c, 0}), bits)
	}
	v6 := func(a, b, c, d byte, bits int) netip.Prefix {
		return netip.PrefixFrom(netip.AddrFrom16([16]byte{a, b, c, d}), bits)
	}
	return []netip.Prefix{
		v4(0, 0, 0, 8),      // this network
		v4(100, 64, 0, 10),  // carrier-grade NAT
		v4(192, 0, 0, 24),   // protocol assignments
		v4(192, 0, 2, 24),   // documentation
		v4(192, 88, 99, 24), // 6to4 relay
		v4(198, 18, 0, 15),  // benchmarks
		v4(198, 51, 100, 24),
		v4(203, 0, 113, 24),
		v4(240, 0, 0, 4),               // reserved, and broadcast
		v6(0x20, 0x01, 0x00, 0x00, 23), // Teredo and other protocol assignments
		v6(0x20, 0x01, 0x0d, 0xb8, 32), // documentation
		v6(0x20, 0x02, 0x00, 0x00, 16), // 6to4
		v6(0x3f, 0xff, 0x00, 0x00, 20), // documentation
	}
}
