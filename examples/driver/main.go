// Command driver shows, at its shortest, what a scheduler or an engine's driver does with Lifeboat: it gives no work to
// nodes that leave, knows where the blocks that it needs have gone, and after a restart goes on where it was.
//
//	driver --coordinator c1:7411,c2:7411,c3:7411 --ca ca.pem --cert spark.pem --key spark.key --state place BLOCK...
//
// Its certificate is an app's: lifeboat tls issue --dir pki --app spark.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/client"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "driver:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	coordinators := flag.String("coordinator", "127.0.0.1:7411", "`ADDR` of the coordinator, or those of several with commas between")
	ca, cert, key := flag.String("ca", "ca.pem", "`FILE`"), flag.String("cert", "app.pem", "`FILE`"), flag.String("key", "app.key", "`FILE`")
	state := flag.String("state", "place", "`FILE` to keep in how far the events were read")
	flag.Parse()
	id, err := certs.Load(*ca, *cert, *key)
	if err != nil {
		return err
	}
	conn := client.New(client.Config{
		Addresses:   strings.Split(*coordinators, ","),
		Credentials: certs.Credentials(id.Client([]string{"h2"}, certs.Name{Role: certs.RoleCoordinator})),
	})
	defer conn.Close()
	return newDriver(conn, *state, flag.Args(), os.Stdout).Run(ctx)
}
