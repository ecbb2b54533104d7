package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"

	"github.com/lifeboat/lifeboat/certs"
	"github.com/lifeboat/lifeboat/client"
)

// A scheduler lists the nodes once, and from then on hears what happens to them.
func ExampleConn_Events() {
	id, err := certs.Load("ca.pem", "scheduler.pem", "scheduler.key")
	if err != nil {
		log.Fatal(err)
	}
	conn := client.New(client.Config{
		Addresses:   []string{"c1:7411", "c2:7411", "c3:7411"},
		Credentials: certs.Credentials(id.Client([]string{"h2"}, certs.Name{Role: certs.RoleCoordinator})),
	})
	defer conn.Close()

	ctx := context.Background()
	place, err := conn.Newest(ctx)
	if err != nil {
		log.Fatal(err)
	}
	list := func() {
		nodes, err := conn.Nodes(ctx)
		if err != nil {
			log.Print(err)
			return
		}
		for _, n := range nodes {
			fmt.Println(n.GetName(), n.GetState(), n.GetSchedulable())
		}
	}
	list()
	for e, err := range conn.Events(ctx, place, client.Filter{}) {
		switch {
		case err != nil:
			log.Print(err) // it goes on when the coordinators are back
		case e.Type == client.Gap:
			list()
		default:
			fmt.Println(e.Place, e.Type, e.Node, e.Data) // write down e.Place to go on after a restart
		}
	}
}

func ExampleParsePlace() {
	place, err := client.ParsePlace("3.1204")
	fmt.Println(place.Term, place.Index, place, err)
	_, err = client.ParsePlace("yesterday")
	fmt.Println(err)
	// Output:
	// 3 1204 3.1204 <nil>
	// "yesterday" is no place of an event: want TERM.INDEX, TERM.INDEX.SOFT or INDEX, such as 3.1204
}

// A program reads a block that its node's engine has no more.
func ExampleBlocks_Open() {
	blocks, err := client.NewBlocks(client.BlocksConfig{Agents: []string{"unix:/run/lifeboat/agent.sock"}})
	if err != nil {
		log.Fatal(err)
	}
	defer blocks.Close()
	block, err := blocks.Open(context.Background(), "cache/-/model-7.bin")
	switch {
	case errors.Is(err, client.ErrLost), errors.Is(err, client.ErrUnknown):
		log.Print("computing it again: ", err)
		return
	case err != nil:
		log.Fatal(err)
	}
	defer block.Close()
	if _, err := io.Copy(os.Stdout, block); err != nil {
		log.Fatal(err)
	}
}
