package config

import (
	"net"
	"syscall"
	"testing"
)

// TestKeepalives: the words about keepalives become options of the socket.
func TestKeepalives(t *testing.T) {
	cleanEnviron(t)
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	type options struct{ on, idle, interval, count, userTimeout int }
	system := optionsOf(t, func() (net.Conn, error) { // without keepalives, the other options are those of the system
		return (&net.Dialer{KeepAlive: -1}).DialContext(t.Context(), "tcp", l.Addr().String())
	})
	for dsn, want := range map[string]options{
		"":             {1, 15, 15, 9, 0}, // the defaults of Go
		"keepalives=0": {0, system[1], system[2], system[3], 0},
		"keepalives=1 keepalives_idle=30 keepalives_interval=5 keepalives_count=3": {1, 30, 5, 3, 0},
		"keepalives_idle=0 keepalives_interval=0 keepalives_count=0":               {1, system[1], system[2], system[3], 0},
		"tcp_user_timeout=7000 keepalives_idle=20":                                 {1, 20, 15, 9, 7000},
		"tcp_user_timeout=7000 connect_timeout=3":                                  {1, 15, 15, 9, 7000},
	} {
		pg, _, err := parseConninfo("host=db " + dsn)
		if err != nil {
			t.Fatal(err)
		}
		got := optionsOf(t, func() (net.Conn, error) { return pg.DialFunc(t.Context(), "tcp", l.Addr().String()) })
		if (options{got[0], got[1], got[2], got[3], got[4]}) != want {
			t.Errorf("%q: %v, want %v", dsn, got, want)
		}
	}
}

// optionsOf returns SO_KEEPALIVE, TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_KEEPCNT and TCP_USER_TIMEOUT of a new connection.
func optionsOf(t *testing.T, dial func() (net.Conn, error)) (values [5]int) {
	t.Helper()
	conn, err := dial()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	err = raw.Control(func(fd uintptr) {
		for i, option := range [5][2]int{
			{syscall.SOL_SOCKET, syscall.SO_KEEPALIVE},
			{syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE},
			{syscall.IPPROTO_TCP, syscall.TCP_KEEPINTVL},
			{syscall.IPPROTO_TCP, syscall.TCP_KEEPCNT},
			{syscall.IPPROTO_TCP, tcpUserTimeout},
		} {
			if values[i], err = syscall.GetsockoptInt(int(fd), option[0], option[1]); err != nil {
				t.Error(err)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return values
}
