package wire

import (
	"context"
	"net"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lifeboat/lifeboat/certs"
)

// A stranger that has shown no certificate may open as many connections as it likes: no buffers are made for them.
func TestStrangerCostsNoBuffers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := certs.Dev(certs.Name{Role: certs.RoleNode, Name: "b"}).Server([]string{Protocol}, certs.RoleNode)
		const strangers = 32
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range strangers {
			here, there := net.Pipe()
			defer here.Close()
			go here.Write([]byte{22, 3, 1, 2, 0, 1}) // a hello of 512 bytes begins
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if err := Server(there, b).HandshakeContext(ctx); err == nil {
				t.Error("a stranger was welcome")
			}
			cancel()
		}
		runtime.ReadMemStats(&after)
		if each := (after.TotalAlloc - before.TotalAlloc) / strangers; each > blocksPiece/8 {
			t.Errorf("each took %d bytes", each)
		}
	})
}
