package systemd

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"time"

	"github.com/godbus/dbus/v5"
)

// ErrNotBooted says that systemd is not this host's init, so it cannot be asked.
var ErrNotBooted = errors.New("systemd is not the init of this host")

// Booted reports whether systemd is this host's init, in the way of sd_booted(3).
func Booted() bool {
	i, err := os.Lstat("/run/systemd/system")
	return err == nil && i.IsDir()
}

// busAddress is the environment variable that names another system bus than the usual one (D-Bus specification, "Well-known
// Message Bus Instances").
const busAddress = "DBUS_SYSTEM_BUS_ADDRESS"

// openBus connects to the system bus. ctx bounds the connecting, not the connection.
func openBus(ctx context.Context) (*dbus.Conn, error) {
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	connecting := context.AfterFunc(ctx, end)
	conn, err := dialBus(life)
	if !connecting() {
		err = errors.Join(context.Cause(ctx), err)
	}
	if err != nil {
		end()
		return nil, fmt.Errorf("reach the system bus: %w", err)
	}
	return conn, nil
}

// dialBus returns a connection that ends with life.
func dialBus(life context.Context) (*dbus.Conn, error) {
	// A sequential handler keeps the order of the signals: a shutdown that was cancelled must not look like one that began.
	conn, err := dbus.SystemBusPrivate(dbus.WithContext(life), dbus.WithSignalHandler(dbus.NewSequentialSignalHandler()))
	if err != nil {
		return nil, err
	}
	// The user's number is enough; other methods would look names and cookies up in files.
	if err := conn.Auth([]dbus.Auth{dbus.AuthExternal(strconv.Itoa(os.Getuid()))}); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	if err := conn.Hello(); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// Forever is a time limit that never comes.
const Forever = time.Duration(math.MaxInt64)

// fromUSec converts a span that systemd gives in microseconds. The largest number stands for no limit.
func fromUSec(usec uint64) time.Duration {
	if usec > uint64(Forever/time.Microsecond) {
		return Forever
	}
	return time.Duration(usec) * time.Microsecond
}
