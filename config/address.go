package config

import (
	"net"
	"net/netip"
	"strconv"
)

// Report is called by a Validate for each value that is out of its bounds.
type Report = func(key string, value any, bound, remedy string)

// CheckListen reports an address that cannot be listened on, and one that can, like. Port 0 lets the kernel choose.
func CheckListen(report Report, key, addr, like string) {
	if _, _, ok := split(addr, 0); !ok {
		report(key, addr, "must be host:port with a port of 0 to 65535", "write it like "+like)
	}
}

// CheckDial reports an address that others cannot dial.
func CheckDial(report Report, key, addr string) {
	host, _, ok := split(addr, 1)
	if !ok {
		report(key, addr, "must be host:port with a port of 1 to 65535", "write it like 10.0.0.1:7411")
		return
	}
	if anywhere(host) {
		report(key, addr, "must name one machine", "write the address that others reach it at, like 10.0.0.1:7411")
	}
}

// CheckApart reports two listeners that cannot both listen, because they want the same port at the same address.
func CheckApart(report Report, key1, addr1, key2, addr2 string) {
	host1, port1, ok1 := split(addr1, 1)
	host2, port2, ok2 := split(addr2, 1)
	if ok1 && ok2 && port1 == port2 && (host1 == host2 || anywhere(host1) || anywhere(host2)) {
		report(key2, addr2, "must differ from "+key1+" "+addr1, "choose another port")
	}
}

func anywhere(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "" || err == nil && ip.IsUnspecified()
}

// Loopback reports whether an address is of the loopback interface.
func Loopback(addr string) bool {
	host, _, ok := split(addr, 0)
	if !ok {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

func split(addr string, least int) (host string, port int, ok bool) {
	host, digits, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, false
	}
	port, err = strconv.Atoi(digits)
	return host, port, err == nil && least <= port && port <= 65535
}
