package redistest

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// A Fault is what a Proxy does to what passes through it.
type Fault int32

// The faults.
const (
	None               Fault = iota
	SwallowReplies           // requests arrive, their replies never do
	CloseAfterRequest        // requests arrive, and then the connection is closed
	ResetBeforeRequest       // connections are reset when a request comes, which does not arrive
	Refuse                   // new connections are closed at once, old ones are reset
)

// A Proxy stands between a client and a server, and breaks what it is told to.
type Proxy struct {
	Addr   string
	server string
	fault  atomic.Int32
	listen net.Listener
	wg     sync.WaitGroup
	mu     sync.Mutex
	open   map[net.Conn]bool
}

// StartProxy starts a proxy before a server, and stops it when the test ends.
func StartProxy(t testing.TB, server string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{Addr: l.Addr().String(), server: server, listen: l, open: make(map[net.Conn]bool)}
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		_ = l.Close()
		p.closeAll()
		p.wg.Wait()
	})
	return p
}

// Set changes what the proxy does, for connections that are open too.
func (p *Proxy) Set(f Fault) {
	p.fault.Store(int32(f))
	if f == Refuse {
		p.closeAll()
	}
}

func (p *Proxy) is(f Fault) bool { return Fault(p.fault.Load()) == f }

func (p *Proxy) accept() {
	for {
		client, err := p.listen.Accept()
		if err != nil {
			return
		}
		if p.is(Refuse) {
			reset(client)
			continue
		}
		server, err := net.Dial("tcp", p.server)
		if err != nil {
			reset(client)
			continue
		}
		p.keep(client, server)
		p.wg.Go(func() { p.requests(client, server) })
		p.wg.Go(func() { p.replies(client, server) })
	}
}

func (p *Proxy) requests(client, server net.Conn) {
	defer p.drop(client, server)
	buf := make([]byte, 64<<10)
	for {
		n, err := client.Read(buf)
		if err != nil {
			return
		}
		if p.is(ResetBeforeRequest) {
			reset(client)
			return
		}
		if _, err := server.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (p *Proxy) replies(client, server net.Conn) {
	defer p.drop(client, server)
	buf := make([]byte, 64<<10)
	for {
		n, err := server.Read(buf)
		if err != nil || p.is(CloseAfterRequest) {
			return
		}
		if p.is(SwallowReplies) {
			continue
		}
		if _, err := client.Write(buf[:n]); err != nil {
			return
		}
	}
}

func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // RST, not FIN
	}
	_ = c.Close()
}

func (p *Proxy) keep(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		p.open[c] = true
	}
}

func (p *Proxy) drop(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
		delete(p.open, c)
	}
}

func (p *Proxy) closeAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.open {
		reset(c)
	}
}
