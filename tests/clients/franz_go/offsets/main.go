// Prints the offsets of a topic: by partition its beginning, its end, and the first one at a time or later, else the end.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	bootstrap, topic := os.Args[1], os.Args[2]
	time, err := strconv.ParseInt(os.Args[3], 10, 64)
	must(err)
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap))
	must(err)
	defer client.Close()
	ctx, admin := context.Background(), kadm.NewClient(client)
	found := map[int32][]int64{}
	add := func(offsets kadm.ListedOffsets, err error) {
		must(err)
		must(offsets.Error())
		offsets.Each(func(each kadm.ListedOffset) {
			found[each.Partition] = append(found[each.Partition], each.Offset)
		})
	}
	add(admin.ListStartOffsets(ctx, topic))
	add(admin.ListEndOffsets(ctx, topic))
	add(admin.ListOffsetsAfterMilli(ctx, time, topic))
	must(json.NewEncoder(os.Stdout).Encode(found))
}
