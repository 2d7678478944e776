// franz-go's transactional producer, or a reader of what such producers write; see kordon.testing.order.transact.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

type fields = map[string]any

var (
	ctx   = context.Background()
	task  = map[string]string{}
	file  *os.File
	ended atomic.Bool
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func number(name string) int {
	value, err := strconv.Atoi(task[name])
	must(err)
	return value
}

// nowUs returns CLOCK_MONOTONIC, which all processes share; Go's own monotonic time begins with the process.
func nowUs() int64 {
	var now syscall.Timespec
	syscall.Syscall(syscall.SYS_CLOCK_GETTIME, 1, uintptr(unsafe.Pointer(&now)), 0)
	return now.Nano() / 1000
}

func line(what fields) {
	text, err := json.Marshal(what)
	must(err)
	_, err = file.Write(append(text, '\n'))
	must(err)
}

func open(name string, whose fields) {
	var err error
	file, err = os.OpenFile(filepath.Join(task["folder"], name+".history"), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	must(err)
	line(whose)
}

func note(event string, more fields) {
	more["e"], more["t"] = event, nowUs()
	line(more)
}

func trouble(kind string, err error) { note("trouble", fields{"kind": kind, "error": err.Error()}) }

func start() *kgo.Client {
	for {
		client, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(task["bootstrap"], ",")...), kgo.DefaultProduceTopic(task["topic"]),
			kgo.TransactionalID(task["name"]), kgo.TransactionTimeout(30*time.Second), kgo.MetadataMaxAge(time.Second),
			kgo.MetadataMinAge(100*time.Millisecond),
			kgo.ProducerBatchCompression(kgo.GzipCompression())) // kafkajs cannot read snappy, which is usual here
		must(err)
		if _, _, err = client.ProducerID(ctx); err == nil {
			return client
		}
		trouble("retriable", err)
		client.Close()
		time.Sleep(100 * time.Millisecond)
	}
}

// transact does a transaction, and what its errors ask for; returns what came of it, and the client for the next one.
func transact(client *kgo.Client, x, first int, records []*kgo.Record, commits bool, held time.Duration) (string, *kgo.Client) {
	committing := false
	fail := func(err error) (string, *kgo.Client) {
		trouble("fatal", err)
		client.CloseAllowingRebalance()
		if committing {
			return "unknown", start()
		}
		return "aborted", start()
	}
	if err := client.BeginTransaction(); err != nil {
		return fail(err)
	}
	err := client.ProduceSync(ctx, records[0]).FirstErr()
	time.Sleep(held)
	if err == nil && len(records) > 1 {
		err = client.ProduceSync(ctx, records[1:]...).FirstErr()
	}
	if err != nil {
		trouble("abortable", err)
		commits = false
		if err := client.AbortBufferedRecords(ctx); err != nil {
			return fail(err)
		}
	} else {
		for place, r := range records {
			sequence, _ := strconv.Atoi(strings.Fields(string(r.Value))[0])
			note("acked", fields{"n": first + place, "k": string(r.Key), "s": sequence, "sent": 0, "p": r.Partition, "o": r.Offset})
		}
	}
	note("ending", fields{"x": x, "commits": commits})
	committing = commits
	err = client.EndTransaction(ctx, kgo.TransactionEndTry(commits))
	if errors.Is(err, kerr.OperationNotAttempted) {
		trouble("abortable", err)
		commits, committing = false, false
		err = client.EndTransaction(ctx, kgo.TryAbort)
	}
	if err != nil {
		return fail(err)
	}
	if commits {
		return "committed", client
	}
	return "aborted", client
}

func write() {
	go func() {
		io.Copy(io.Discard, os.Stdin)
		ended.Store(true)
	}()
	life := number("life")
	open(fmt.Sprintf("%s.%d", task["name"], life), fields{"producer": task["name"]})
	chance := rand.New(rand.NewSource(int64(number("seed")*1000 + life)))
	x, n, sequences := life*100_000, life*20_000, make([]int, number("keys"))
	client := start()
	for ; !ended.Load(); x++ {
		var records []*kgo.Record
		var told [][]any
		for range 1 + chance.Intn(8) {
			key := chance.Intn(len(sequences))
			name, sequence := fmt.Sprintf("%s-%d", task["name"], key), life*20_000+sequences[key]
			sequences[key]++
			records = append(records, kgo.KeyStringRecord(name, fmt.Sprintf("%d of a transaction", sequence)))
			told = append(told, []any{name, sequence})
		}
		note("begun", fields{"x": x, "n": n, "r": told})
		commits, held := chance.Intn(100) >= number("aborted_percent"), time.Duration(0)
		if chance.Intn(100) < number("held_percent") {
			held = time.Duration(number("held_ms")) * time.Millisecond
		}
		var outcome string
		outcome, client = transact(client, x, n, records, commits, held)
		note("over", fields{"x": x, "outcome": outcome})
		n += len(records)
		time.Sleep(time.Duration(number("pause_ms")) * time.Millisecond)
	}
	client.Close()
}

func read() {
	open(task["name"], fields{"group": task["name"], "member": task["name"], "isolation": task["isolation"]})
	level := kgo.ReadUncommitted()
	if task["isolation"] == "read_committed" {
		level = kgo.ReadCommitted()
	}
	begins, left := map[int32]kgo.Offset{}, map[int32]bool{}
	var all []int32
	for partition := range int32(number("partitions")) {
		begins[partition], left[partition] = kgo.NewOffset().At(0), true
		all = append(all, partition)
	}
	note("assigned", fields{"p": all})
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(task["bootstrap"], ",")...), kgo.FetchIsolationLevel(level),
		kgo.FetchMaxWait(100*time.Millisecond), kgo.MetadataMaxAge(time.Second), kgo.MetadataMinAge(100*time.Millisecond), kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{task["topic"]: begins}))
	must(err)
	for len(left) > 0 {
		client.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
			sequence, _ := strconv.Atoi(strings.Fields(string(r.Value))[0])
			note("processed", fields{"p": r.Partition, "o": r.Offset, "k": string(r.Key), "s": sequence})
			if strings.HasPrefix(string(r.Key), "last-") {
				delete(left, r.Partition)
			}
		})
	}
	client.Close()
	note("ended", fields{})
}

func main() {
	for _, argument := range os.Args[1:] {
		name, value, _ := strings.Cut(argument, "=")
		task[name] = value
	}
	if task["role"] == "write" {
		write()
	} else {
		read()
	}
}
