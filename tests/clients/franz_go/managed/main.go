// Writes to and reads a topic until it is told to end; see test_clients_on_managed_topics.py.
package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	ctx   = context.Background()
	ended atomic.Bool
	told  atomic.Int64
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func listen() {
	text, err := io.ReadAll(os.Stdin)
	must(err)
	if count, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil {
		told.Store(count)
	}
	ended.Store(true)
}

func produce(bootstrap, topic string) {
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.DefaultProduceTopic(topic))
	must(err)
	defer client.Close()
	sent := 0
	for !ended.Load() {
		var records []*kgo.Record
		for range 5 {
			records = append(records, kgo.KeyStringRecord(fmt.Sprintf("franz_go-%d", sent%20), strconv.Itoa(sent)))
			sent++
		}
		must(client.ProduceSync(ctx, records...).FirstErr())
		if sent == 5 {
			fmt.Println("begun")
		}
		time.Sleep(20 * time.Millisecond)
	}
	fmt.Println(sent)
}

func consume(bootstrap, topic string) {
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.ConsumeTopics(topic), kgo.ConsumerGroup(topic+"-franz_go"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(500*time.Millisecond))
	must(err)
	defer client.Close()
	output := bufio.NewWriter(os.Stdout)
	read, quiet := int64(0), time.Now()
	for !ended.Load() || read < told.Load() || time.Since(quiet) < 1500*time.Millisecond {
		wait, cancel := context.WithTimeout(ctx, time.Second)
		client.PollFetches(wait).EachRecord(func(r *kgo.Record) {
			fmt.Fprintf(output, "%s %s\n", r.Key, r.Value)
			read, quiet = read+1, time.Now()
		})
		cancel()
		must(output.Flush())
	}
	must(client.CommitUncommittedOffsets(ctx))
}

func main() {
	go listen()
	if os.Args[3] == "produce" {
		produce(os.Args[1], os.Args[2])
	} else {
		consume(os.Args[1], os.Args[2])
	}
}
