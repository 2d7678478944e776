// What franz-go is asked to do. Prints one JSON line for each step; see kordon.testing.steps.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var (
	bootstrap, prefix string
	ctx               = context.Background()
	client            *kgo.Client
	admin             *kadm.Client
	timestamp         = time.UnixMilli(1_700_000_000_000)
	keep              = "-1"
)

var codecs = []struct {
	name  string
	codec kgo.CompressionCodec
}{
	{"none", kgo.NoCompression()}, {"gzip", kgo.GzipCompression()}, {"snappy", kgo.SnappyCompression()},
	{"lz4", kgo.Lz4Compression()}, {"zstd", kgo.ZstdCompression()},
}

func named(what string) string { return prefix + "-" + what }

// step does one thing and prints what came of it.
func step[T any](name string, call func() (T, error)) {
	outcome := map[string]any{"step": name}
	answer, err := call()
	if err != nil {
		outcome["error"] = err.Error()
	} else {
		outcome["answer"] = answer
	}
	line, err := json.Marshal(outcome)
	if err != nil {
		line, _ = json.Marshal(map[string]any{"step": name, "answer": fmt.Sprintf("%+v", answer)})
	}
	fmt.Println(string(line))
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func until(what string, holds func() bool) {
	for deadline := time.Now().Add(20 * time.Second); !holds(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			panic(what + ": not within 20 s")
		}
	}
}

func connect(opts ...kgo.Opt) *kgo.Client {
	base := []kgo.Opt{kgo.SeedBrokers(bootstrap), kgo.FetchMaxWait(250 * time.Millisecond),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MetadataMinAge(100 * time.Millisecond)}
	c, err := kgo.NewClient(append(base, opts...)...)
	must(err)
	return c
}

func create(what string, partitions int32, configs map[string]*string) string {
	all := map[string]*string{"retention.ms": &keep}
	for name, value := range configs {
		all[name] = value
	}
	_, err := admin.CreateTopic(ctx, partitions, 1, all, named(what))
	must(err)
	until(named(what), func() bool {
		// Known is not yet led, and what comes too early with acks=0 is lost.
		found, err := admin.ListEndOffsets(ctx, named(what))
		return err == nil && len(found[named(what)]) == int(partitions) && found.Error() == nil
	})
	return named(what)
}

func topics() {
	topic := named("made")
	make := func(partitions int32, replicas int16, name string, value string) func() (any, error) {
		return func() (any, error) {
			return admin.CreateTopic(ctx, partitions, replicas, map[string]*string{name: &value}, topic)
		}
	}
	step("create topic", make(2, 1, "retention.ms", keep))
	step("create it again", make(2, 1, "retention.ms", keep))
	topic = named("x")
	step("invalid config", make(1, 1, "no.such", "1"))
	step("too many replicas", make(1, 9, "retention.ms", keep))
	topic = named("made")
	step("grow", func() (any, error) { return admin.UpdatePartitions(ctx, 3, topic) })
	step("shrink", func() (any, error) { r, err := admin.UpdatePartitions(ctx, 1, topic); return r[topic].Err.Error(), err })
	until("3 partitions", func() bool {
		found, err := admin.ListTopics(ctx, topic)
		return err == nil && len(found[topic].Partitions) == 3
	})
	step("describe topic", func() (any, error) { return admin.ListTopics(ctx, topic) })
	step("describe unknown topic", func() (any, error) {
		found, err := admin.ListTopics(ctx, named("nowhere"))
		return fmt.Sprint(found[named("nowhere")].Err), err
	})
	gone := create("gone", 1, nil)
	step("delete topic", func() (any, error) { return admin.DeleteTopic(ctx, gone) })
	step("delete unknown topic", func() (any, error) { return admin.DeleteTopic(ctx, named("nowhere")) })
}

func configs() {
	topic := create("config", 1, nil)
	alter := func(value string) func() (any, error) {
		return func() (any, error) {
			found, err := admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Name: "max.message.bytes", Value: &value}}, topic)
			if err != nil {
				return nil, err
			}
			return []string{fmt.Sprint(found[0].Err), found[0].ErrMessage}, nil
		}
	}
	step("alter config", alter("2000"))
	step("alter to nonsense", alter("many"))
	until("the config", func() bool {
		found, err := admin.DescribeTopicConfigs(ctx, topic)
		return err == nil && len(found) == 1 && slices.ContainsFunc(found[0].Configs, func(c kadm.Config) bool {
			return c.Key == "max.message.bytes" && c.MaybeValue() == "2000"
		})
	})
	step("topic config", func() (any, error) { return admin.DescribeTopicConfigs(ctx, topic) })
	step("unknown topic's config", func() (any, error) {
		found, err := admin.DescribeTopicConfigs(ctx, named("nowhere"))
		return fmt.Sprint(found[0].Err), err
	})
	step("broker config", func() (any, error) { return admin.DescribeBrokerConfigs(ctx, 1) })
	step("quotas", func() (any, error) { return admin.DescribeClientQuotas(ctx, true, nil) })
}

