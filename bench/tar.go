package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// tarPipe is what an operator in a hurry types: no encryption, no checksums, nothing synced, and no word of what is
// missing.
type tarPipe struct{}

func (tarPipe) name() string { return "tar over nc" }

func (tarPipe) move(ctx context.Context, from source, into string) (out outcome, err error) {
	target, at, err := site(into)
	if err != nil {
		return out, err
	}
	host, port, _ := net.SplitHostPort(at)
	server, err := start(ctx, filepath.Join(into, "tar.log"), "sh", "-c", `nc -l "$1" "$2" | tar -x -C "$3"`, "sh", host, port, target)
	if err != nil {
		return out, err
	}
	// A test connection would be the one connection that nc takes.
	if err := server.until(ctx, "it listens on "+at, func() bool { return listening(port) }); err != nil {
		_, stopped := server.stop()
		return out, errors.Join(err, stopped)
	}
	began := time.Now()
	_, out.cpu, err = command(ctx, "sh", "-c", `tar -c -C "$3" . | nc -N "$1" "$2"`, "sh", host, port, from.dir)
	if err == nil {
		<-server.ended // once the last file is there
		err = server.err
	}
	out.sent = time.Since(began)
	out.told = out.sent
	cpu, stopped := server.stop()
	out.cpu += cpu
	if err = errors.Join(err, stopped); err != nil {
		return out, server.trouble(err)
	}
	return out, arrived(&out, began, target, from)
}

// listening reports whether something listens on the port, from proc_net_tcp(5).
func listening(port string) bool {
	no, err := strconv.Atoi(port)
	if err != nil {
		return false
	}
	b, err := os.ReadFile("/proc/net/tcp")
	return err == nil && strings.Contains(string(b), fmt.Sprintf(":%04X 00000000:0000 0A ", no))
}

// arrived syncs what was moved, notes when that was done, and checks that all bytes are there.
func arrived(out *outcome, began time.Time, target string, from source) error {
	if err := syncFS(target); err != nil {
		return err
	}
	out.durable = time.Since(began)
	got, err := treeBytes(target)
	if err == nil && got != from.files.Bytes {
		err = fmt.Errorf("%d bytes came to %s, want %d", got, target, from.files.Bytes)
	}
	return err
}
