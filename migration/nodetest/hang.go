package nodetest

import (
	"reflect"
	"sync"
	"unsafe"

	"github.com/lifeboat/lifeboat/migration/catalog"
)

// HangMeta has a catalog stand as it does while its meta page is being written, until thaw: bbolt lets nobody look meanwhile. It is what
// a file system does that is frozen at that moment, which is a matter of luck.
func HangMeta(c *catalog.Catalog) (thaw func()) {
	lock := (*sync.Mutex)(unsafe.Pointer(reflect.ValueOf(c.DB()).Elem().FieldByName("metalock").UnsafeAddr()))
	lock.Lock()
	return sync.OnceFunc(lock.Unlock)
}