func acls() {
	rules := kadm.NewACLs().Topics(named("acl")).Allow("User:somebody").AllowHosts("*").
		Operations(kadm.OpRead).ResourcePatternType(kadm.ACLPatternLiteral)
	step("add ACL", func() (any, error) { return admin.CreateACLs(ctx, rules) })
	until("the rule", func() bool {
		found, err := admin.DescribeACLs(ctx, rules)
		return err == nil && len(found) > 0 && len(found[0].Described) > 0
	})
	step("list ACLs", func() (any, error) { return admin.DescribeACLs(ctx, rules) })
	step("remove ACLs", func() (any, error) { return admin.DeleteACLs(ctx, rules) })
}

func records(topic string, partition int32, count int) []*kgo.Record {
	kind := topic[strings.LastIndex(topic, "-")+1:]
	var all []*kgo.Record
	for n := range count {
		all = append(all, &kgo.Record{
			Topic: topic, Partition: partition, Timestamp: timestamp, Key: fmt.Appendf(nil, "key-%d", n),
			Value:   []byte(strings.Repeat(fmt.Sprintf("%s-%d ", kind, n), 1+n*7)),
			Headers: []kgo.RecordHeader{{Key: "kind", Value: []byte("test")}, {Key: "empty"}},
		})
	}
	return all
}

func send(c *kgo.Client, topic string, partition int32, count int) ([][2]int64, error) {
	var reports [][2]int64
	results := c.ProduceSync(ctx, records(topic, partition, count)...)
	for _, result := range results {
		reports = append(reports, [2]int64{int64(result.Record.Partition), result.Record.Offset})
	}
	return reports, results.FirstErr()
}

func produce() {
	topic := create("codecs", int32(3*len(codecs)), nil)
	for number, codec := range codecs {
		for place, acks := range []kgo.Acks{kgo.NoAck(), kgo.LeaderAck(), kgo.AllISRAcks()} {
			opts := []kgo.Opt{kgo.RequiredAcks(acks), kgo.ProducerBatchCompression(codec.codec), kgo.ProducerLinger(200 * time.Millisecond)}
			if place < 2 {
				opts = append(opts, kgo.DisableIdempotentWrite())
			}
			producer, partition := connect(opts...), int32(3*number+place)
			step(fmt.Sprintf("produce %s acks=%d", codec.name, place), func() (any, error) { return send(producer, topic, partition, 5) })
			until("the end", func() bool {
				found, err := admin.ListEndOffsets(ctx, topic)
				return err == nil && found[topic][partition].Offset == 5
			})
			producer.Close()
		}
	}
	step("read codecs", func() (any, error) { return read(topic, 75) })
}

type seen struct {
	Partition                int32
	Offset, Timestamp        int64
	Key, Value               string
	Headers                  []kgo.RecordHeader
	ProducerEpoch            int16
	Codec                    uint8
	Transactional, IsControl bool
}

func poll(c *kgo.Client, count int) ([]seen, error) {
	var found []seen
	deadline := time.Now().Add(20 * time.Second)
	for {
		wait, cancel := context.WithTimeout(ctx, 700*time.Millisecond)
		fetches := c.PollFetches(wait)
		cancel()
		for _, failed := range fetches.Errors() {
			if !errors.Is(failed.Err, context.DeadlineExceeded) {
				return nil, failed.Err
			}
		}
		fetches.EachRecord(func(r *kgo.Record) {
			found = append(found, seen{r.Partition, r.Offset, r.Timestamp.UnixMilli(), string(r.Key), string(r.Value), r.Headers,
				r.ProducerEpoch, r.Attrs.CompressionType(), r.Attrs.IsTransactional(), r.Attrs.IsControl()})
		})
		if fetches.NumRecords() == 0 && len(found) >= count {
			break
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("%d of %d records within 20 s", len(found), count)
		}
	}
	sort.Slice(found, func(a, b int) bool {
		if found[a].Partition != found[b].Partition {
			return found[a].Partition < found[b].Partition
		}
		return found[a].Offset < found[b].Offset
	})
	return found, nil
}

func read(topic string, count int, opts ...kgo.Opt) ([]seen, error) {
	c := connect(append(opts, kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...)
	defer c.Close()
	return poll(c, count)
}

func transactions() {
	topic := create("tx", 1, nil)
	id := kgo.TransactionalID(named("tx"))
	producer := connect(id)
	transact := func(commit kgo.TransactionEndTry) func() (any, error) {
		return func() (any, error) {
			if err := producer.BeginTransaction(); err != nil {
				return nil, err
			}
			reports, err := send(producer, topic, 0, 3)
			if err == nil {
				err = producer.EndTransaction(ctx, commit)
			}
			return reports, err
		}
	}
	step("commit", transact(kgo.TryCommit))
	step("abort", transact(kgo.TryAbort))
	step("commit again", transact(kgo.TryCommit))
	step("read committed", func() (any, error) { return read(topic, 6, kgo.FetchIsolationLevel(kgo.ReadCommitted())) })
	step("read uncommitted", func() (any, error) { return read(topic, 9) })
	other := connect(id)
	step("begin elsewhere", func() (any, error) {
		_, epoch, err := other.ProducerID(ctx)
		return epoch > 0, err
	})
	step("fenced", transact(kgo.TryCommit))
	step("producers", func() (any, error) {
		found, err := admin.DescribeProducers(ctx, kadm.TopicsSet{topic: {0: {}}})
		return len(found[topic].Partitions[0].ActiveProducers), err
	})
	step("describe transaction", func() (any, error) {
		found, err := admin.DescribeTransactions(ctx, named("tx"))
		tx := found[named("tx")]
		return map[string]any{"coordinator": tx.Coordinator, "state": tx.State, "timeout": tx.TimeoutMillis}, err
	})
	step("list transactions", func() (any, error) {
		found, err := admin.ListTransactions(ctx, nil, nil)
		return found[named("tx")].State, err
	})
	other.Close()
	producer.Close()
}

func groups() {
	topic := create("grouped", 2, nil)
	for partition := range int32(2) {
		_, err := send(client, topic, partition, 5)
		must(err)
	}
	for kind, opts := range map[string][]kgo.Opt{
		"classic":  {kgo.Balancers(kgo.RangeBalancer())},
		"consumer": {kgo.Balancers(kgo.RangeBalancer()), kgo.ServerSideBalancer()},
	} {
		group := named(kind)
		opts = append(opts, kgo.ConsumerGroup(group), kgo.DisableAutoCommit(), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		member := connect(opts...)
		describe := func() (any, error) {
			if kind == "consumer" {
				found, err := admin.DescribeConsumerGroups(ctx, group)
				g := found[group]
				return []any{g.Coordinator, g.State, g.AssignorName, len(g.Members), fmt.Sprint(g.Err)}, err
			}
			found, err := admin.DescribeGroups(ctx, group)
			g := found[group]
			return []any{g.Coordinator, g.State, g.Protocol, g.ProtocolType, g.AssignedPartitions(), len(g.Members), fmt.Sprint(g.Err)}, err
		}
		step(kind+": read", func() (any, error) { return poll(member, 10) })
		step(kind+": commit", func() (any, error) { return nil, member.CommitUncommittedOffsets(ctx) })
		step(kind+": describe", describe)
		step(kind+": delete while in use", func() (any, error) { return admin.DeleteGroup(ctx, group) })
		member.Close()
		step(kind+": describe when empty", describe)
		offsets := kadm.Offsets{}
		offsets.AddOffset(topic, 0, 3, -1)
		step(kind+": alter offsets", func() (any, error) { return admin.CommitOffsets(ctx, group, offsets) })
		step(kind+": list offsets", func() (any, error) { return admin.FetchOffsets(ctx, group) })
		step(kind+": lag", func() (any, error) {
			found, err := admin.Lag(ctx, group)
			return []any{found[group].Lag.Total(), fmt.Sprint(found.Error())}, err
		})
	}
	step("delete group", func() (any, error) { return admin.DeleteGroup(ctx, named("classic")) })
	shareGroup(topic)
}

func shareGroup(topic string) {
	group := named("share")
	earliest := "earliest"
	config := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	config.Name, config.Value = "share.auto.offset.reset", &earliest
	resource := kmsg.NewIncrementalAlterConfigsRequestResource()
	resource.ResourceType, resource.ResourceName = kmsg.ConfigResourceTypeGroupConfig, group
	resource.Configs = append(resource.Configs, config)
	request := kmsg.NewPtrIncrementalAlterConfigsRequest()
	request.Resources = append(request.Resources, resource)
	step("share: config", func() (any, error) {
		found, err := request.RequestWith(ctx, client)
		if err != nil {
			return nil, err
		}
		return nil, kerr.ErrorForCode(found.Resources[0].ErrorCode)
	})
	var mutex sync.Mutex
	acknowledged := 0
	member := connect(kgo.ShareGroup(group), kgo.ConsumeTopics(topic), kgo.ShareAckCallback(func(_ *kgo.Client, results kgo.ShareAckResults) {
		mutex.Lock()
		defer mutex.Unlock()
		if results.Ok() {
			acknowledged++
		}
	}))
	step("share: read", func() (any, error) { return poll(member, 10) })
	step("share: acknowledge", func() (any, error) { return nil, member.FlushAcks(ctx) })
	describe := func() (any, error) {
		found, err := admin.DescribeShareGroups(ctx, group)
		g := found[group]
		return []any{g.Coordinator, g.GroupState, len(g.Members), fmt.Sprint(g.Err)}, err
	}
	step("share: describe", describe)
	member.Close()
	step("share: acknowledged", func() (any, error) {
		mutex.Lock()
		defer mutex.Unlock()
		return acknowledged > 0, nil
	})
	step("share: describe when empty", describe)
	step("share: offsets", func() (any, error) { return admin.DescribeShareGroupOffsets(ctx, group) })
	step("share: delete offsets", func() (any, error) { return admin.DeleteShareGroupOffsets(ctx, group, topic) })
}

func failures() {
	limit := "500"
	small := create("small", 1, map[string]*string{"max.message.bytes": &limit})
	attempt := func(topic string, partition int32, size int) func() (any, error) {
		return func() (any, error) {
			c := connect(kgo.RecordDeliveryTimeout(3*time.Second), kgo.UnknownTopicRetries(1), kgo.ProducerBatchCompression(kgo.NoCompression()))
			defer c.Close()
			record := &kgo.Record{Topic: topic, Partition: partition, Value: make([]byte, size)}
			return nil, c.ProduceSync(ctx, record).FirstErr()
		}
	}
	step("message too large", attempt(small, 0, 5000))
	step("unknown topic", attempt(named("nowhere"), 0, 1))
	step("unknown partition", attempt(small, 7, 1))
	step("offset out of range", func() (any, error) {
		c := connect(kgo.ConsumeResetOffset(kgo.NoResetOffset()), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{small: {0: kgo.NewOffset().At(99)}}))
		defer c.Close()
		return poll(c, 1)
	})
	step("describe unknown group", func() (any, error) {
		found, err := admin.DescribeGroups(ctx, named("nobody"))
		return []any{found[named("nobody")].State, fmt.Sprint(found[named("nobody")].Err)}, err
	})
	step("delete unknown group", func() (any, error) { return admin.DeleteGroup(ctx, named("nobody")) })
	step("session timeout too short", func() (any, error) {
		c := connect(kgo.ConsumerGroup(named("short")), kgo.SessionTimeout(200*time.Millisecond), kgo.HeartbeatInterval(100*time.Millisecond), kgo.ConsumeTopics(small))
		defer c.Close()
		return poll(c, 1)
	})
	offsets := kadm.Offsets{}
	offsets.AddOffset(named("nowhere"), 0, 3, -1)
	step("alter offsets of no topic", func() (any, error) {
		found, err := admin.CommitOffsets(ctx, named("nobody"), offsets)
		return fmt.Sprint(found.Error()), err
	})
}

func listings() {
	topic := named("codecs")
	step("start offsets", func() (any, error) { return admin.ListStartOffsets(ctx, topic) })
	step("end offsets", func() (any, error) { return admin.ListEndOffsets(ctx, topic) })
	step("offsets by time", func() (any, error) { return admin.ListOffsetsAfterMilli(ctx, timestamp.UnixMilli(), topic) })
	step("latest timestamp", func() (any, error) { return admin.ListMaxTimestampOffsets(ctx, topic) })
	offsets := kadm.Offsets{}
	offsets.AddOffset(topic, 1, 3, -1)
	step("delete records", func() (any, error) { return admin.DeleteRecords(ctx, offsets) })
	step("log dirs", func() (any, error) { return admin.DescribeAllLogDirs(ctx, kadm.TopicsSet{topic: {0: {}, 1: {}}}) })
	step("list groups", func() (any, error) {
		found, err := admin.ListGroups(ctx)
		for name := range found {
			if !strings.HasPrefix(name, prefix) {
				delete(found, name)
			}
		}
		return found, err
	})
	step("coordinators", func() (any, error) {
		found := admin.FindGroupCoordinators(ctx, named("classic"))
		return found, found.Error()
	})
	step("reassignments", func() (any, error) { return admin.ListPartitionReassignments(ctx, kadm.TopicsSet{topic: {0: {}}}) })
	step("users", func() (any, error) { return admin.DescribeUserSCRAMs(ctx) })
	step("delegation tokens", func() (any, error) { return admin.DescribeDelegationTokens(ctx) })
	step("cluster", func() (any, error) { return admin.BrokerMetadata(ctx) })
}

func main() {
	bootstrap, prefix = os.Args[1], os.Args[2]
	client = connect()
	admin = kadm.NewClient(client)
	for _, part := range []func(){topics, configs, acls, produce, transactions, groups, failures, listings} {
		part()
	}
	client.Close()
}
